"""Makes the alert engine an observer of a run's rows, and sends what fires everywhere it belongs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from stepmeter.alerts.engine import AlertEngine, Fired
from stepmeter.alerts.rule import Rule
from stepmeter.alerts.together import looks_at_others
from stepmeter.alerts.webhook import Webhook
from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.outbox import FiredAlert
from stepmeter.conventions import logs
from stepmeter.units import NS_PER_S

if TYPE_CHECKING:
    from stepmeter.runtime.open_run import Run

_CAPACITY: Final = 4096


class Alerts:
    """A run's engine and its webhook.

    Args:
        run: The run.
        rules: Its rules.
        webhook: URL that takes alerts, or None.
    """

    def __init__(self, run: Run, rules: Sequence[Rule], webhook: str | None) -> None:
        self._run = run
        recorder = run.session.outbox.spans
        self._say = recorder.warn
        self._complain = recorder.complain
        self._webhook = None if webhook is None else Webhook(webhook, recorder.complain)
        anchor = recorder.anchor

        def clock_s() -> float:
            return anchor.unix_ns_of(monotonic_ns()) / NS_PER_S

        names = {"run": run.name, "project": run.project or ""}
        self.engine = AlertEngine(rules, clock_s(), self._send, _CAPACITY, names)
        run.book.observers.append(self.engine.on_row)
        if self.engine.time_based:
            self.engine.watch(clock_s)

    def close(self, limit_s: float) -> None:
        """Say which metrics never came, send what waits, and end the threads.

        Args:
            limit_s: How long to wait at most, in s.
        """
        self.engine.close(limit_s)
        for line in self.engine.unseen():
            self._complain(line, line)
        if self._webhook is not None:
            self._webhook.close(limit_s)

    def _send(self, fired: Fired) -> None:
        rule = fired.rule
        time_ns = round(fired.at_s * NS_PER_S)
        run = self._run
        run.session.outbox.alerts.put(FiredAlert(time_ns, fired.step, fired.level, fired.message, rule.text, rule.name))
        if self._say is not None:
            self._say(f"alert {fired.level}: {fired.message}")
        described: dict[str, Any] = {"level": fired.level, "message": fired.message, logs.ALERT_RULE.key: rule.text}
        trace.get_current_span().add_event(logs.ALERT_EVENT, described)
        if self._webhook is not None:
            alert = {
                "run": run.name,
                "project": run.project,
                "stream": run.stream,
                "attempt": run.attempt,
                "step": fired.step,
                "time": fired.at_s,
                "level": fired.level,
                "message": fired.message,
                "rule": rule.text,
                "name": rule.name,
                "recovered": fired.recovered,
            }
            self._webhook.put(alert)


def attach_alerts(run: Run, rules: Sequence[Rule], webhook: str | None) -> Alerts:
    """Give a run its rules; those that look at other ranks or streams are handed to the collector.

    Args:
        run: The run.
        rules: Its rules.
        webhook: URL that takes alerts, or None.

    Returns:
        What watches its own rows from now on.

    Raises:
        UsageError: The URL is none.
    """
    outbox = run.session.outbox
    for_collector = [rule for rule in rules if looks_at_others(rule)]
    for rule in for_collector:
        outbox.rules.put(json.dumps(rule.as_mapping()))
        if outbox.lines is not None:
            outbox.spans.complain(rule.name, f"rule {rule.text!r} looks at other ranks, which takes a collector")
    return Alerts(run, [rule for rule in rules if rule not in for_collector], webhook)
