import json

from tests.support.energy_run import on_cpus, serving, training

from stepmeter.analysis.energy.live import INTERVAL_S, LiveEnergy
from stepmeter.analysis.step_time.live import LiveStepTimeSession
from stepmeter.live.terminal import draw
from stepmeter.report.parts import render_text
from stepmeter.report.trace import Selection, write_trace
from stepmeter.store.reader import open_run


def test_a_live_view_has_the_energy_of_its_window(tmp_path):
    """One session gives the steps' times and, beside them, what they cost; the terminal has a line of it."""
    run = on_cpus(training(input_wait_cpu_ns=0, traced_cpu_ns=900_000_000)).write(tmp_path)
    with LiveStepTimeSession(run) as session:
        result = session.refresh()
        picture = render_text([draw(result, "demo", 0, 100)], width=100, color=False)

    assert result.energy.rows[0].metrics["step_energy_mj"] == 270_000
    assert "energy per step 270 J" in picture
    assert "and 45.0 J of CPUs and memory" in picture


def test_a_live_view_without_devices_has_no_line(tmp_path):
    """Where no step has an energy nothing is said of it, and least of all 0."""
    run = training(input_wait_cpu_ns=0, traced_cpu_ns=900_000_000)
    run.points = []
    with LiveStepTimeSession(run.write(tmp_path)) as session:
        result = session.refresh()

    assert result.energy is None
    assert "energy" not in render_text([draw(result, "demo", 0, 100)], width=100, color=False)


def test_energy_is_read_more_rarely_than_times(tmp_path):
    """Between two readings the facts of the first stand, whatever is asked."""
    now_s = [0.0]
    energy = LiveEnergy(lambda: now_s[0])
    with open_run(training().write(tmp_path)) as reader:
        snapshot = reader.snapshot()
        first = energy.read(snapshot, 0, (1, 2))
        assert energy.read(snapshot, 0, (1, 2, 3)) is first
        now_s[0] = INTERVAL_S
        later = energy.read(snapshot, 0, tuple(range(6, 11)))

    assert (first.samples, later.samples) == (10, 5)


def test_a_trace_has_the_energy_of_steps(tmp_path):
    """A step's event has its energy with its bounds and how it was found."""
    events = _spans(training(), tmp_path)

    assert [event["args"]["energy_mj"] for event in events] == [270_000] * 10
    arguments = events[0]["args"]
    assert arguments["energy_lower_mj"] <= 270_000 <= arguments["energy_upper_mj"]
    assert (arguments["energy_method"], arguments["step"]) == ("counter_exact", 1)


def test_a_trace_has_the_energy_of_calls(tmp_path):
    """A call's event has the energy of the time that is its own, and what CPUs took; other spans have none."""
    run = on_cpus(serving())
    run.span(0, 4, "tool", name="search", **{"gen_ai.operation.name": "execute_tool"})
    run.span(1, 3, "call", "tool", **{"gen_ai.operation.name": "chat"})
    run.span(0, 1, "other", name="other")
    found = {event["name"]: event["args"] for event in _spans(run, tmp_path)}

    assert (found["search"]["energy_mj"], found["chat"]["energy_mj"]) == (200_000, 200_000)
    assert (found["search"]["cpu_energy_mj"], found["chat"]["cpu_energy_mj"]) == (100_000, 100_000)
    assert "energy_mj" not in found["other"]


def _spans(run, directory):
    write_trace(run.write(directory), directory / "trace.json", Selection())
    trace = json.loads((directory / "trace.json").read_text())
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == "default"]
