"""The simulated library itself: what it claims to hold is what the real nvidia-ml-py reads from it."""

import json

import pytest
from tests.support.nvml_scripts import READ
from tests.support.simulated_nvml import Control, Power, python_under_nvml


@pytest.fixture
def ask(tmp_path):
    """Evaluate an expression in a process whose clock the script sets."""
    control = Control(tmp_path / "control")

    def run(expression, gpus="H100:0x1a", **environ):
        code = f"{READ}\nprint(json.dumps({expression}))"
        return json.loads(python_under_nvml(code, gpus, SIMNVML_CONTROL=str(control.path), **environ))

    return run


def test_counter_moves_in_ticks(ask):
    """The counter holds the exact integral of the script at its last tick."""
    assert ask("[energy(t) - energy(1000) for t in (1099.9, 1100, 1199.9, 1200)]", SIMNVML_POWER="100:1") == [
        *(0, 10_000),
        *(10_000, 20_000),
    ]


def test_phase_and_shift_move_the_ticks(ask):
    """A phase moves all ticks, and each GPU's ticks come later than the one's before it."""
    script = "[[energy(t, gpu) - energy(1000, gpu) for t in (1029, 1030, 1034, 1035)] for gpu in (0, 1)]"

    assert ask(script, "H100:0x1a,H100:0x1b", SIMNVML_POWER="100:1", SIMNVML_PHASE_MS="30", SIMNVML_SHIFT_MS="5") == [
        [0, 10_000, 10_000, 10_000],
        [0, 0, 0, 10_000],
    ]


def test_jitter_keeps_ticks_near_their_grid(ask):
    """With jitter each tick lies within it of the grid, and they differ."""
    script = (
        "[next(t for t in range(100*k - 6, 100*k + 6) if energy(t) > energy(100*k - 7)) - 100*k for k in range(10,40)]"
    )
    off_ms = ask(script, SIMNVML_POWER="100:1", SIMNVML_JITTER_MS="5")

    assert all(-5 <= off <= 5 for off in off_ms)
    assert len(set(off_ms)) > 3


def test_truth_is_what_the_counter_integrates(ask, tmp_path):
    """The script's own integral and the counter agree to the millijoule."""
    power = Power([(250, 0.013), (600, 0.027), (420, 0.019)])
    mj = ask("energy(7300) - energy(1200)", **power.environ(tmp_path / "power"))

    assert mj == pytest.approx(power.energy_j(1.2e9, 7.3e9) * 1e3, abs=1)


def test_power_readings_have_windows(ask):
    """On Hopper the instant reading is a 25 ms mean that is 100 ms old at most, the average one of a second."""
    script = "[virtual(int(2.05e9)), *(f.value.uiVal for f in nvml.nvmlDeviceGetFieldValues(handle(), [186, 185]))][1:]"

    # busy for the first 90 ms of each 100 ms
    assert ask(script, SIMNVML_POWER="500:0.09,100:0.01") == [340_000, 460_000]


def test_old_boards_have_no_counter(ask):
    """Before Volta there is power and no energy counter."""
    script = "[outcome(lambda: energy(1000)), outcome(lambda: nvml.nvmlDeviceGetPowerUsage(handle()))]"

    assert ask(script, SIMNVML_ARCH="4") == ["NVMLError_NotSupported", 400_000]


def test_a_reload_begins_the_counter_again(ask):
    """After a driver reload the counter is lower than before."""
    assert ask("energy(2000, reload_ns=int(1.5e9))", SIMNVML_POWER="100:1") == 50_000


@pytest.mark.parametrize(
    ("control", "outcome"),
    [("lost=1", "NVMLError_GpuIsLost"), ("code=17", "NVMLError_OperatingSystem"), ("code=999", "NVMLError_Unknown")],
)
def test_failures_begin_while_it_runs(ask, control, outcome):
    """A GPU can get lost, and every call begin to fail, after readings that succeeded."""
    later = f"outcome(lambda: (virtual({control}), nvml.nvmlDeviceGetPowerUsage(h)))"
    script = f"[energy(1000) > 0, (h := handle()) and {later}]"

    assert ask(script) == [True, outcome]


def test_one_field_can_fail(ask):
    """A field's own return code fails while its neighbour and the call succeed."""
    script = "[f.nvmlReturn for f in nvml.nvmlDeviceGetFieldValues(handle(), [83, 186])]"

    assert ask(script, SIMNVML_FIELD_FAIL="186=3") == [0, 3]


def test_mig_instances_have_no_energy(ask):
    """A MIG instance is found by its UUID and has neither counter nor power of its own."""
    mig = "(nvml.nvmlDeviceGetHandleByUUID(b'MIG-00000000-0000-0000-0000-000000000000'))"
    names = ("GetTotalEnergyConsumption", "GetPowerUsage")
    script = "[" + ",".join(f"outcome(lambda: nvml.nvmlDevice{name}{mig})" for name in names) + "]"

    assert ask(script, SIMNVML_MIG="1") == ["NVMLError_NotSupported"] * 2
