"""Rows of several ranks and streams laid side by side, for rules that look at more than their own process.

`loss@rank1` is a rank's value, `loss@max` the greatest of all ranks at a step, `rows@data.rank0` and `rows@data.sum`
those of the stream `data`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stepmeter.alerts.rule import Rule, parse_rule
from stepmeter.conventions.rows import Row, number
from stepmeter.errors import UsageError

WAIT_S: Final = 30.0
"""How long the row of a step waits for the ranks that have not sent theirs."""

MAX_WAITING: Final = 4096

_NAME: Final = re.compile(
    r"(?P<metric>.+)@(?:(?P<stream>[A-Za-z0-9][A-Za-z0-9_-]*)\.)?(?P<of>rank(?P<rank>\d+)|max|min|mean|median|sum)\Z"
)
_OVER_RANKS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "max": max,
    "min": min,
    "mean": statistics.fmean,
    "median": statistics.median,
    "sum": sum,
}


class Wanted(NamedTuple):
    """What a name in a rule stands for.

    Attributes:
        name: As it is written.
        metric: The metric.
        stream: Its stream; None for the default one.
        of: `max`, `min`, `mean`, `median` or `sum` over ranks, or a rank.
    """

    name: str
    metric: str
    stream: str | None
    of: str | int


def wanted(name: str) -> Wanted | None:
    """Read a name that stands for another rank's or stream's values.

    Args:
        name: As it is written in a rule.

    Returns:
        What it stands for; None for a metric of the own process.
    """
    found = _NAME.match(name)
    if found is None:
        return None
    rank = found["rank"]
    return Wanted(name, found["metric"], found["stream"], found["of"] if rank is None else int(rank))


def looks_at_others(rule: Rule) -> bool:
    """Whether a rule needs the rows of other ranks or streams, which only the collector has.

    Args:
        rule: The rule.

    Returns:
        True when it names any of them.
    """
    return any(wanted(name) is not None for name in rule.metrics)


def checked_rule(given: Any) -> Rule:
    """Parse a rule that the collector is to evaluate.

    Args:
        given: As for `parse_rule`.

    Returns:
        The rule.

    Raises:
        UsageError: It is none, or looks at no other rank.
    """
    rule = parse_rule(given)
    if not looks_at_others(rule):
        raise UsageError(f"alert rule {rule.text!r} names no rank; expected names such as loss@rank1 or loss@max")
    return rule


@dataclass(slots=True)
class _Waiting:
    since_s: float
    time_ns: int = 0
    by_rank: dict[int, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class _Stream:
    attempt: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    done: int | None = None
    waiting: dict[int, _Waiting] = field(default_factory=dict)


class Together:
    """Gathers the rows of a step until all ranks have sent theirs.

    Args:
        names: The names that rules want.

    Attributes:
        world_size: How many ranks there are at least; more may turn out.
        late: Rows that came after their step had been looked at.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._wanted: dict[str | None, list[Wanted]] = {}
        self._streams: dict[str | None, _Stream] = {}
        self.world_size = 1
        self.late = 0
        self.want(names)

    def want(self, names: Iterable[str]) -> None:
        """Look at further names from now on.

        Args:
            names: The names.
        """
        for name in names:
            found = wanted(name)
            if found is not None and found not in (known := self._wanted.setdefault(found.stream, [])):
                known.append(found)

    def add(self, stream: str | None, rank: int, attempt: int, row: Row, now_s: float) -> None:
        """Take a rank's row.

        Args:
            stream: Its stream; None for the default one.
            rank: Whose it is.
            attempt: Which start of the run.
            row: The row.
            now_s: When it came, on any clock that `ready` is asked on.
        """
        if stream not in self._wanted:
            return
        of = self._streams.get(stream)
        if of is None or attempt > of.attempt:  # a restart may begin at an older step
            of = self._streams[stream] = _Stream(attempt)
        of.newest[rank] = max(row.step, of.newest.get(rank, row.step))
        if attempt < of.attempt or (of.done is not None and row.step <= of.done):
            self.late += 1
            return
        waiting = of.waiting.setdefault(row.step, _Waiting(now_s))
        waiting.by_rank[rank] = {**waiting.by_rank.get(rank, {}), **row.values}
        waiting.time_ns = max(waiting.time_ns, row.time_ns)

    def ready(self, now_s: float) -> Iterator[Row]:
        """The steps that are complete, or have waited for long enough, in order.

        Args:
            now_s: Now.

        Yields:
            Rows whose values are under the names that rules want; without those of ranks that did not log them.
        """
        for stream, of in self._streams.items():
            for step in sorted(of.waiting):
                waiting = of.waiting[step]
                complete = len(of.newest) >= self.world_size and all(step <= newest for newest in of.newest.values())
                if not complete and now_s - waiting.since_s < WAIT_S and len(of.waiting) <= MAX_WAITING:
                    break
                of.done = step
                del of.waiting[step]
                yield Row(step, waiting.time_ns, self._values(stream, waiting.by_rank))

    def _values(self, stream: str | None, by_rank: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for each in self._wanted[stream]:
            logged = {rank: row[each.metric] for rank, row in by_rank.items() if each.metric in row}
            if isinstance(each.of, int):
                if each.of in logged:
                    values[each.name] = logged[each.of]
                continue
            numbers = [float(value) for value in logged.values() if number(value) is not None]
            if numbers:
                values[each.name] = _OVER_RANKS[each.of](numbers)
        return values
