import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.energy import S, ints, power_of

from stepmeter.analysis.energy.attribution import DeviceReadings
from stepmeter.analysis.energy.counter import CounterTimeline
from stepmeter.analysis.energy.counters import CounterSeries, phase_share, trusted
from stepmeter.analysis.energy.joining import join
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.steps import TrajectoryStep
from stepmeter.analysis.energy.trajectory import Sources, Withheld
from stepmeter.errors import UsageError

ANCHOR = 10**18
A10 = json.loads((Path(__file__).parent / "golden" / "a10.json").read_text())


def sec(t):
    return ANCHOR + round(t * S)


def series(per_second, seconds=5):
    return CounterSeries([sec(t) for t in range(seconds)], [per_second * t for t in range(seconds)])


def server(**changed):
    """A server that counts 100 generated and 50 prompt tokens a second, and hits for half of 20 queries."""
    found = {"generation_tokens": 100, "prompt_tokens": 50, "cache_hits": 10, "cache_queries": 20}
    times = {"prefill_time_ns": 1000, "decode_time_ns": 2000}
    return trusted({**{name: [series(rate)] for name, rate in (found | times).items()}, **changed})


def sources(counters=None, anchor=ANCHOR, watts=(100, 50), seconds=5):
    """Two devices of 150 W together, sampled once a second for four seconds: 600 J."""
    devices = []
    for number, watt in enumerate(watts):
        timeline = PowerTimeline(
            f"gpu-{number}", ints(*(sec(t) for t in range(seconds))), ints(*[watt * 1000] * seconds)
        )
        devices.append(DeviceReadings(timeline.hw_id, None, timeline))
    return Sources(tuple(devices), counters or server(), seconds * len(watts), anchor)


def step(number, kind, start, end, **more):
    return TrajectoryStep(number, kind, sec(start), sec(end), **more)


def test_steps_have_their_energy_and_tokens():
    """Calls and tools have the energy of their whole segments, tokens of their window, and the rest is left over."""
    found = join([step(1, "llm_call", 0, 1), step(2, "tool", 2, 3), step(3, "llm_call", 3, 4)], sources())
    first, second, third = found.steps

    assert (first.energy_mj, first.samples_in_window) == (150_000, 4)
    assert (first.generation_tokens_delta, first.prompt_tokens_delta) == (100, 50)
    assert (first.cache_hits_delta, first.cache_queries_delta, first.cache_hit_rate) == (10, 20, 0.5)
    assert first.tokens_per_joule == 100 / 150
    assert (second.energy_mj, second.tokens_per_joule) == (150_000, None)
    assert (third.generation_tokens_delta, third.prompt_tokens_delta) == (100, 50)
    assert (found.total_energy_mj, found.energy_of("llm_call"), found.energy_of("tool")) == (600_000, 300_000, 150_000)
    assert found.unattributed_energy_mj == 150_000
    assert (found.run_duration_ns, found.unattributed_duration_ns) == (4 * S, S)
    assert (found.total_generation_tokens, found.tokens_per_joule) == (400, 400 / 600)
    assert not found.dropped_steps
    assert found.is_measurement
    assert (found.anchor_source, first.start_elapsed_ns, first.end_elapsed_ns) == ("run", 0, S)


def test_contiguous_steps_on_the_grid_count_each_token_once():
    """Four steps that follow one another on the grid of readings have 100 tokens each: 400, and not 700."""
    found = join([step(n + 1, "llm_call", n, n + 1) for n in range(4)], sources())

    assert [one.generation_tokens_delta for one in found.steps] == [100] * 4
    assert [one.energy_mj for one in found.steps] == [150_000] * 4
    assert found.unattributed_energy_mj == 0


