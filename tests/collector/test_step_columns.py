"""Tests of steps that become rows many at a time: the same rows as one by one, whatever comes."""

from __future__ import annotations

import contextlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from tests.support.otlp import run_resource, span, step_span, traces
from tests.support.rows import MS

from stepmeter.collector import step_columns
from stepmeter.collector.decode import Rows, RunKey
from stepmeter.collector.decode_traces import decode_spans, reject_spans
from stepmeter.collector.step_layout import UnfitError, layout_of
from stepmeter.collector.wire import prefix_of, read_traces
from stepmeter.conventions.phases import PHASES
from stepmeter.store.arrow import to_arrow
from stepmeter.store.schema import SPANS, STEPS
from stepmeter.store.segments import create_run
from stepmeter.store.watermark import Watermark, read_watermarks

RUN = RunKey("run-1")
NAMES = ("stepmeter.samples", "stepmeter.tokens", *(f"stepmeter.phase.{p}.cpu_ns" for p in PHASES[:4]))
ANY_INT = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 300))


def decoded(request, fewest):
    """What a request becomes when so many steps are enough to be taken together."""
    rows = Rows()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(step_columns, "FEWEST", fewest)
        decode_spans(read_traces(request.SerializeToString()), RUN, rows)
    return rows


def contents(rows):
    steps = to_arrow(STEPS, rows.of(RUN, STEPS), rows.blocks_of(RUN, STEPS)).to_pylist()
    return sorted(steps, key=str), rows.of(RUN, SPANS)


def together(request):
    """The blocks of a request, after a look that it becomes the same rows as one by one."""
    rows = decoded(request, 1)
    assert contents(rows) == contents(decoded(request, 10**9))
    return rows.blocks_of(RUN, STEPS)


def test_steps_that_differ_in_numbers_become_one_block():
    """Hundreds of steps of one rank are decoded column by column, with every number its own."""
    facts = {n: {"stepmeter.samples": n, "stepmeter.phase.forward.cpu_ns": n * n * MS} for n in range(2, 202)}
    (block,) = together(traces(*(step_span(n, **found) for n, found in facts.items())))
    assert block.length == 200
    assert block.row(12)[STEPS.column_names.index("forward_cpu_ns")] == 196 * MS


def test_other_spans_between_steps_stay_spans():
    """Phases that came with the steps are rows of spans, the steps a block."""
    mixed = [found for n in range(2, 61) for found in (step_span(n), span("forward", number=n))]
    (block,) = together(traces(*mixed))
    assert block.length == 59


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"stepmeter.samples": "many"}, "a number is a text in one"),
        ({"stepmeter.samples": True}, "a number is a flag in one"),
        ({"stepmeter.samples": 1.5}, "a number is a fraction in one"),
        ({"extra": "x", "stepmeter.samples": 3}, "one has an attribute without a column"),
    ],
)
def test_a_step_that_does_not_fit_columns_is_read_for_itself(odd, why):
    """A step whose attributes are no columns is decoded alone, to the same row; the others stay together."""
    common = {"stepmeter.samples": 8, "stepmeter.strategy": "ddp"}
    steps = [step_span(n, **{**common, **(odd if n == 7 else {})}) for n in range(2, 21)]
    assert [block.length for block in together(traces(*steps))] == [18], why


@pytest.mark.parametrize(
    "odd",
    [{"stepmeter.tokens": 5}, {"stepmeter.attempt": 1}, {"stepmeter.rank": 5}, {"stepmeter.strategy": "fsdp"}],
)
def test_steps_with_other_attributes_are_a_block_of_their_own(odd):
    """A block's steps say the same things of themselves, are of one rank and attempt, and of one text each."""
    common = {"stepmeter.samples": 8, "stepmeter.strategy": "ddp"}
    steps = [step_span(n, **{**common, **(odd if n % 3 == 0 else {})}) for n in range(2, 32)]
    assert sorted(block.length for block in together(traces(*steps))) == [10, 20]


def test_numbers_of_any_length_are_one_block_in_the_order_in_which_they_came():
    """Numbers take more bytes as they grow; a reader sees nothing of that."""
    numbers = [7, 2**40, 300, -1, 5, 2**62, 301]
    steps = [step_span(n, **{"stepmeter.phase.forward.cpu_ns": found}) for n, found in enumerate(numbers, 2)]
    (block,) = together(traces(*steps))
    assert block.columns[STEPS.column_names.index("forward_cpu_ns")].tolist() == numbers
    assert block.columns[STEPS.column_names.index("step")].tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_two_values_of_one_attribute_and_none_are_left_to_the_way_of_single_rows():
    """The last of two values counts, and a step without a number stays a span, among many as alone."""
    twice = [step_span(n) for n in range(2, 21)]
    for step in twice:
        step.attributes.append(KeyValue(key="stepmeter.world_size", value=AnyValue(int_value=step.span_id[-1])))
    assert together(traces(*twice)) == []
    nameless = [step_span(n) for n in range(1, 20)]
    for step in nameless:
        del step.attributes[0]
        step.attributes.append(KeyValue())
    assert together(traces(*nameless)) == []


