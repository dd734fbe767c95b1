"""What a program's spans, rows and alerts wait in until the drain takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stepmeter.capture.channel import Channel
from stepmeter.capture.recording import SpanRecorder
from stepmeter.conventions.rows import Row

_ROWS_WAITING = 100_000


class FiredAlert(NamedTuple):
    """An alert on its way out.

    Attributes:
        time_ns: When it fired, Unix time in ns.
        step: Step of the row.
        level: debug, info, warning, error or critical.
        message: What it says.
        rule: The rule as it was written.
        name: Name of the rule.
    """

    time_ns: int
    step: int
    level: str
    message: str
    rule: str
    name: str


@dataclass(slots=True)
class Outbox:
    """The queues of one process, and how they are emptied.

    Attributes:
        spans: The recorder of spans.
        rows: Committed rows.
        alerts: Alerts that fired.
        rules: Rules for the collector, as JSON.
        common: Attributes of every span, row and alert: attempt, stream.
        lines: File of OTLP-JSON lines that takes everything; None = the OTLP exporters do.
        kept: File of OTLP-JSON lines that takes the rows which no backend took; None = they are lost and counted.
        on_rows: Told the step of the newest row once rows have been handed on; keeps the cursor.
        interval_s: How long a completed span waits at most; None = until a flush.
    """

    spans: SpanRecorder
    rows: Channel[Row] = field(default_factory=lambda: Channel(_ROWS_WAITING))
    alerts: Channel[FiredAlert] = field(default_factory=Channel)
    rules: Channel[str] = field(default_factory=Channel)
    common: dict[str, Any] = field(default_factory=dict)
    lines: Path | None = None
    kept: Path | None = None
    on_rows: Callable[[int], None] | None = None
    interval_s: float | None = 1.0

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not (self.spans.queue or len(self.rows) or len(self.alerts) or len(self.rules))