@pytest.mark.parametrize(
    ("start", "end", "energy_mj", "samples", "tokens", "hits"),
    [
        (0.5, 1.5, 0, 2, 100, 10),
        (0.9, 1.1, 0, 2, 100, 10),
        (1.5, 3.0, 150_000, 4, 200, 20),
        (1.1, 1.5, 0, 0, None, None),
        (1.0, 1.0, 0, 2, None, None),
    ],
)
def test_edges_between_samples(start, end, energy_mj, samples, tokens, hits):
    """Straddling segments are left over; tokens count from the last reading before, and are absent without one."""
    found = join([step(1, "llm_call", start, end)], sources())
    only = found.steps[0]

    assert (only.energy_mj, only.samples_in_window) == (energy_mj, samples)
    assert (only.generation_tokens_delta, only.cache_hits_delta) == (tokens, hits)
    assert found.unattributed_energy_mj == 600_000 - energy_mj


def test_the_estimate_does_not_lose_what_straddles():
    """Beside the strict figure stands an estimate that holds the true 225 J, with its bounds."""
    only = join([step(1, "llm_call", 1.5, 3.0)], sources()).steps[0].estimate

    assert (only.value_mj, only.method) == (225_000, "power_integral")
    assert only.lower_mj <= 225_000 <= only.upper_mj


def test_steps_outside_the_run_are_dropped():
    """A step that begins before the first sample or ends after the last is dropped by name, and never clipped."""
    found = join([step(1, "llm_call", -1, 1), step(2, "llm_call", 3, 5), step(3, "llm_call", 0, 1)], sources())

    assert [one.step.step_id for one in found.steps] == [3]
    assert [(one.step_id, one.reason) for one in found.dropped_steps] == [
        (1, "outside_run_window"),
        (2, "outside_run_window"),
    ]
    assert found.unattributed_energy_mj == 450_000


def test_overlapping_steps_are_dropped():
    """The later of two steps that overlap is dropped, and the figure is no measurement of one step's work."""
    found = join([step(1, "llm_call", 0, 2), step(2, "llm_call", 1, 3)], sources())

    assert [(one.step.step_id, one.energy_mj) for one in found.steps] == [(1, 300_000)]
    assert [(one.step_id, one.reason) for one in found.dropped_steps] == [(2, "overlaps_preceding_step")]
    assert not found.is_measurement


def test_overlaps_can_be_apportioned():
    """Shares of what overlaps still add up: 150 J alone, 150 J between two and 150 J alone are 225 J each."""
    found = join([step(1, "llm_call", 0, 2), step(2, "llm_call", 1, 3)], sources(), "equal")

    assert [one.energy_mj for one in found.steps] == [225_000, 225_000]
    assert (found.unattributed_energy_mj, found.apportioned_by, found.is_measurement) == (150_000, "equal", False)


def test_tokens_weigh_an_apportionment():
    """By tokens a call of 300 has three times the share of one of 100."""
    calls = [
        step(1, "llm_call", 0, 2, input_tokens=200, output_tokens=100),
        step(2, "llm_call", 0, 2, output_tokens=100),
    ]

    assert [one.energy_mj for one in join(calls, sources(), "tokens").steps] == [225_000, 75_000]


def test_an_apportionment_names_what_it_lacks():
    """Steps without tokens can't be weighed by them."""
    with pytest.raises(UsageError, match="step 1 has no tokens of its own"):
        join([step(1, "llm_call", 0, 2)], sources(), "tokens")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_apportioned_shares_add_up(edges):
    """However steps overlap, shares and what no step covers are the whole, but for flooring each to a millijoule."""
    steps = [step(n, "llm_call", min(pair) / 10, max(pair) / 10) for n, pair in enumerate(edges)]
    found = join(steps, sources(), "equal")
    covered = sum(any(s.start_unix_ns <= sec(t) and sec(t + 1) <= s.end_unix_ns for s in steps) for t in range(4))

    assert 0 <= covered * 150_000 - sum(one.energy_mj for one in found.steps) < len(steps)


def test_withheld_says_why():
    """Without steps, device samples or the run's own anchor there is no trajectory, and the reason is there."""
    one = [step(1, "llm_call", 0, 1)]
    no_anchor = Sources(sources().devices, server(), 10, None, lacks_anchor=True)

    assert join([], sources()) == Withheld("no_steps")
    assert join(one, Sources(())).reason == "no_device_timeline"
    assert join(one, Sources((), device_samples=1)).reason == "fewer_than_two_samples"
    assert join(one, no_anchor).reason == "no_anchor"


