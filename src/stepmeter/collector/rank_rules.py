"""Alert rules over several ranks and streams: the collector sees them all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.decode import Rows, RunKey
from stepmeter.collector.health import LOGGER, Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import LOGS as LOGS_SIGNAL
from stepmeter.collector.otlp import Encoding
from stepmeter.collector.signals import CONTENTS, read
from stepmeter.collector.verdicts import UnavailableError
from stepmeter.conventions import attributes as words
from stepmeter.conventions import logs
from stepmeter.conventions.rows import Row
from stepmeter.errors import UsageError
from stepmeter.store.durable import replacing
from stepmeter.store.schema import LOGS, RESOURCES, ROWS

if TYPE_CHECKING:
    from stepmeter.alerts.engine import AlertEngine, Fired
    from stepmeter.alerts.rule import Rule
    from stepmeter.alerts.together import Together
    from stepmeter.alerts.webhook import Webhook

RULES_FILE: Final = "rules.json"
"""The rules that programs handed over, beside the run's segments: a collector that starts again goes on with them."""

_DirectoryOf = Callable[[RunKey], Path | None]
_RULE_MARK: Final = logs.RULE_EVENT.encode()
_NAMES: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_RANK, _STREAM, _ATTEMPT = (ROWS.column_names.index(name) for name in ("rank", "stream", "attempt"))
_STEP, _TIME_NS, _VALUES = (ROWS.column_names.index(name) for name in ("step", "time_ns", "values"))
_EVENT, _BODY = (LOGS.column_names.index(name) for name in ("event_name", "body"))
_WORLD_SIZE = RESOURCES.column_names.index("world_size")


@dataclass(slots=True)
class _OfRun:
    engine: AlertEngine
    together: Together


