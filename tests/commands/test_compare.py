from __future__ import annotations

import json

import pytest
from tests.step_time.scenarios import SCENARIOS
from tests.support.step_time import RunBuilder

from stepmeter.cli import main
from stepmeter.report.summary import summarize, write_files

GIB = 1024**3


@pytest.fixture
def run(tmp_path):
    """Makes runs of two ranks whose steps of 100 ms vary by 5 %."""

    def make(
        name, *, numbers=range(1, 101), ranks=2, seed=7, scale=1.0, gpu=False, peak_gib=None, change=None, **phases
    ):
        base = {"input_wait": 5.0, "h2d": 5.0, "forward": 30.0, "backward": 45.0, "optimizer": 10.0, "traced": 95.0}
        values = {key: None if value is None else value * scale for key, value in {**base, **phases}.items()}
        builder = RunBuilder(gpu=gpu, memory_limit_bytes=80 * GIB)
        for rank in range(ranks):
            builder.rank(rank, numbers, jitter=0.05, seed=seed, change=change, **values)
            if peak_gib is not None:
                builder.peaks(rank, lambda _: int(peak_gib * GIB), lambda _: int(peak_gib * GIB))
        return str(builder.write(tmp_path, run_id=name, name=name))

    return make


def noisy(number, values):
    """Every fifth step takes 500 ms."""
    return {"traced": 95.0 if number % 5 else 495.0}


@pytest.fixture
def compared(capsys):
    """Compares, and gives exit code and document."""

    def compare(*words):
        code = main(["compare", *words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return compare


def test_the_same_training_twice_is_similar(run, compared):
    """Other noise of the same size is no change."""
    code, document = compared(run("a"), run("b", seed=8))

    assert (code, document["verdict"]) == (0, "SIMILAR")


@pytest.mark.parametrize(
    ("scale", "verdict"), [(1.05, "REGRESSION"), (0.95, "IMPROVEMENT"), (1.02, "SIMILAR"), (0.98, "SIMILAR")]
)
def test_three_percent_count(run, compared, scale, verdict):
    """Steps that take 5 % longer are a regression, 5 % shorter an improvement, 2 % neither."""
    _, document = compared(run("a"), run("b", seed=8, scale=scale))

    assert document["verdict"] == verdict


def test_a_change_within_the_noise_is_similar(run, compared):
    """Every fifth step takes five times as long: 2 of 11 or 2 of 14 such steps make 9 % that say nothing."""
    a, b = run("a", numbers=range(1, 12), change=noisy), run("b", numbers=range(1, 15), change=noisy)

    _, document = compared(a, b)

    assert document["verdict"] == "SIMILAR"
    assert document["sections"]["step_time"]["metrics"]["step_time_ms"]["is_noise"]
    assert "within the noise" in document["why"][0]


def test_one_rank_that_became_slower_is_a_regression(run, compared, tmp_path):
    """Two free-running ranks, one of which takes 115 ms now instead of 100: the run takes longer."""
    numbers = range(1, 101)
    builder = RunBuilder().rank(0, numbers, jitter=0.05).rank(1, numbers, jitter=0.05, backward=60.0, traced=110.0)

    _, document = compared(run("a"), str(builder.write(tmp_path, run_id="b", name="b")))

    assert document["verdict"] == "REGRESSION"


def test_memory_decides_where_step_time_does_not(run, compared):
    """20 % more peak memory at the same step time are a regression."""
    _, document = compared(run("a", gpu=True, peak_gib=10), run("b", gpu=True, peak_gib=12, seed=8))

    assert document["verdict"] == "REGRESSION"
    assert document["why"][1].startswith("Peak memory changed by +20.0 %")


def test_faster_with_more_memory_is_an_improvement_that_says_so(run, compared):
    """Step time decides, and the reasons name both."""
    _, document = compared(run("a", gpu=True, peak_gib=10), run("b", gpu=True, peak_gib=12, scale=0.8))

    assert (document["verdict"], len(document["why"])) == ("IMPROVEMENT", 2)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"numbers": range(1, 2)}, "a comparison needs 2"),
        ({"ranks": 1}, "A has 2 ranks and B 1"),
        ({"input_wait": None}, "Step time was not measured in B"),
    ],
)
def test_unlike_runs_are_not_comparable(run, compared, other, why):
    """Too few steps, other ranks, or no step time: the reason is told and no verdict is made up."""
    code, document = compared(run("a"), run("b", **other))

    assert (code, document["verdict"]) == (0, "NOT COMPARABLE")
    assert why in document["why"][0]


def test_different_clocks_are_compared_on_the_cpu(run, compared):
    """A CPU step of 200 ms beside a GPU step of 100 is the same step when A took 200 on the CPU."""
    _, document = compared(run("a", scale=2.0), run("b", gpu=True))

    assert document["sections"]["step_time"]["metrics"]["step_time_ms"]["b"] == pytest.approx(200, rel=0.01)
    assert document["verdict"] == "SIMILAR"


def test_files_and_runs_compare_alike(run, compared, tmp_path):
    """A stored final_summary.json stands for its run."""
    a, b = run("a"), run("b", scale=1.1)
    write_files(tmp_path / "a")

    assert compared(f"{a}/final_summary.json", b)[1] == compared(a, b)[1]


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("step_time>5%", 5),
        ("step_time>15%", 0),
        ("step_time_ms >= 5 %", 5),
        ("forward<-5%", 0),
        ("input_wait_share>1pp", 0),
    ],
)
def test_a_condition_that_holds_fails_with_5(run, compared, condition, code):
    """Steps of B take 10 % longer, all phases alike."""
    found, document = compared(run("a"), run("b", scale=1.1), "--fail-on", condition)

    assert found == code
    assert document["fail_on"][0]["holds"] is (code == 5)