def test_a_withheld_trajectory_still_has_times_tokens_and_the_cpus_energy():
    """What is known without devices is told: when each step was, its tokens, and what the host's CPUs took."""
    at = ints(*(sec(t) for t in range(4)))
    counter = CounterTimeline("host/package-0", at, at, ints(0, 20_000, 60_000, 80_000))
    zone = DeviceReadings(counter.hw_id, counter, None, kind="cpu")
    tokens = CounterSeries([sec(t) for t in range(4)], [0, 10, 30, 30])
    steps = [step(2, "tool", 2, 3), step(1, "llm_call", 1, 2)]
    found = join(steps, Sources((), trusted({"generation_tokens": [tokens]}), zones=(zone,)))

    assert [(one.step.step_id, one.start_elapsed_ns, one.energy_mj) for one in found.steps] == [
        (1, 0, None),
        (2, S, None),
    ]
    assert [one.generation_tokens_delta for one in found.steps] == [20, 0]
    assert [one.host.value_mj for one in found.steps] == [40_000, 20_000]
    assert found.steps[0].host.scope == "host"
    assert found.host_total_mj == 80_000


def test_a_foreign_run_is_anchored_by_its_first_sample():
    """Points with absolute times need no anchor of ours; elapsed times count from the first device sample."""
    found = join([step(1, "llm_call", 1, 2)], sources(anchor=None))

    assert (found.anchor_source, found.steps[0].start_elapsed_ns) == ("first_device_sample", S)


def test_a_counter_that_regresses_withholds_itself_alone():
    """Energy does not depend on tokens: a counter that went backwards leaves out its own deltas and no other."""
    broken = CounterSeries([sec(t) for t in range(5)], [0, 100, 0, 100, 200])
    found = join([step(1, "llm_call", 0, 1)], sources(server(generation_tokens=[broken])))

    assert found.steps[0].energy_mj == 150_000
    assert found.steps[0].generation_tokens_delta is None
    assert found.steps[0].prompt_tokens_delta == 50
    assert found.counters.withheld == {"generation_tokens": "counter_regressed"}


def test_what_was_never_scraped_is_absent_and_what_stood_still_is_zero():
    """Absence and zero are told apart."""
    still = CounterSeries([sec(t) for t in range(5)], [7] * 5)
    one = [step(1, "llm_call", 0, 1)]
    never = join(one, sources(trusted({})))
    stood = join(one, sources(server(generation_tokens=[still], cache_queries=[still])))

    assert (never.steps[0].generation_tokens_delta, never.total_generation_tokens, never.tokens_per_joule) == (
        None,
    ) * 3
    assert (stood.steps[0].generation_tokens_delta, stood.steps[0].cache_hit_rate) == (0, None)
    assert stood.steps[0].tokens_per_joule is None


def test_models_are_added_up():
    """Two served models' counters are one server's."""
    found = join([step(1, "llm_call", 0, 2)], sources(server(generation_tokens=[series(100), series(1)])))

    assert found.steps[0].generation_tokens_delta == 202


def test_other_processes_are_no_measurement():
    """Another process on the device makes the strict figure no measurement of the step's work."""
    device = DeviceReadings("gpu", None, power_of(*((t, 100) for t in range(5))), other_processes=True)
    found = join([TrajectoryStep(1, "tool", 0, S)], Sources((device,), device_samples=5))

    assert not found.is_measurement
    assert found.steps[0].estimate.scope == "gpu_shared"


