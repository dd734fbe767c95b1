import json

import pytest
from tests.support.energy_run import training

from stepmeter.cli import main


@pytest.fixture
def compared(tmp_path, capsys):
    """Compares a training of 270 J a step with one that takes so much of that; gives exit code and document."""

    def compare(share, *words):
        paths = []
        for name, of in (("a", 1.0), ("b", share)):
            run = training(input_wait_cpu_ns=0, traced_cpu_ns=900_000_000)
            for point in run.points:
                if point["metric"] == "hw.energy":
                    point["double_value"] *= of
            paths.append(str(run.write(tmp_path / name, name)))
        code = main(["compare", *paths, *words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return compare


@pytest.mark.parametrize(("share", "verdict"), [(1.2, "REGRESSION"), (0.8, "IMPROVEMENT"), (1.04, "SIMILAR")])
def test_energy_decides_where_time_and_memory_do_not(compared, share, verdict):
    """With like step times 5 % more or less energy per step is the verdict, and the reason says from what to what."""
    code, document = compared(share)

    assert (code, document["verdict"]) == (0, verdict)
    assert document["why"][-1].startswith(f"Energy per step changed by {share - 1:+.1%}".replace("%", " %"))


def test_energy_per_step_can_be_a_gate(compared):
    """A condition on J per step fails the comparison when it holds beyond noise."""
    assert compared(1.2, "--fail-on", "step_energy>10%")[0] == 5
    assert compared(1.2, "--fail-on", "step_energy>30%")[0] == 0