def test_a_share_is_held_in_percentage_points(run, compared):
    """Input wait goes from 5 of 100 ms to 25 of 120, by 15.8 points."""
    a, b = run("a"), run("b", input_wait=25.0)

    assert compared(a, b, "--fail-on", "input_wait_share>15pp")[0] == 5
    assert compared(a, b, "--fail-on", "input_wait_share>16pp")[0] == 0


def test_noise_never_makes_a_condition_hold(run, compared):
    """9 % more over wild steps are no regression, and the outcome says why it passed."""
    a, b = run("a", numbers=range(1, 15), change=noisy), run("b", numbers=range(1, 12), change=noisy)

    code, document = compared(a, b, "--fail-on", "step_time>1%")

    assert code == 0
    assert document["fail_on"][0]["reason"] == "within the noise of the steps"


def test_a_gate_that_can_not_be_judged_does_not_pass(run, compared):
    """Runs that do not compare exit with 4 under a gate, after the comparison was printed."""
    code, document = compared(run("a"), run("b", ranks=1), "--fail-on", "step_time>5%")

    assert (code, document["verdict"]) == (4, "NOT COMPARABLE")


@pytest.mark.parametrize(
    "condition", ["step_time", "step_time>5", "step_time=5%", ">5%", "nothing>5%", "step_time>5pp"]
)
def test_a_condition_that_is_none_is_a_usage_error(run, capsys, condition):
    """Exit code 2, and one line with what was expected."""
    assert main(["compare", run("a"), run("b"), "--fail-on", condition]) == 2
    assert capsys.readouterr().err.startswith(f'stepmeter: --fail-on "{condition}"')


def test_the_text_has_verdict_reason_sides_and_changes(run, capsys):
    """Plain ASCII where there is no terminal."""
    assert main(["compare", run("a"), run("b", scale=1.1)]) == 0

    out = capsys.readouterr().out
    assert out.startswith("REGRESSION\nwhy   Step time changed by +")
    assert "\nA  a (100 steps, 2 ranks, CPU clock)\nB  b (100 steps, 2 ranks, CPU clock)\n" in out
    assert "\nstep time" in out
    assert out.isascii()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not a final_summary.json (no object in it)"),
        ("{", "not a final_summary.json"),
        ('{"schema_version": "1.0"}', "no 'meta'"),
        ('{"schema_version": "1.0", "meta": {}, "step_time": {}}', "no 'global'"),
        ('{"schema_version": "1.0", "meta": [], "step_time": {"global": {"window": 3}}}', "not a final_summary.json"),
        ('{"schema_version": "9.0"}', "summary version 9.0, this stepmeter reads 1.x"),
    ],
)
def test_a_file_that_is_no_summary_is_refused(run, tmp_path, capsys, content, message):
    """Exit code 4, and one line that names the file."""
    (tmp_path / "other.json").write_text(content)

    assert main(["compare", str(tmp_path / "other.json"), run("b")]) == 4
    assert message in capsys.readouterr().err


def test_a_missing_run_exits_with_3(run, capsys):
    """As everywhere."""
    assert main(["compare", run("a"), "nowhere"]) == 3


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_each_scenario_compares_with_itself(tmp_path, compared, scenario):
    """Both sides have the contract's first finding, and the verdict is SIMILAR wherever step time was measured."""
    run = str(scenario.build().write(tmp_path, run_id=scenario.name, name=scenario.name))

    code, document = compared(run, run, "--fail-on", "step_time>5%")

    kind = scenario.issues[0][0]
    assert (code, document["verdict"]) == (0, "SIMILAR")
    assert document["sections"]["step_time"]["diagnosis"] == {"a": kind, "b": kind}


def test_a_summary_that_lost_a_part_is_refused(run, tmp_path, capsys):
    """Whatever is taken out of a stored summary, the answer is one line and never a traceback."""
    b = run("b")
    write_files(tmp_path / "b")
    whole = json.loads((tmp_path / "b" / "final_summary.json").read_text())
    for section in ("step_time", "step_memory", "system", "process"):
        for part in ("metadata", "diagnosis", "global", "units"):
            broken = {**whole, section: {key: value for key, value in whole[section].items() if key != part}}
            (tmp_path / "broken.json").write_text(json.dumps(broken))

            assert main(["compare", str(tmp_path / "broken.json"), b]) == 4
            assert "not a final_summary.json" in capsys.readouterr().err


def test_metrics_of_one_name_say_their_section(tmp_path, capsys):
    """The host's CPU share and that of the processes stand in one table, each with its own name."""
    files = []
    for name in ("a", "b"):
        document = json.loads(summarize(RunBuilder().rank(0, range(1, 101)).write(tmp_path / name)).json())
        for section in ("system", "process"):
            document[section]["global"]["median"]["cpu_share"] = {"value": 0.5, "idx": 0}
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(document))

    assert main(["compare", *map(str, files), "--fail-on", "nothing>5%"]) == 2

    out, err = capsys.readouterr()
    assert "\nsystem cpu share" in out
    assert "\nprocess cpu share" in out
    assert err.count("cpu_share") == 1
