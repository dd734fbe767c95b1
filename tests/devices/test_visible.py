import pytest

from stepmeter.devices.visible import visible_uuids

HOST = ("GPU-aa", "GPU-ab", "GPU-b0", "GPU-c0")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, HOST),
        ("", ()),
        ("2", ("GPU-b0",)),
        ("3,0", ("GPU-c0", "GPU-aa")),
        (" 1 , 2 ", ("GPU-ab", "GPU-b0")),
        ("GPU-b", ("GPU-b0",)),
        ("GPU-a", ()),
        ("MIG-11112222", ("MIG-11112222",)),
        ("0,7,1", ("GPU-aa",)),
        ("-1", ()),
        ("0,-1,1", ("GPU-aa",)),
        ("1,1", ()),
        ("NoDevFiles", ()),
        ("nonsense", ()),
        ("0;1", ()),
        ("²", ()),
    ],
)
def test_resolves_like_cuda(setting, expected):
    """Indices, UUID prefixes and MIG UUIDs name devices; the first invalid entry ends the list; a repeat voids it."""
    assert expected == visible_uuids(setting, HOST)
