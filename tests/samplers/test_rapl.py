import pytest

from stepmeter.samplers.lock import DeviceLock
from stepmeter.samplers.rapl import LOCK_NAME, RaplSampler


def zone(powercap, folder, name, energy_uj=1_000_000, range_uj=262_143_328_850):
    path = powercap / folder
    path.mkdir(parents=True, exist_ok=True)
    for file, text in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", range_uj)):
        (path / file).write_text(f"{text}\n")
    return path / "energy_uj"


def read(sampler):
    return {
        dict(one.attributes)["hw.id"].split("/", 1)[1]: one.value
        for one in sampler.read(7)
        if one.metric == "hw.energy"
    }


def test_packages_and_memory_are_read(tmp_path):
    """Packages are CPUs and their dram is memory, in joules; cores, psys and the mmio copies are left out."""
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:0:0", "core")
    zone(tmp_path, "intel-rapl:0:1", "dram", 2_500_000)
    zone(tmp_path, "intel-rapl:1", "psys", 9_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0")
    sampler = RaplSampler(tmp_path)

    assert read(sampler) == {"package-0": 1.0, "package-0/dram": 2.5}
    assert [dict(one.attributes)["hw.type"] for one in sampler.read(7)] == ["cpu", "cpu", "memory", "memory"]


def test_each_reading_says_when_it_was(tmp_path):
    """A reading's moment is that at which it was read; the counter held it since at most a millisecond before."""
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:1", "package-1")
    times = iter([1_200_000, 1_500_000])
    readings = RaplSampler(tmp_path, lambda: next(times)).read(1_000_000)

    assert [(one.at_ns, one.metric) for one in readings] == [
        (1_200_000, "hw.energy"),
        (1_200_000, "stepmeter.energy.tick_gap"),
        (1_500_000, "hw.energy"),
        (1_500_000, "stepmeter.energy.tick_gap"),
    ]
    assert [one.value for one in readings[1::2]] == [0.0012, 0.0013]


def test_one_process_of_a_run_reads(tmp_path):
    """While another process of the run reads a host's counters this one does not, and takes over when that ends."""
    zone(tmp_path / "powercap", "intel-rapl:0", "package-0")
    locks = [DeviceLock("run-1", LOCK_NAME, str(tmp_path)) for _ in range(2)]
    first, second = (RaplSampler(tmp_path / "powercap", lock=lock) for lock in locks)

    assert (len(first.read(7)), len(second.read(7))) == (2, 0)
    locks[0].release()
    assert len(second.read(7)) == 2


def test_a_counter_that_wraps_goes_on(tmp_path):
    """When the counter starts again at 0 the energy goes on growing."""
    file = zone(tmp_path, "intel-rapl:0", "package-0", 900_000, range_uj=999_999)
    sampler = RaplSampler(tmp_path)
    file.write_text("400000")

    assert read(sampler) == {"package-0": 1.4}


def test_what_may_not_be_read_is_absent(tmp_path):
    """Without a counter that may be read there is no sampler; one that vanishes spares the others."""
    with pytest.raises(FileNotFoundError, match="no RAPL counter"):
        RaplSampler(tmp_path)
    first = zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:1", "package-1")
    sampler = RaplSampler(tmp_path)
    first.unlink()

    assert read(sampler) == {"package-1": 1.0}
