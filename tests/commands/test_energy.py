import json
from pathlib import Path

import pytest
from tests.support.energy_run import EnergyRun, at, on_cpus, serving, training
from tests.support.processes import BIN, TINY, query, stepmeter
from tests.support.simulated_nvml import library_directory

from stepmeter.cli import main


def line(step_id, kind, start, end):
    return json.dumps({"step_id": step_id, "kind": kind, "t_start_unix_ns": at(start), "t_end_unix_ns": at(end)})


@pytest.fixture
def energy(tmp_path, capsys):
    """Run the command on a run and give what it prints."""

    def ask(run, *words, json_=True):
        path = run.write(tmp_path)
        code = main(["energy", str(path), *words, *(["--json"] if json_ else [])])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return json.loads(printed.out) if json_ else printed.out

    return ask


@pytest.fixture
def steps(tmp_path):
    """A step file: a call of 2 s, a tool of 1 s, a call of 1 s."""
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join([line(1, "llm_call", 0, 2), line(2, "tool", 2, 3), "", line(3, "llm_call", 3, 4)]))
    return str(path)


def test_a_step_file_prices_a_trajectory(energy, steps):
    """Steps of a file have the energy and tokens of their windows, under the decision record's names."""
    found = energy(serving(), "--steps", steps)["trajectory"]

    assert [one["energy_mj"] for one in found["steps"]] == [200_000, 100_000, 100_000]
    assert [one["generation_tokens_delta"] for one in found["steps"]] == [20, 10, 10]
    assert found["steps"][0]["tokens_per_joule"] == 0.1
    assert found["steps"][1]["tokens_per_joule"] is None
    assert (found["total_energy_mj"], found["llm_energy_mj"], found["tool_energy_mj"]) == (500_000, 300_000, 100_000)
    assert (found["unattributed_energy_mj"], found["unattributed_duration_ns"]) == (100_000, 1_000_000_000)
    assert found["anchor_source"] == "first_device_sample"
    assert found["tokens"] == {"in_steps": 40, "outside_steps": 10, "total": 50, "withheld": {}}
    assert found["phase_share"]["prefill_by_tokens_mj"] == 400_000
    assert found["steps"][0]["cache_hits_delta"] is None


def test_the_counter_gives_the_estimate(energy, steps):
    """With a counter the estimate is the counter's, and both bases stand side by side with their ratio."""
    run = serving()
    run.counter(lambda now: 1000 + 110 * now, [n / 10 for n in range(51)], sender="server", scope="dcgm")
    found = energy(run, "--steps", steps)["trajectory"]

    assert found["steps"][0]["energy_mj"] == 200_000
    # the first tick is taken to have been half its gap before the run
    assert found["steps"][0]["estimate"]["value_mj"] == pytest.approx(220_000, rel=0.001)
    assert found["steps"][0]["estimate"]["method"] in {"counter_exact", "counter_interpolated"}
    assert found["devices"][0]["integral_to_counter"] == pytest.approx(0.909, abs=0.001)
    assert not found["devices"][0]["bases_differ"]


def test_a_counter_that_was_only_polled_is_bounded(energy, steps):
    """A counter of which nobody says when it moved moved since the reading before; the bounds are as wide as that."""
    run = serving()
    run.counter(lambda now: 100 * now, [n / 2 for n in range(11)], None, sender="server", scope="dcgm")
    estimate = energy(run, "--steps", steps)["trajectory"]["steps"][1]["estimate"]

    assert estimate["value_mj"] == pytest.approx(100_000, rel=0.3)
    assert estimate["lower_mj"] <= 100_000 <= estimate["upper_mj"]


