import threading

import stepmeter


def test_the_whole_run_prints_and_measures():
    """`span_print_fn` and `span_plugins` hold for every span that brings none of its own, on every thread."""
    lines = []
    stepmeter.init(name="r", span_print_fn=lines.append, span_plugins=[lambda _: {"n": 1}])

    def work():
        with stepmeter.span("a"), stepmeter.span("b", plugins=None, print_fn=None):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    (row,) = stepmeter.history()

    assert row["n/a"] == 2
    assert "n/a/b" not in row
    assert not any(name.startswith("count/") for name in row)  # which only span_count asks for
    assert [line.split()[:2] for line in lines] == [["->", "a"], ["<-", "a"]] * 2


def test_alerts_look_at_durations_like_at_any_metric(capfd):
    """The rules that one would write for a slow part fire on the row of the step in which it was slow."""
    stepmeter.init(
        name="r",
        alert_rules=[
            "mean(time_ms/load[3]) > 100 => warning: data loading is slowing down",
            "time_ms/forward > 3 * mean(time_ms/forward[3]) => error: never, since it is part of the mean",
            "time_ms/forward > 3 * median(time_ms/forward[3]) => error: slow step {step}",
        ],
    )
    for number in range(5):
        for name, slow_ns in (("load", 0), ("forward", 10**12 if number == 3 else 10**9)):
            with stepmeter.span(name) as part:
                part.start_ns -= slow_ns  # as if it had lasted so long
        stepmeter.log({})

    said = capfd.readouterr().err
    assert "slow step 3" in said
    assert said.count("alert") == 1


def test_a_run_may_keep_fewer_bytes_than_it_makes(capfd):
    """`max_pending_bytes` of a run bounds what waits; what does not fit is counted, and its time is in the row."""
    stepmeter.init(name="r", max_pending_bytes=4096, max_buffer_seconds=None, span_count=True)
    for _ in range(100):
        with stepmeter.span("work", text="x" * 1000):
            pass
    assert stepmeter.history()[0]["count/work"] == 100
    stepmeter.finish()

    assert "dropped (span: queue full)" in capfd.readouterr().err
