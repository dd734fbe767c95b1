"""The engine: evaluates rules on each row, and says what fires."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from stepmeter.alerts.evaluate import compile_condition
from stepmeter.alerts.memory import Memory
from stepmeter.alerts.message import fill
from stepmeter.alerts.rule import Rule
from stepmeter.conventions.rows import Row

TICK_S: Final = 5.0
"""How often rules that depend on time alone are looked at, in s."""


class Fired(NamedTuple):
    """An alert.

    Attributes:
        rule: The rule that fired.
        step: Step of the newest row.
        at_s: When, Unix time in s.
        level: Its level; info for a recovery.
        message: What it says.
        recovered: Whether it tells that the condition is over.
    """

    rule: Rule
    step: int
    at_s: float
    level: str
    message: str
    recovered: bool = False


class _State:
    """How far a rule has come."""

    __slots__ = ("evaluate", "fires", "firing", "held", "last_s", "metrics", "rule", "time_based")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.evaluate = compile_condition(rule.condition)
        self.time_based = rule.time_based  # once: it takes a walk through the condition
        self.metrics = frozenset(name for each in rule.metrics for name in (each, each.replace(".", "/")))
        self.held = self.fires = 0
        self.firing = False
        self.last_s: float | None = None

    def concerns(self, values: Mapping[str, Any]) -> bool:
        """Whether a row says something to this rule."""
        return self.time_based or not self.metrics or not self.metrics.isdisjoint(values)

    def advance(self, holds: bool | None, now_s: float) -> bool | None:
        """Take an evaluation: True to fire, False to tell a recovery, None for nothing. Unknown changes nothing."""
        if holds is None:
            return None
        if not holds:
            was, self.firing, self.held = self.firing, False, 0
            return False if was and self.rule.recovery else None
        self.held += 1
        if self.held < self.rule.for_steps:
            return None
        if self.firing and (self.rule.mode == "edge" or now_s - (self.last_s or 0) < self.rule.cooldown_s):
            return None
        if self.rule.mode == "level" and self.last_s is not None and now_s - self.last_s < self.rule.cooldown_s:
            return None
        if self.rule.max_fires is not None and self.fires >= self.rule.max_fires:
            return None
        self.firing, self.last_s, self.fires = True, now_s, self.fires + 1
        return True


class AlertEngine:
    """Evaluates rules over one stream of rows.

    Args:
        rules: The rules; of several with one name the last counts.
        start_s: When the run began, Unix time in s.
        emit: Told each alert; called on the thread that committed the row, and must not block.
        capacity: Rows that rules can look back on.
        names: Further names for messages, such as run and project.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        start_s: float,
        emit: Callable[[Fired], None],
        capacity: int = 4096,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self._states = [_State(rule) for rule in {rule.name: rule for rule in rules}.values()]
        self._memory = Memory(capacity, start_s)
        self._emit = emit
        self._names = dict(names or {})
        self._row: Mapping[str, Any] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def time_based(self) -> bool:
        """Whether a rule may become true without a row."""
        return any(state.time_based for state in self._states)

    def on_row(self, row: Row) -> None:
        """Take a committed row.

        Args:
            row: The row.
        """
        with self._lock:
            self._memory.add(row)
            self._row = row.values
            new = row.values if row.added is None else row.added
            self._evaluate(state for state in self._states if state.concerns(new))

    def remember(self, row: Row) -> None:
        """Take a row of before, on which nothing fires.

        Args:
            row: The row.
        """
        with self._lock:
            self._memory.add(row)

    def tick(self, now_s: float) -> None:
        """Look at the rules that depend on time.

        Args:
            now_s: Unix time in s.
        """
        with self._lock:
            self._memory.now_s = max(self._memory.now_s, now_s)
            self._evaluate(state for state in self._states if state.time_based)

    def watch(self, clock_s: Callable[[], float], interval_s: float = TICK_S) -> None:
        """Look at the rules that depend on time from a thread of its own, until `close`.

        Args:
            clock_s: Unix time in s.
            interval_s: How often, in s.
        """

        def run() -> None:
            while not self._stop.wait(interval_s):
                self.tick(clock_s())

        self._thread = threading.Thread(target=run, name="stepmeter-alerts", daemon=True)
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """End the thread.

        Args:
            limit_s: How long to wait at most, in s.
        """
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(limit_s)

    def unseen(self) -> list[str]:
        """Metrics that rules name and that never came, each with names that did and look like it.

        Returns:
            One line a metric.
        """
        seen = sorted(self._memory.names)
        missing = {each for state in self._states for each in state.rule.metrics if not self._memory.has(each)}
        lines = []
        for name in sorted(missing):
            near = difflib.get_close_matches(name, seen, n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            lines.append(f"alert rules name {name!r}, which was never logged{hint}")
        return lines

    def _evaluate(self, states: Iterable[_State]) -> None:
        memory = self._memory
        for state in states:
            decision = state.advance(state.evaluate(memory), memory.now_s)
            if decision is not None:
                self._tell(state.rule, recovered=not decision)

    def _tell(self, rule: Rule, *, recovered: bool) -> None:
        memory = self._memory
        message = fill(rule, memory, self._row, self._names)
        if recovered:
            message = f"[recovered] {message}"
        self._emit(Fired(rule, memory.step, memory.now_s, "info" if recovered else rule.level, message, recovered))