@pytest.mark.parametrize(
    ("call", "tool", "usage"),
    [
        (
            {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m"},
            {"gen_ai.operation.name": "execute_tool"},
            ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        ),
        (
            {"gen_ai.system": "openai", "gen_ai.request.model": "m"},
            {"gen_ai.operation.name": "execute_tool"},
            ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
        ),
        (
            {"openinference.span.kind": "LLM", "llm.model_name": "m"},
            {"openinference.span.kind": "TOOL"},
            ("llm.token_count.prompt", "llm.token_count.completion"),
        ),
        (
            {"llm.request.type": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m"},
            {"traceloop.span.kind": "tool"},
            ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
        ),
    ],
    ids=["opentelemetry", "older", "openinference", "openllmetry"],
)
def test_spans_of_agent_frameworks_are_steps(energy, call, tool, usage):
    """Calls and tools are found in every spelling, with their own tokens; what is around them is no step."""
    run = serving()
    run.span(0, 5, "agent", name="invoke_agent", **{"gen_ai.operation.name": "invoke_agent"})
    run.span(0, 5, "chain", "agent", name="chain", **{"openinference.span.kind": "CHAIN"})
    run.span(0, 2, "call", "chain", **call, **dict(zip(usage, (30, 7), strict=True)))
    run.span(2, 3, "tool", "chain", name="search", **tool)
    found = energy(run, "--genai")["trajectory"]

    assert [(one["kind"], one["energy_mj"]) for one in found["steps"]] == [("llm_call", 200_000), ("tool", 100_000)]
    assert (found["steps"][0]["usage_input_tokens"], found["steps"][0]["usage_output_tokens"]) == (30, 7)
    assert found["steps"][0]["model"] == "m"
    assert found["dropped_steps"] == []


def test_a_span_that_encloses_steps_has_the_rest_of_its_time(energy):
    """A tool that calls a model has the time around its call, however many spans lie between; nothing counts twice."""
    run = serving()
    run.span(0, 4, "outer", name="agent as tool", **{"gen_ai.operation.name": "execute_tool"})
    run.span(1, 4, "http", "outer", name="POST")
    run.span(1, 3, "inner", "http", **{"gen_ai.operation.name": "chat"})
    found = energy(run, "--genai")["trajectory"]

    assert [(one["step_id"], one["name"], one["piece"], one["energy_mj"]) for one in found["steps"]] == [
        (1, "agent as tool", [1, 2], 100_000),
        (2, "chat", None, 200_000),
        (3, "agent as tool", [2, 2], 100_000),
    ]
    assert found["dropped_steps"] == []


def test_a_call_that_two_instrumentations_record_counts_once(energy):
    """A wrapper around a client's call of the same length has no time of its own; the call's tokens count once."""
    run = serving()
    tokens = {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 7}
    run.span(0, 2, "outer", name="wrapper", **{"gen_ai.operation.name": "chat"}, **tokens)
    run.span(0, 1.9995, "inner", "outer", **{"gen_ai.operation.name": "chat"}, **tokens)
    found = energy(run, "--genai")["trajectory"]

    assert [(one["name"], one["usage_output_tokens"]) for one in found["steps"]] == [("chat", 7)]
    assert found["dropped_steps"] == [{"step_id": 1, "reason": "encloses_other_steps"}]


def test_parallel_calls_inside_a_tool_leave_it_the_rest(energy):
    """The time of calls that overlap is taken from what encloses them once; the later of them is dropped as ever."""
    run = serving()
    run.span(0, 5, "outer", name="search", **{"gen_ai.operation.name": "execute_tool"})
    run.span(1, 3, "one", "outer", **{"gen_ai.operation.name": "chat"})
    run.span(2, 4, "two", "outer", **{"gen_ai.operation.name": "chat"})
    found = energy(run, "--genai")["trajectory"]

    assert [(one["kind"], one["energy_mj"]) for one in found["steps"]] == [
        ("tool", 100_000),
        ("llm_call", 200_000),
        ("tool", 100_000),
    ]
    assert found["dropped_steps"] == [{"step_id": 3, "reason": "overlaps_preceding_step"}]


def test_user_spans_are_steps(energy):
    """User spans are chosen by their path."""
    run = serving()
    run.span(0, 1, "a", name="load", **{"stepmeter.span.path": "eval/load"})
    run.span(1, 3, "b", name="score", **{"stepmeter.span.path": "eval/score"})
    run.span(3, 4, "c", name="other", **{"stepmeter.span.path": "train"})
    found = energy(run, "--spans", "eval/*")["trajectory"]

    assert [(one["name"], one["energy_mj"]) for one in found["steps"]] == [
        ("eval/load", 100_000),
        ("eval/score", 200_000),
    ]
    assert found["span_energy_mj"] == 300_000


def test_no_trajectory_has_its_reason(energy, steps):
    """Without device samples the trajectory is null and the reason beside it."""
    run = EnergyRun()
    run.server("generation_tokens", 10, 5)

    found = energy(run, "--steps", steps)
    assert (found["trajectory"], found["withheld"]) == (None, "no_device_timeline")
    assert [one["generation_tokens_delta"] for one in found["steps"]] == [20, 10, 10]
    assert {one["energy_mj"] for one in found["steps"]} == {None}
    assert found["host_total_mj"] is None
    assert "RAPL" in found["host_reason"]


def test_text_without_devices_has_times_and_tokens(energy, steps):
    """Without a device the table has no column of energies, and the text says why."""
    run = EnergyRun()
    run.server("generation_tokens", 10, 5)
    text = energy(run, "--steps", steps, json_=False)

    assert text.startswith("No energy of devices: no device sent hw.power")
    assert text.splitlines()[2].split() == ["step", "kind", "time", "tokens"]
    assert "no energy of CPUs: no RAPL counter was read" in text


def test_our_own_samples_need_their_anchor(energy, steps):
    """Samples of ours without the anchor of their clock are not trusted."""
    run = EnergyRun()
    run.sender("resource-0", anchored=False)
    run.power(100, 5)

    assert energy(run, "--steps", steps)["withheld"] == "no_anchor"


def test_text_says_how_sure_it_is(energy, steps):
    """The text has a line a step, what is left over, and what kind of figure it is."""
    text = energy(serving(), "--steps", steps, json_=False)

    assert text.startswith("500 J in 5.00 s: calls 300 J, tools 100 J, unattributed 100 J (20.0 %)")
    assert "a measurement as long as one trajectory ran" in text
    assert text.isascii()


def test_a_wrong_step_file_is_one_line(tmp_path, capsys):
    """An error names the file and the line, and the exit code is 2."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nonsense")

    assert main(["energy", str(serving().write(tmp_path)), "--steps", str(bad)]) == 2
    assert f"{bad}:1: not JSON" in capsys.readouterr().err


def test_training_steps_have_their_energy(energy):
    """Each step has the counter's energy of its window; the rest is idle; phases share it by their time."""
    found = energy(training())["energy"]
    rank, device = found["ranks"][0], found["devices"][0]

    assert (rank["steps"], rank["median_mj"], rank["methods"]) == (10, 270_000.0, {"counter_exact": 10})
    assert rank["mj_per_sample"] == 270_000 / 32
    assert rank["tokens"] is None
    assert rank["phases_mj"] == {"forward": 900_000, "backward": 1_800_000, "other": 0}
    assert (device["total_mj"], device["steps_mj"], device["idle_mj"]) == (3_080_000, 2_700_000, 380_000)
    assert (device["idle_ns"], device["update_period_ns"]) == (2_000_000_000, 100_000_000)


def test_ranks_on_one_device_share_it(energy):
    """Two ranks in the same steps on one device have half its energy each, and say that it is shared."""
    run = training()
    for number in range(10):
        run.step(number + 1, number, number + 0.9, rank=1)
    found = energy(run)["energy"]

    assert [rank["total_mj"] for rank in found["ranks"]] == [1_350_000, 1_350_000]
    assert {rank["scope"] for rank in found["ranks"]} == {"gpu_shared"}
    assert found["devices"][0]["idle_mj"] == 380_000


def test_mig_instances_share_their_gpu(energy):
    """Steps on a MIG instance are measured by its GPU's energy, and say that it is shared."""
    run = training()
    run.point("stepmeter.energy.instance", 0, 1, "MIG-0", kind="gpu-0")
    run.steps = [{**step, "hw_id": "MIG-0"} for step in run.steps]
    rank = energy(run)["energy"]["ranks"][0]

    assert (rank["hw_id"], rank["scope"], rank["total_mj"]) == ("gpu-0", "gpu_shared", 2_700_000)


def test_training_without_a_device_says_so(energy):
    """On CPUs alone there is no energy per step, and the text says why."""
    run = EnergyRun()
    run.sender("resource-0")
    run.step(1, 0, 1, hw_id=None)

    text = energy(run, json_=False)
    assert text.startswith("No energy per step: no step ran on a GPU.\nNo energy of CPUs: no RAPL counter was read")


def test_steps_have_the_energy_of_cpus(energy):
    """A step has what packages and memory took in its window, beside the GPU's; the rest is in nobody's step."""
    found = energy(on_cpus(training()))["energy"]
    (rank,), host = found["host"]["ranks"], found["host"]

    assert found["mj_per_step"] == 270_000
    assert (host["mj_per_step"], rank["median_mj"], rank["scope"]) == (45_000, 45_000, "host")
    assert rank["methods"] == {"counter_exact": 10}
    assert [(one["kind"], one["total_mj"], one["steps_mj"], one["scope"]) for one in host["devices"]] == [
        ("cpu", 440_000, 360_000, "host"),
        ("memory", 110_000, 90_000, "host"),
    ]


def test_a_training_on_cpus_has_its_energy(energy):
    """Without a GPU the steps have the host's energy, which ranks on one host share, and text and JSON say so."""
    run = on_cpus(EnergyRun())
    for number in range(10):
        for rank in range(2):
            run.step(number + 1, number, number + 1, rank=rank, hw_id=None)
    found = energy(run)["energy"]

    assert (found["reason"], found["mj_per_step"]) == ("no step ran on a GPU", None)
    assert [one["total_mj"] for one in found["host"]["ranks"]] == [250_000, 250_000]
    assert "25 J a step of CPUs and memory" in energy(run, json_=False).replace("25.0 J", "25 J")


def test_calls_have_the_energy_of_cpus(energy, steps):
    """A trajectory's steps have what the host took, beside the devices' energy."""
    found = energy(on_cpus(serving()), "--steps", steps)["trajectory"]

    assert [one["host"]["value_mj"] for one in found["steps"]] == [100_000, 50_000, 50_000]
    assert found["host_total_mj"] == 550_000
    assert found["total_energy_mj"] == 500_000


def test_training_text_has_the_essentials(energy):
    """The text has J per step with its half width, idle energy and the basis."""
    text = energy(training(), json_=False)

    assert text.startswith("270 J a step; 12.3 % of the energy was in nobody's step")
    assert "counter_exact 10" in text


def test_processes_of_one_boot_share_a_clock(energy):
    """A rank whose wall clock was anchored 0.3 s late has its steps where the device's readings are."""
    run = training()
    late = run.sender("resource-1")
    run.resources[late]["clock_anchor_unix_ns"] += 300_000_000
    run.steps = [
        {**s, "resource_id": late, "start_ns": s["start_ns"] + 300_000_000, "end_ns": s["end_ns"] + 300_000_000}
        for s in run.steps
    ]

    assert energy(run)["energy"]["ranks"][0]["total_mj"] == 2_700_000


def test_a_module_says_that_its_cpu_is_counted_in(energy):
    """On a board whose counter is of GPU and CPU together the scope is the module, and the text says it."""
    run = training()
    run.sender("resource-0", **{"hw.name": "NVIDIA GH200 480GB"})
    run.resources["resource-0"]["hw_id"] = "gpu-0"

    assert energy(run)["energy"]["ranks"][0]["scope"] == "module"
    assert "gpu-0: its counter is of the whole module" in energy(run, json_=False)


def test_calls_without_a_training_have_a_hint(energy):
    """Where there are no training steps but an agent's calls, the text says how to price these."""
    run = serving()
    run.span(0, 2, "call", **{"gen_ai.operation.name": "chat"})

    assert energy(run, json_=False).endswith("--genai prices them.\n")


def test_apportion_needs_a_trajectory(tmp_path, capsys):
    """`--apportion` without steps is refused in one line."""
    assert main(["energy", str(serving().write(tmp_path)), "--apportion", "equal"]) == 2
    assert "--apportion is for trajectories" in capsys.readouterr().err


def test_a_training_process_follows_its_device(tmp_path):
    """Two ranks of a run on a host with one GPU: its ticks are in the store once, with power and their moments."""
    environ = {"LD_LIBRARY_PATH": library_directory(), "SIMNVML_GPUS": "H100:0x1a", "SIMNVML_POWER": "300:1"}
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2"]
    done = stepmeter("run", "--", *launcher, TINY, "--steps", 60, "--sleep", 0.05, cwd=tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "stepmeter-runs" / "tiny"

    counts = dict(
        query(run, "SELECT metric, count(DISTINCT rank) FROM metrics WHERE metric LIKE '%energy%' GROUP BY 1")
    )
    assert counts["hw.energy"] == counts["stepmeter.energy.tick_gap"] == 1
    samples = query(run, "SELECT count(energy_mj), count(t_lo_ns), min(t_hi_ns - t_lo_ns) > 0 FROM raw.gpu_samples")
    ticks = query(run, "SELECT count(*) FROM metrics WHERE metric = 'hw.energy'")[0][0]
    assert samples == [(ticks, ticks, True)]
    shown = query(run, "SELECT DISTINCT power_mw, power_kind, memory_used_bytes IS NOT NULL FROM gpu_power")
    assert (300_000, "instant", True) in shown
    assert {row[:2] for row in shown} == {(300_000, "instant")}
    found = query(run, "SELECT time_ns, value FROM metrics WHERE metric = 'hw.energy' ORDER BY 1")
    gaps = query(run, "SELECT max(value) FROM metrics WHERE metric = 'stepmeter.energy.tick_gap'")
    (first_ns, first_j), (last_ns, last_j) = found[0], found[-1]
    # each moment is known within its gap, which on a busy machine may be long
    assert abs(last_j - first_j - 300 * (last_ns - first_ns) / 1e9) <= 300 * gaps[0][0] + 0.002


GOLDEN = Path(__file__).parents[1] / "energy" / "golden"
AGENTS = json.loads((GOLDEN / "agent_spans.json").read_text())


@pytest.mark.parametrize("recorded", AGENTS, ids=[one["package"] for one in AGENTS])
def test_an_agents_spans_as_frameworks_really_send_them(energy, recorded):
    """An agent that asks, adds and searches, where the search asks again: calls, tools and pieces, each second once."""
    run = serving()
    times = [(0, 5), (0, 1), (1, 2), (2, 5), (3, 4)]
    for number, (span, window) in enumerate(zip(recorded["spans"], times, strict=True)):
        parent = None if span["parent"] is None else f"span-{span['parent']}"
        run.span(*window, f"span-{number}", parent, name=span["name"], **span["attributes"])
    found = energy(run, "--genai")["trajectory"]

    assert [(one["kind"], one["energy_mj"]) for one in found["steps"]] == [
        (kind, 100_000) for kind in ("llm_call", "tool", "tool", "llm_call", "tool")
    ]
    assert [one["piece"] for one in found["steps"]] == [None, None, [1, 2], None, [2, 2]]
    assert [one["usage_output_tokens"] for one in found["steps"]] == [7, None, None, 7, None]
    assert found["unattributed_energy_mj"] == 0


RECORDED = json.loads((GOLDEN / "genai_spans.json").read_text())


@pytest.mark.parametrize("span", RECORDED, ids=[span["package"] for span in RECORDED])
def test_spans_that_instrumentations_really_send_are_calls(energy, span):
    """One chat completion of 30 and 7 tokens, as each package recorded it, is a call with its tokens and model."""
    run = serving()
    run.span(0, 2, "call", name=span["name"], **span["attributes"])
    (step,) = energy(run, "--genai")["trajectory"]["steps"]

    assert (step["kind"], step["model"], step["energy_mj"]) == ("llm_call", "tiny", 200_000)
    assert (step["usage_input_tokens"], step["usage_output_tokens"]) == (30, 7)


def test_power_is_a_view(tmp_path):
    """Each power sample is a row of `gpu_power` with what else was read last; averages over a second are none."""
    run = EnergyRun()
    run.point("hw.power", 1, 300, kind="instant")
    run.point("hw.power", 1, 250, kind="average")
    run.point("hw.gpu.utilization", 0.5, 0.5)
    run.point("hw.gpu.utilization", 2, 0.75)
    run.point("hw.power", 9, 200, kind="instant")

    columns = "hw_id, time_ns, power_mw, utilization, temperature_celsius"
    found = query(run.write(tmp_path), f"SELECT {columns} FROM gpu_power")  # noqa: S608 - our own names
    assert sorted(found) == [("gpu-0", at(1), 300_000, 0.5, None), ("gpu-0", at(9), 200_000, None, None)]


def test_power_of_one_kind_is_shown(tmp_path):
    """Where a board tells the power of the moment, what NVML documents otherwise is not mixed with it."""
    run = EnergyRun()
    run.point("hw.power", 1, 300, kind="instant")
    run.point("hw.power", 2, 200)
    run.point("hw.power", 2, 150, hw_id="gpu-1")

    found = query(run.write(tmp_path), "SELECT hw_id, power_watts, power_kind FROM gpu_power ORDER BY 1")
    assert found == [("gpu-0", 300.0, "instant"), ("gpu-1", 150.0, None)]


def test_steps_and_their_energy_are_a_view(tmp_path):
    """Each step has the counter's rise over its window, and bounds from the ticks that are surely in and around it."""
    run = training()
    run.step(11, 10.85, 10.95)
    run.step(12, 10.95, 11.5)
    found = query(
        run.write(tmp_path), "SELECT energy_mj, lower_mj, upper_mj, round(power_watts) FROM step_energy ORDER BY step"
    )
    assert found[0] == (270_000, 269_999, 270_001, 300.0)
    assert found[1] == (270_000, 269_999, 270_001, 300.0)
    assert found[10] == (20_000, 0, 40_001, 200.0)
    assert found[11] == (None, None, None, None)


def test_a_reset_hides_the_energy_around_it(tmp_path):
    """Where the counter went backwards a step has no energy in the view; other steps have theirs."""
    run = EnergyRun()
    run.counter(lambda now: 300 * now if now < 3 else 300 * (now - 3), range(7), 0.0)
    for number in range(6):
        run.step(number + 1, number, number + 1)
    found = query(run.write(tmp_path), "SELECT energy_mj FROM step_energy ORDER BY step")
    assert found == [(300_000,), (None,), (None,), (300_000,), (300_000,), (None,)]
