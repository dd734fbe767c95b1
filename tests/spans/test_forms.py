import asyncio
import inspect
import threading
import time

import pytest
from tests.support.recorded import by_path

from stepmeter import current_span, span, start_span


def test_nested_spans_join_their_names(recorder):
    """A span inside another has the path of both, and is deeper by one."""
    with span("forward"), span("attention") as inner:
        pass

    assert (inner.path, inner.depth) == ("forward/attention", 1)
    assert [each.path for each in recorder.queue] == ["forward/attention", "forward"]


@pytest.mark.parametrize(("given", "name"), [("/a/", "a"), ("a/b", "a/b"), ("", "span"), ("//", "span"), (7, "7")])
def test_names_lose_their_outer_slashes(recorder, given, name):
    """Slashes around a name are taken off, one inside stays, and an empty name is `span`."""
    with span(given):
        pass

    assert [each.path for each in recorder.queue] == [name]


def test_a_decorated_function_is_a_span_for_each_call(recorder):
    """The decorator times each call on its own and keeps the function's name and result."""

    @span("square")
    def square(x):
        return x * x

    assert [square(2), square(3)] == [4, 9]
    assert square.__name__ == "square"
    assert len(recorder.queue) == 2


def test_a_recursive_function_nests(recorder):
    """A decorated function that calls itself gives nested spans and leaves none open."""

    @span("fib")
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    fib(2)

    assert [each.depth for each in recorder.queue] == [1, 1, 0]
    assert current_span() is None


def test_a_coroutine_is_timed_to_its_end(recorder):
    """A decorated coroutine's span lasts as long as the coroutine, and `async with` works the same."""

    @span("fetch")
    async def fetch():
        async with span("wait"):
            await asyncio.sleep(0.01)

    asyncio.run(fetch())

    spans = by_path(recorder)
    assert spans["fetch"].duration_ms >= spans["fetch/wait"].duration_ms >= 9


def test_a_generators_whole_iteration_is_timed(recorder):
    """A generator's span lasts from the first item asked for to the last, with its result and what is sent kept."""

    @span("read")
    def read():
        got = yield 1
        time.sleep(0.01)
        with span("parse"):
            time.sleep(0.01)
        return got

    def consume():
        return (yield from generator)

    generator = read()
    driver = consume()
    assert next(driver) == 1
    with pytest.raises(StopIteration) as stopped:
        driver.send("sent")

    assert stopped.value.value == "sent"
    assert inspect.isgeneratorfunction(read)
    spans = by_path(recorder)
    assert spans["read"].duration_ms >= 19
    assert "read/parse" in spans


def test_what_consumes_a_generator_is_not_inside_its_span(recorder):
    """Between items the generator's span is not current, so that the consumer's spans are not its children."""

    @span("read")
    def read():
        yield 1
        with span("inside"):
            yield 2

    for _ in read():
        with span("use"):
            pass

    assert [each.path for each in recorder.queue] == ["use", "use", "read/inside", "read"]


def test_a_generator_that_is_closed_or_fails_ends_its_span(recorder):
    """Closing a generator ends its span without an error; an exception inside ends it with one, and passes."""

    @span("read")
    def read():
        yield 1
        raise ValueError("bad row")

    closed = read()
    next(closed)
    closed.close()
    with pytest.raises(ValueError, match="bad row"):
        list(read())

    assert [each.error for each in recorder.queue] == [None, "ValueError"]


def test_an_async_generators_whole_iteration_is_timed(recorder):
    """An async generator is one span, over all of its items."""

    @span("stream")
    async def stream():
        for item in range(3):
            await asyncio.sleep(0.005)
            yield item

    async def consume():
        return [item async for item in stream()]

    assert asyncio.run(consume()) == [0, 1, 2]
    (only,) = recorder.queue
    assert only.duration_ms >= 14


def test_a_span_object_may_be_entered_again(recorder):
    """One object entered inside itself and again afterwards gives three spans, rightly nested, and leaves none open."""
    again = span("x")
    with again, again as inner:
        assert current_span() is inner
    with again:
        pass

    assert [each.path for each in recorder.queue] == ["x/x", "x", "x"]
    assert current_span() is None


def test_a_span_started_by_hand_ends_once(recorder):
    """`start_span` is current until `end`, and a second `end` returns the same duration and records nothing."""
    epoch = start_span("epoch")
    with span("step"):
        pass
    first = epoch.end()

    assert epoch.end() == first > 0
    assert [each.path for each in recorder.queue] == ["epoch/step", "epoch"]


def test_ending_on_another_thread_leaves_no_stale_parent(recorder):
    """A span that another thread ended is nobody's parent any more where it was started."""
    job = start_span("job")
    worker = threading.Thread(target=job.end)
    worker.start()
    worker.join()
    with span("next") as following:
        pass

    assert following.path == "next"
    assert current_span() is None


def test_ends_out_of_order_keep_the_others(recorder):
    """When the outer span ends first, the inner one keeps its path and what follows is at the top."""
    outer = start_span("outer")
    inner = start_span("inner")
    outer.end()
    with span("inside"):
        pass
    inner.end()
    with span("after"):
        pass

    assert [each.path for each in recorder.queue] == ["outer", "outer/inner/inside", "outer/inner", "after"]


def test_spans_that_others_end_leave_nothing_behind(recorder):
    """A thousand spans started here and ended elsewhere hold on to nothing of one another."""
    for _ in range(1000):
        thread = threading.Thread(target=start_span("job").end)
        thread.start()
        thread.join()
    last = start_span("last")

    assert last.path == "last"
    assert last.parent is None
    assert last.outside.get("nothing") is None
    assert not [value for value in last.outside.values() if getattr(value, "name", "") == "job"]
    last.end()


def test_threads_and_tasks_do_not_nest_in_one_another(recorder):
    """A thread starts at the top, and concurrent tasks are siblings."""

    async def work(name):
        async with span(name):
            await asyncio.sleep(0.001)

    async def gather():
        await asyncio.gather(work("a"), work("b"))

    def in_thread():
        with span("thread"):
            pass

    with span("main"):
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    asyncio.run(gather())

    assert {each.path for each in recorder.queue} == {"main", "thread", "a", "b"}


def test_a_task_inherits_where_it_was_made(recorder):
    """A task made inside a span nests in it."""

    async def main():
        async with span("serve"):
            await asyncio.create_task(child())

    async def child():
        async with span("handle"):
            pass

    asyncio.run(main())

    assert "serve/handle" in by_path(recorder)


def test_an_exception_is_recorded_and_passes(recorder):
    """A span records what ended it, with message and stack, and lets it through; so for interrupts and exits."""
    with pytest.raises(ZeroDivisionError), span("risky"):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), span("stopped"):
        raise KeyboardInterrupt

    risky, stopped = recorder.queue
    ((name, _, described),) = risky.events
    assert (risky.error, stopped.error, name) == ("ZeroDivisionError", "KeyboardInterrupt", "exception")
    assert described["exception.message"] == "division by zero"
    assert "test_an_exception_is_recorded" in described["exception.stacktrace"]


def test_eight_threads_lose_nothing(recorder, book):
    """Eight threads of 200 spans each give 1,600 records and the same count in the row."""

    def work():
        for _ in range(200):
            with span("work"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(recorder.queue) == 1600
    (row,) = book.rows()
    assert row.values["count/work"] == 1600