class RankRules:
    """The rules of all runs of one collector; used by the thread that writes segments.

    Args:
        directory: Where runs live.
        given: Rules of the configuration, for every run: text or mappings.
        webhook: URL that takes their alerts, or None.
        health: Where trouble is counted.

    Raises:
        UsageError: A rule is wrong, or looks at no other rank.
    """

    def __init__(self, directory: Path, given: Sequence[Any], webhook: str | None, health: Health) -> None:
        self._health = health
        self._given = [_checked(each) for each in given]
        self._webhook: Webhook | None = None
        if webhook is not None:
            from stepmeter.alerts.webhook import Webhook

            self._webhook = Webhook(webhook, lambda _, line: health.warn("webhook_failures", line))
        self._rules: dict[RunKey, dict[str, Rule]] = {}
        self._runs: dict[RunKey, _OfRun] = {}
        self._fired: list[Record] = []
        self._last: tuple[int, list[Record]] = (-1, [])
        self._active = bool(given) or any(directory.glob(f"*/{RULES_FILE}"))

    def with_alerts(
        self,
        number: int,
        default_run: RunKey,
        requests: Sequence[Record],
        directory_of: _DirectoryOf,
        forward: Callable[[Record], None] | None,
    ) -> list[Record]:
        """The requests of one journal file and the alerts on them; whatever is wrong with rules keeps no row back.

        Args:
            number: The file's number.
            default_run: The run of telemetry that names none.
            requests: The requests.
            directory_of: Gives the directory of a run.
            forward: Takes each alert on to other backends; None for nobody.

        Returns:
            All of them.

        Raises:
            OSError: The rules of a run can't be written; it is to be tried again.
            UnavailableError: Likewise.
        """
        try:
            alerts = self.look_at(number, default_run, requests, directory_of)
        except (OSError, UnavailableError):
            raise
        except Exception as error:
            self._health.warn("rules_failed", f"alert rules failed on rows: {error!r}")
            alerts = []
        if forward is not None:
            for alert in alerts:
                forward(alert)
        return [*requests, *alerts]

    def look_at(
        self,
        number: int,
        default_run: RunKey,
        requests: Sequence[Record],
        directory_of: Callable[[RunKey], Path | None],
    ) -> list[Record]:
        """Take the requests of one journal file, and say which rules fired on their rows.

        Args:
            number: The file's number; asked again with the same it says the same.
            default_run: The run of telemetry that names none.
            requests: The requests.
            directory_of: Gives the directory of a run.

        Returns:
            The alerts as OTLP requests.
        """
        of_logs = [request for request in requests if request.signal is LOGS_SIGNAL]
        if number == self._last[0]:
            return self._last[1]
        self._active = self._active or any(_RULE_MARK in request.body for request in of_logs)
        if not self._active or not of_logs:
            return []
        rows = Rows()
        for request in of_logs:
            CONTENTS[LOGS_SIGNAL].decode(read(request), default_run, rows)
        self._look_at_rows(rows, directory_of)
        fired, self._fired = self._fired, []
        self._last = (number, fired)
        return fired

    def _look_at_rows(self, rows: Rows, directory_of: Callable[[RunKey], Path | None]) -> None:
        for run in dict.fromkeys(run for run, table in rows.tables if table in (ROWS, LOGS)):
            directory = directory_of(run)
            if directory is not None:
                self._learn(run, rows.of(run, LOGS), directory)
                if self._rules[run]:
                    self._follow(run, rows)

    def close(self, limit_s: float = 2.0) -> None:
        """Send what waits for the webhook.

        Args:
            limit_s: How long to wait at most, in s.
        """
        if self._webhook is not None:
            self._webhook.close(limit_s)

    def _learn(self, run: RunKey, records: Sequence[Sequence[Any]], directory: Path) -> None:
        file = directory / RULES_FILE
        known = self._rules.get(run)
        if known is None:
            known = self._rules[run] = {rule.name: rule for rule in self._given}
            for text in _read(file):
                self._adopt(known, text)
        handed = [record[_BODY] for record in records if record[_EVENT] == logs.RULE_EVENT and record[_BODY]]
        before = _read(file)
        news = [text for text in dict.fromkeys(handed) if self._adopt(known, text)]
        if news:
            with replacing(file) as beside:
                beside.write_text(json.dumps([*before, *news]), encoding="utf-8")
            self._runs.pop(run, None)  # begins anew with all of its rules

    def _adopt(self, known: dict[str, Rule], text: str) -> bool:
        """Whether a rule that a program handed over is a new one."""
        try:
            rule = _checked(json.loads(text))
        except (UsageError, ValueError) as error:
            self._health.warn("rules_refused", f"a rule that a program sent is refused: {error}")
            return False
        if rule.name in known:
            return False
        known[rule.name] = rule
        return True

    def _follow(self, run: RunKey, rows: Rows) -> None:
        of_run = self._runs.get(run)
        if of_run is None:
            of_run = self._runs[run] = self._begin(run)
        together, now_s = of_run.together, time.monotonic()
        sizes = [resource[_WORLD_SIZE] or 1 for resource in rows.of(run, RESOURCES)]
        together.world_size = max([together.world_size, *sizes])
        for row in rows.of(run, ROWS):
            if row[_STEP] is not None:
                values = {key: _NAMES.get(value, value) for key, value in _mapping(row[_VALUES]).items()}
                taken = Row(row[_STEP], row[_TIME_NS], values)
                together.add(row[_STREAM], row[_RANK] or 0, row[_ATTEMPT] or 0, taken, now_s)
        for combined in together.ready(now_s):
            of_run.engine.on_row(combined)
        of_run.engine.tick(time.time())

    def _begin(self, run: RunKey) -> _OfRun:
        from stepmeter.alerts.engine import AlertEngine
        from stepmeter.alerts.together import Together

        rules = [*self._rules[run].values()]
        names = {"run": run.run_name or run.run_id}
        engine = AlertEngine(rules, time.time(), lambda fired: self._tell(run, fired), names=names)
        return _OfRun(engine, Together(name for rule in rules for name in rule.metrics))

    def _tell(self, run: RunKey, fired: Fired) -> None:
        name = run.run_name or run.run_id
        LOGGER.warning("alert %s: %s (run %s, step %d)", fired.level, fired.message, name, fired.step)
        self._health.count("alerts_fired")
        rule = fired.rule
        if self._webhook is not None:
            described = {"level": fired.level, "message": fired.message, "rule": rule.text, "name": rule.name}
            self._webhook.put(
                {"run": name, "step": fired.step, "time": fired.at_s, "recovered": fired.recovered, **described}
            )
        self._fired.append(_record(run, fired))


def _checked(given: Any) -> Rule:
    from stepmeter.alerts.together import checked_rule  # when there is a rule: it loads the grammar's parser

    return checked_rule(given)


def _record(run: RunKey, fired: Fired) -> Record:
    from stepmeter.conventions import resource

    message = LOGS_SIGNAL.request()
    part: Any = message.resource_logs.add()  # type: ignore[attr-defined] # the class is known at run time only
    named = {resource.RUN_ID.key: run.run_id, resource.RUN_NAME.key: run.run_name}
    for key, value in named.items():
        if value is not None:
            part.resource.attributes.add(key=key).value.string_value = value
    record = part.scope_logs.add().log_records.add(
        event_name=logs.ALERT_EVENT,
        time_unix_nano=round(fired.at_s * 1e9),
        severity_number=logs.ALERT_SEVERITY[fired.level],
        severity_text=fired.level.upper(),
    )
    record.body.string_value = fired.message
    facts: Mapping[str, str] = {logs.ALERT_RULE.key: fired.rule.text, logs.ALERT_NAME.key: fired.rule.name}
    for key, value in facts.items():
        record.attributes.add(key=key).value.string_value = value
    record.attributes.add(key=words.STEP.key).value.int_value = fired.step
    return Record(LOGS_SIGNAL, Encoding.PROTOBUF, message.SerializeToString())


def _read(file: Path) -> list[str]:
    try:
        return [text for text in json.loads(file.read_text(encoding="utf-8")) if isinstance(text, str)]
    except (OSError, ValueError):
        return []


def _mapping(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}
