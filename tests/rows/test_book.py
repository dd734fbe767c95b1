import threading

import pytest
from tests.support.recorded import recorded_spans

from stepmeter import span, step
from stepmeter.capture import row as rows
from stepmeter.capture.aggregation import Weighted, combine


def committed(book):
    return [(row.step, dict(row.values)) for row in book.rows(include_open=False)]


@pytest.fixture
def book():
    with recorded_spans(span_count=True) as (_, made):
        yield made


def paths(values):
    return {key for key in values if key.startswith("count/")}


def test_a_log_commits_and_the_step_advances(book):
    """Each `log` without a step is a row of its own."""
    book.log({"loss": 1})
    book.log({"loss": 2})

    assert committed(book) == [(0, {"loss": 1}), (1, {"loss": 2})]


def test_a_row_of_a_named_step_stays_open(book):
    """`log(d, step=n)` collects until another step opens or `commit=True` says so."""
    book.log({"a": 1}, step=10)
    book.log({"b": 2}, step=10)
    book.log({"a": 3}, step=11)
    book.log({"c": 4}, step=11, commit=True)

    assert committed(book) == [(10, {"a": 1, "b": 2}), (11, {"a": 3, "c": 4})]


def test_a_span_never_commits_and_joins_the_next_row(book):
    """Spans cost no row; their time and number are in the row that commits next, and start anew after it."""
    for _ in range(3):
        with span("layer"):
            pass
    assert committed(book) == []
    book.log({"loss": 1})
    with span("layer"):
        pass
    book.log({})

    (_, first), (_, second) = committed(book)
    assert (first["count/layer"], second["count/layer"], first["loss"]) == (3, 1, 1)
    assert first["time_ms/layer"] > 0


def test_a_span_belongs_to_the_step_that_is_open_when_it_ends(book):
    """A span that ends after the commit belongs to the next step."""
    with span("outer"):
        with span("inner"):
            pass
        book.log({})
    book.log({})

    (_, first), (_, second) = committed(book)
    assert (paths(first), paths(second)) == ({"count/outer/inner"}, {"count/outer"})


def test_the_name_step_is_only_an_attribute(book):
    """`span(..., step=99)` does not choose the step."""
    with span("work", step=99):
        pass
    book.log({})

    assert [number for number, _ in committed(book)] == [0]


def test_a_step_opened_before_its_spans_has_them(book):
    """`log({}, step=100)`, spans, `log({})` is one row at 100."""
    book.log({}, step=100)
    with span("work"):
        pass
    book.log({})

    assert [(number, paths(values)) for number, values in committed(book)] == [(100, {"count/work"})]


def test_a_step_block_binds_its_spans_at_their_start(book):
    """Inside `with step(n)` each iteration's spans are in its own row, also with one that ends after the block."""
    late = []
    for number in (5, 6):
        with step(number):
            with span("work"):
                pass
            late.append(span("late").start())
            book.log({"loss": number}, step=number)
    for each in reversed(late):
        each.end()
    book.commit_open()

    found = committed(book)
    assert [(number, values["count/work"], values["loss"]) for number, values in found] == [(5, 1, 5), (6, 1, 6)]
    assert [values["count/late"] for _, values in found] == [1, 1]


def test_a_row_that_was_committed_is_added_to(book):
    """An evaluation logged at the step just committed adds to its row; nothing is overwritten and no step is lost."""
    for number in range(3):
        book.log({"loss": number})
        book.log({"eval": number}, step=number)

    assert committed(book) == [(number, {"loss": number, "eval": number}) for number in range(3)]


def test_a_restart_from_an_older_step_takes_its_own_spans():
    """The first step named after a resume may be an older one; what spans had collected is that step's."""
    with recorded_spans() as (recorder, _):
        book = rows.RowBook(500, recorder.anchor, recorder.encode, recorder.complain, span_count=True)
        recorder.rows = book
        for number in (50, 51):
            with span("work"):
                pass
            book.log({"loss": number}, step=number, commit=True)

        assert [(number, values["count/work"]) for number, values in committed(book)] == [(50, 1), (51, 1)]


@pytest.mark.parametrize("bad", [1.5, "3", None.__class__])
def test_a_step_that_is_no_whole_number_is_said_and_passed_over(bad):
    """A step of a wrong type raises nothing; the values are in the open row."""
    with recorded_spans() as (recorder, book):
        book.log({"a": 1}, step=bad, commit=True)

        assert committed(book) == [(0, {"a": 1})]
        assert len(recorder.said) == 1


def test_logging_over_a_duration_starts_it_anew(book):
    """A value logged under the name of a span's time replaces what had been added up; later spans add to it."""
    with span("work"):
        pass
    book.log({"time_ms/work": 1000.0}, step=0)
    book.log({})
    ((_, values),) = committed(book)

    assert values["time_ms/work"] == 1000


def test_distinct_paths_in_a_row_are_bounded(monkeypatch):
    """What comes beyond the limit is added up as `other`, is not lost, and is said once."""
    monkeypatch.setattr(rows, "MAX_PATHS", 10)
    with recorded_spans(span_count=True) as (recorder, book):
        for number in range(30):
            with span(f"request {number}"):
                pass
        book.log({})

        ((_, values),) = committed(book)
        assert values["count/other"] == 20
        assert len(paths(values)) == 11
        assert len(recorder.said) == 1


def test_without_span_metrics_a_row_keeps_nothing_of_spans():
    """With `span_metrics=False` spans reach the queue and no row."""
    with recorded_spans(span_metrics=False) as (recorder, book):
        for number in range(1000):
            with span(f"request {number}"):
                pass

        assert (book.open_paths, len(recorder.queue)) == (0, 1000)
        book.log({"loss": 1})
        assert committed(book) == [(0, {"loss": 1})]


def test_observers_hear_rows_in_order_and_may_log(book):
    """Rows are told in the order of their commits, by any thread; an observer that raises is passed over."""
    heard = []
    book.observers += [lambda row: heard.append(row.step), lambda _: 1 / 0]

    def work():
        for _ in range(50):
            book.log({"x": 1})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert heard == list(range(200))


@pytest.mark.parametrize(
    ("name", "measured", "result"),
    [
        ("cpu_time_ms", [(10, 1), (5, 1)], 15),
        ("gpu_mem_delta_mb", [(64, 1), (-32, 1)], 32),
        ("gpu_mem_peak_mb", [(512, 1), (256, 1)], 512),
        ("cpu_percent", [(25, 1000), (75, 3000)], 62.5),
        ("gpu_percent", [(60, 1000), (20, 3000)], 30),
        ("gpu_percent", [(60, 1000), (20, 0)], 60),
        ("gpu_percent", [(60, 0), (20, 0)], 20),
        ("tokens", [(3, 1), (4, 1)], 7),
        ("state", [("a", 1), ("b", 1)], "b"),
        ("tokens", [(1, 1), ("unavailable", 1), (3, 1)], 3),
    ],
)
def test_repeated_measurements_combine_as_their_names_say(name, measured, result):
    """Times, deltas and unknown keys are added, peaks are maxima, percentages are means by duration."""
    so_far = Weighted(None, 0.0)
    for value, duration_ms in measured:
        so_far = combine(name, so_far, value, duration_ms)

    assert so_far.value == result


def test_a_nan_peak_survives():
    """A peak that is not a number stays visible."""
    assert combine("gpu_mem_peak_mb", Weighted(3, 0), float("nan"), 1).value != 3
