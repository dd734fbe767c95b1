import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import stepmeter
from stepmeter.alerts.engine import AlertEngine
from stepmeter.alerts.rule import parse_rule
from stepmeter.alerts.webhook import Webhook
from stepmeter.conventions.rows import Row
from stepmeter.errors import UsageError


def fired(rule, values, *, every_s=1):
    """The steps at which a rule fires over values of `x`, and what it says."""
    found = []
    engine = AlertEngine([parse_rule(rule)], 0.0, found.append)
    for step, value in enumerate(values):
        engine.on_row(Row(step, step * every_s * 10**9, {} if value is None else {"x": value}))
    return found


def steps(found):
    return [alert.step for alert in found]


def test_edge_fires_once_until_it_is_over():
    """In mode edge a rule fires where it becomes true, and again only after it was false."""
    assert steps(fired("x > 1", [0, 2, 2, 0, 2])) == [1, 4]


def test_level_fires_each_time_within_its_cooldown():
    """In mode level it fires while it holds, and not within the cooldown."""
    rule = {"rule": "x > 1", "mode": "level", "cooldown_s": 2}

    assert steps(fired(rule, [2] * 6)) == [0, 2, 4]


def test_it_must_hold_for_so_many_steps():
    """With `for_steps` 3 the third evaluation in a row fires; one that is false starts anew."""
    assert steps(fired({"rule": "x > 1", "for_steps": 3}, [2, 2, 0, 2, 2, 2, 2])) == [5]


def test_firings_are_limited():
    """With `max_fires` 2 a rule that flaps says so twice."""
    assert steps(fired({"rule": "x > 1", "max_fires": 2}, [2, 0] * 5)) == [0, 2]


def test_a_recovery_is_told_when_asked_for():
    """With `recovery` the end of a firing is an alert at level info."""
    found = fired({"rule": "x > 1", "recovery": True, "level": "error"}, [2, 2, 0, 0])

    assert [(alert.step, alert.level, alert.recovered) for alert in found] == [(0, "error", False), (2, "info", True)]


def test_unknown_changes_nothing():
    """A NaN in between neither ends a firing nor starts one."""
    assert steps(fired({"rule": "x > 1", "recovery": True}, [2, float("nan"), 2])) == [0]


def test_rows_without_its_metrics_are_passed_over():
    """A row that says nothing about a rule's metrics is no evaluation."""
    assert steps(fired({"rule": "x > 1", "for_steps": 2}, [2, None, None, 2])) == [3]


def test_a_window_that_is_not_full_never_fires():
    """`mean(x[100]) > 1` says nothing on the first point."""
    assert steps(fired("mean(x[3]) > 1", [5, 5, 5, 5])) == [2]


def test_rules_of_time_are_looked_at_without_rows():
    """`no_data` and `age` become true by the clock alone."""
    found = []
    engine = AlertEngine([parse_rule("no_data(5m)"), parse_rule("age(x) > 200")], 0.0, found.append)
    engine.on_row(Row(0, 0, {"x": 1}))
    engine.tick(250.0)
    engine.tick(310.0)

    assert [alert.rule.text for alert in found] == ["age(x) > 200", "no_data(5m)"]


def test_the_watch_ends_with_the_engine():
    """The thread that looks at the clock fires and ends at `close`."""
    found = threading.Event()
    engine = AlertEngine([parse_rule("elapsed() > 1")], 0.0, lambda _: found.set())
    engine.watch(lambda: 100.0, interval_s=0.01)
    assert found.wait(10)
    engine.close(5)

    assert not any(thread.name == "stepmeter-alerts" for thread in threading.enumerate())


def test_messages_are_filled_in():
    """Names of metrics, formats, the expression with its values and the step are filled in; the rest stays."""
    (found,) = fired("x > mean(x[2]) + 0.5 => error: x is {x:.2f} at {step} ({expr}) {unknown}", [1, 3])

    assert found.message == "x is 3.00 at 1 (x=3 > mean(x[2])=2 + 0.5) {unknown}"


def test_names_that_never_came_are_hinted_at():
    """A metric that was never logged is named at the end, with those that look like it."""
    engine = AlertEngine([parse_rule("time_ms/foward > 1")], 0.0, lambda _: None)
    engine.on_row(Row(0, 0, {"time_ms/forward": 1, "loss": 2}))

    (line,) = engine.unseen()
    assert "did you mean time_ms/forward?" in line


class Receiver:
    """A real HTTP server that answers as it is told."""

    def __init__(self, *statuses):
        self.statuses, self.taken = list(statuses), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = outer.statuses.pop(0) if outer.statuses else 200
                outer.taken.append((status, body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?token=secret"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def test_a_webhook_is_retried_and_given_up(receiver):
    """A 503 is tried again, a 404 is not; what was not taken is counted and said once, without the URL's secrets."""
    said = []
    receiver.statuses = [503, 503, 200, 404]
    hook = Webhook(receiver.url, lambda _, line: said.append(line), backoff_s=0.01)
    hook.put({"message": "first"})
    deadline = time.monotonic() + 10
    while len(receiver.taken) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    hook.put({"message": "second"})
    hook.close(10)

    assert [(status, body["message"]) for status, body in receiver.taken] == [
        (503, "first"),
        (503, "first"),
        (200, "first"),
        (404, "second"),
    ]
    assert hook.dropped == 1
    assert said
    assert "secret" not in said[0]


def test_a_webhook_needs_a_url():
    """Anything but http and https is refused at once, without showing it."""
    with pytest.raises(UsageError, match="expected an http or https URL"):
        Webhook("file:///etc/passwd", lambda *_: None)


def test_a_run_says_its_alerts_everywhere(receiver, tmp_path, capfd, monkeypatch):
    """An alert of a run is a line on stderr, a log record, an event on the current span, and a POST."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "STEPMETER_RUN_ID", "STEPMETER_RUN_NAME"):
        monkeypatch.delenv(name, raising=False)
    stepmeter.init("demo", "r", alert_rules=["loss > 2 => error: loss is {loss}"], alert_webhook=receiver.url)
    with stepmeter.span("epoch") as epoch:
        for loss in (1, 3):
            stepmeter.log({"loss": loss})
    stepmeter.finish()

    assert "stepmeter: alert error: loss is 3" in capfd.readouterr().err
    assert [event[0] for event in epoch.events] == ["stepmeter.alert"]
    assert [(body["step"], body["message"], body["run"]) for _, body in receiver.taken] == [(1, "loss is 3", "r")]
    text = (tmp_path / "r" / "otlp" / "default.rank0.jsonl").read_text()
    assert '"eventName":"stepmeter.alert"' in text
    assert '"severityText":"ERROR"' in text


def test_a_wrong_rule_is_an_error_at_init(tmp_path, monkeypatch):
    """`init` with a wrong rule or webhook opens nothing."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="column 11"):
        stepmeter.init(name="r", alert_rules=["mean(loss[) > 1"])
    with pytest.raises(UsageError, match="webhook"):
        stepmeter.init(name="r", alert_rules=["loss > 1"], alert_webhook="file:///etc/passwd")
    assert not (tmp_path / "r").exists()

    assert stepmeter.get_run() is None
    assert list(tmp_path.iterdir()) == []
