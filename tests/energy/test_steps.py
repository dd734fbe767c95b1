import pytest

from stepmeter.analysis.energy.steps import parse_steps, read_step_file
from stepmeter.errors import UsageError

LINE = '{{"step_id": {0}, "kind": "{1}", "t_start_unix_ns": {2}, "t_end_unix_ns": {3}}}'


def parse(*lines):
    return parse_steps(lines, "steps.jsonl")


def test_order_is_free_and_blank_lines_are_skipped():
    """Steps come in the file's order, blank lines and fields of others are passed over, zero length is accepted."""
    extra = LINE.format(9, "tool", 5, 5)[:-1] + ', "note": "x"}'
    steps = parse("", LINE.format(2, "tool", 200, 350), "  ", LINE.format(1, "llm_call", 100, 200), extra, "")

    assert [(s.step_id, s.kind, s.start_unix_ns, s.end_unix_ns) for s in steps] == [
        (2, "tool", 200, 350),
        (1, "llm_call", 100, 200),
        (9, "tool", 5, 5),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LINE.format(7, "banana", 1, 2), r"steps.jsonl:2: unknown kind 'banana'; known: llm_call, tool"),
        (LINE.format(7, "tool", 10, 9), r"steps.jsonl:2: step 7 ends 1 ns before it starts"),
        (LINE.format(1, "tool", 3, 4), r"steps.jsonl:2: step_id 1 is also on line 1"),
        (LINE.format(7, "tool", 1, 2)[:-5], r"steps.jsonl:2: not JSON"),
        ("[1]", r"steps.jsonl:2: list found; expected an object"),
        ('{"step_id": 1}', r"steps.jsonl:2: no kind; expected step_id"),
        (LINE.format(7, "tool", 1.5, 2), r"steps.jsonl:2: t_start_unix_ns is 1.5; expected an integer"),
        (LINE.format(7, "tool", -1, 2), r"steps.jsonl:2: t_start_unix_ns is -1"),
        (LINE.format("true", "tool", 1, 2), r"steps.jsonl:2: step_id is True"),
    ],
)
def test_a_wrong_line_is_named(line, message):
    """Every error says which line, what was found and what was expected."""
    with pytest.raises(UsageError, match=message):
        parse(LINE.format(1, "llm_call", 1, 2), line)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    """A step file that can't be read is one line."""
    with pytest.raises(UsageError, match="not readable"):
        read_step_file(tmp_path / "absent.jsonl")