def test_more_layouts_than_are_looked_for_are_read_one_by_one():
    """However many kinds of steps a request has, each step becomes its row once."""
    facts = [{name: 1 for number, name in enumerate(NAMES) if kinds >> number & 1} for kinds in range(64)]
    steps = [step_span(n, **found) for n, found in enumerate(facts, 2)]
    assert sum(block.length for block in together(traces(*steps))) < len(steps)


def test_spans_that_can_not_be_held_are_rejected_among_many():
    """A bad id or time among many steps is counted, and keeps none of the others out."""
    steps = [step_span(n) for n in range(2, 21)]
    steps[3].span_id = b"short"
    steps[5].end_time_unix_nano = 2**63
    request = traces(*steps)
    assert reject_spans(request) == (2, "span with ids of 16 and 5 bytes, expected 16 and 8")
    assert [block.length for block in together(request)] == [17]


@given(st.lists(st.tuples(ANY_INT, ANY_INT, st.sampled_from([1, True, "x", 2.5])), min_size=1, max_size=8))
def test_whatever_the_values_both_ways_give_the_same(values):
    """Rows do not depend on whether steps are decoded together."""
    steps = [
        step_span(n, **{"stepmeter.samples": samples, "stepmeter.tokens": tokens, "stepmeter.microbatches": odd})
        for n, (samples, tokens, odd) in enumerate(values)
    ]
    together(traces(*steps, resource=run_resource(**{"stepmeter.world_size": 4})))


@given(st.lists(ANY_INT, min_size=1, max_size=20))
def test_integers_are_decoded_as_protobuf_encodes_them(numbers):
    """Each integer of 64 bits comes out as it went in, whatever the lengths beside it."""
    (block,) = together(traces(*(step_span(n, **{"stepmeter.tokens": tokens}) for n, tokens in enumerate(numbers, 2))))
    assert block.columns[STEPS.column_names.index("tokens")].tolist() == numbers


@given(st.lists(st.binary(max_size=11) | st.builds(lambda tail: b"\x18" + tail, st.binary(max_size=10)), max_size=4))
@example([b"\x18\x85\x80\x00", b"\x18\x05\x18\x06", b"\x18\x05\x0a\x01x", b"\x18\x00"])
def test_values_in_unusual_bytes_are_what_protobuf_reads(values):
    """A number longer than it need be, one of two, one beside a text: whatever the library reads, both ways have it."""
    found = []
    for fewest in (1, 10**9):
        message = read_traces(traces(step_span(2)).SerializeToString())
        spans = message.resource_spans[0].scope_spans[0].spans
        for value in values:
            pair = prefix_of("stepmeter.tokens") + bytes((len(value),)) + value
            with contextlib.suppress(DecodeError):  # such a request is refused before
                KeyValue.FromString(pair)
                spans.append(spans[0] + bytes((0x4A, len(pair))) + pair)
        rows = Rows()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(step_columns, "FEWEST", fewest)
            decode_spans(message, RUN, rows)
        found.append(contents(rows))
    assert found[0] == found[1]


@given(st.binary(max_size=80), st.booleans())
def test_bytes_that_are_no_step_have_no_layout(noise, behind):
    """Whatever the bytes, there is a layout or one error; a number that does not end has none."""
    step = step_span(1).SerializeToString()
    for body in (noise, step + noise if behind else noise + step):
        with contextlib.suppress(UnfitError):
            layout_of(body, b"stepmeter.step", {}, lambda pair: (pair[-1] if pair else 0, pair))


def test_the_watermark_counts_blocks_as_rows(tmp_path):
    """A block moves a rank's watermark to just where its rows would."""
    request = traces(*(step_span(n, rank=3, **{"stepmeter.strategy": "ddp"}) for n in range(5, 105)))
    marks = []
    for fewest in (1, 10**9):
        rows = decoded(request, fewest)
        run = create_run(tmp_path, str(fewest), None)
        Watermark(run, "host-0").advance(1, rows.of(RUN, STEPS), rows.blocks_of(RUN, STEPS))
        marks.append(read_watermarks(run))
    assert marks[0] == marks[1]
    assert (marks[0][0].recorded_steps, marks[0][0].first_step, marks[0][0].last_step) == (100, 5, 104)