def test_the_recorded_trajectory_is_recomputed():
    """The counters' deltas of the recorded run on an A10, with the corrected baseline, and its windows."""
    times = [A10["anchor_unix_ns"] + at for at, _, _ in A10["phase_samples"]]
    counters = trusted(
        {
            "prompt_tokens": [CounterSeries(times, [prompt for _, prompt, _ in A10["phase_samples"]])],
            "generation_tokens": [CounterSeries(times, [generated for _, _, generated in A10["phase_samples"]])],
        }
    )
    first, last = times[0], times[-1]
    idle = PowerTimeline("a10", ints(first, last), ints(58_358, 58_358))
    steps = [
        TrajectoryStep(one["step_id"], one["kind"], one["t_start_unix_ns"], one["t_end_unix_ns"])
        for one in A10["steps"]
    ]
    device = DeviceReadings("a10", None, idle)
    found = join(steps, Sources((device,), counters, 2, A10["anchor_unix_ns"]))

    assert [[one.start_elapsed_ns, one.end_elapsed_ns] for one in found.steps] == A10["elapsed_ns"]
    assert [one.generation_tokens_delta for one in found.steps] == A10["generation_tokens"]
    assert [one.prompt_tokens_delta for one in found.steps] == A10["prompt_tokens"]
    assert found.total_generation_tokens == 168
    assert found.steps[0].cache_hits_delta is None


def test_the_recorded_totals_add_up():
    """With power that gives each recorded step its recorded energy, the recorded remainder and shares come out."""
    steps = [
        TrajectoryStep(one["step_id"], one["kind"], one["t_start_unix_ns"], one["t_end_unix_ns"])
        for one in A10["steps"]
    ]
    devices = [_of_energies(A10["anchor_unix_ns"], steps)]
    found = join(steps, Sources(tuple(devices), device_samples=3000, anchor_unix_ns=A10["anchor_unix_ns"]))

    assert [one.energy_mj for one in found.steps] == A10["recorded_energy_mj"]
    assert (found.energy_of("llm_call"), found.energy_of("tool")) == (716_644, 57_308)
    assert found.total_energy_mj == A10["recorded_total_mj"]
    assert found.unattributed_energy_mj == A10["recorded_unattributed_mj"]


def _of_energies(anchor_ns, steps):
    """A timeline whose segments carry the recorded energies."""
    edges = sorted({anchor_ns, *(t for s in steps for t in (s.start_unix_ns, s.end_unix_ns)), anchor_ns + 150 * S})
    times, powers = [], []
    wanted = dict(zip(((s.start_unix_ns, s.end_unix_ns) for s in steps), A10["recorded_energy_mj"], strict=True))
    rest = A10["recorded_unattributed_mj"]
    for a, b in itertools.pairwise(edges):
        energy_mj = wanted.get((a, b), 0 if b != edges[-1] else rest)
        # a mW more for so many ns that the energy comes out whole, and a µJ for its last ns
        level, more_ns = divmod(energy_mj * 10**9 + 10**7, b - a)
        times += [a, a + more_ns + 1, a + more_ns + 2, b - 1]
        powers += [level + 1, level + 1, level, level]
    timeline = PowerTimeline("a10", ints(*times, edges[-1]), ints(*powers, 0))
    return DeviceReadings("a10", None, timeline)


def test_the_recorded_phase_shares_are_recomputed():
    """Prefill and decode of the recorded run, by time and by tokens, to the millijoule."""
    whole = {
        "prefill_time_ns": A10["prefill_time_ns"],
        "decode_time_ns": A10["decode_time_ns"],
        "prompt_tokens": 12_586,
        "generation_tokens": 168,
    }
    counters = trusted({name: [CounterSeries([0, 1], [0, value])] for name, value in whole.items()})
    share = phase_share(counters, A10["run_energy_by_counter_mj"])

    assert (share.prefill_by_time_mj, share.decode_by_time_mj) == (A10["prefill_by_time_mj"], A10["decode_by_time_mj"])
    assert share.prefill_by_tokens_mj == A10["prefill_by_tokens_mj"]
    assert share.decode_by_tokens_mj == A10["decode_by_tokens_mj"]
    assert share.divergence == pytest.approx(A10["divergence"], abs=1e-10)


def test_tokens_alone_give_one_share():
    """A server that counts no times has the share by tokens, and none by time."""
    counters = trusted(
        {name: [CounterSeries([0, 1], [0, v])] for name, v in (("prompt_tokens", 196), ("generation_tokens", 38))}
    )
    share = phase_share(counters, 100_000)

    assert (share.prefill_by_tokens_mj, share.decode_by_tokens_mj) == (83_761, 16_239)
    assert (share.prefill_by_time_mj, share.divergence) == (None, None)
