"""How far each rank has come, kept by each collector where readers find it, so that they need not read all steps.

<run>/watermark/<collector>.json is replaced after each segment of steps. It says up to which segment it counts, so
that a replay is not counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from stepmeter.store.durable import replacing
from stepmeter.store.model import Same
from stepmeter.store.schema import STEPS

if TYPE_CHECKING:
    from pathlib import Path

    from stepmeter.store.model import Block

WATERMARKS: Final = "watermark"


@dataclass(frozen=True, slots=True)
class RankWatermark:
    """How far one rank of one attempt has come.

    Attributes:
        attempt: Which start of the run.
        rank: Global rank.
        recorded_steps: Steps in the store; one that came twice may count twice.
        first_step: Least step number.
        last_step: Greatest step number.
        first_start_ns: Start of the earliest step, Unix time in ns.
        last_end_ns: End of the latest step, Unix time in ns.
        strategy: Strategy that the latest step knew, or None.
        world_size: Number of ranks that the latest step knew, or None.
        local_rank: Rank within its node, or None.
        node_rank: Rank of the node, or None.
        host: Name of the host, or None.
        hw_id: UUID of the rank's GPU, or None.
    """

    attempt: int
    rank: int
    recorded_steps: int
    first_step: int
    last_step: int
    first_start_ns: int
    last_end_ns: int
    strategy: str | None = None
    world_size: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    host: str | None = None
    hw_id: str | None = None


_FIELDS: Final = tuple(field.name for field in fields(RankWatermark))
_FACTS: Final = _FIELDS[_FIELDS.index("strategy") :]
_INDEX: Final = {
    name: STEPS.column_names.index(name) for name in ("attempt", "rank", "step", "start_ns", "end_ns", *_FACTS)
}

QUERY: Final = f"""
SELECT attempt, rank, count(*), min(step), max(step), min(start_ns), max(end_ns),
    {", ".join(f"arg_max({name}, step)" for name in _FACTS)}
FROM steps GROUP BY attempt, rank ORDER BY attempt, rank
"""
"""The same out of the rows themselves, for runs without watermarks; reads the whole run."""


class Watermark:
    """One collector's watermark of one run; used by one thread.

    Args:
        run: The run directory.
        collector: The collector's id.
    """

    def __init__(self, run: Path, collector: str) -> None:
        self._file = run / WATERMARKS / f"{collector}.json"
        found = _read(self._file)
        self._number: int = found["number"] if found else 0
        self._ranks = {(r.attempt, r.rank): r for r in found["ranks"]} if found else {}

    def advance(self, number: int, rows: Sequence[tuple[Any, ...]], blocks: Sequence[Block] = ()) -> None:
        """Count the steps of a segment, unless they are counted already.

        Args:
            number: The segment's number.
            rows: Rows of `steps`.
            blocks: More of them, column by column, each of one rank and attempt.

        Raises:
            OSError: It can't be written.
        """
        if number <= self._number:
            return
        by_rank = (_of_rows(*key, group) for key, group in _by_rank(rows).items())
        for now in (*by_rank, *map(_of_block, blocks)):
            key = (now.attempt, now.rank)
            before = self._ranks.get(key)
            self._ranks[key] = joined(before, now) if before else now
        content = {"number": number, "ranks": [[getattr(r, f) for f in _FIELDS] for r in self._ranks.values()]}
        with replacing(self._file, in_directory=False) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
        self._number = number


def read_watermarks(run: Path) -> tuple[RankWatermark, ...] | None:
    """Read the watermarks of all collectors of a run.

    Args:
        run: The run directory.

    Returns:
        One for each attempt and rank, in their order; None when the run has none or one is not readable.
    """
    files = sorted((run / WATERMARKS).glob("*.json"))
    found: dict[tuple[int, int], RankWatermark] = {}
    for file in files:
        content = _read(file)
        if content is None:
            return None
        for mark in content["ranks"]:
            before = found.get((mark.attempt, mark.rank))
            found[mark.attempt, mark.rank] = joined(before, mark) if before else mark
    return tuple(found[key] for key in sorted(found)) if files else None


def joined(one: RankWatermark, other: RankWatermark) -> RankWatermark:
    """Put two watermarks of one rank together.

    Args:
        one: A watermark.
        other: Another of the same attempt and rank.

    Returns:
        What both have seen; facts are those of the later step, where it knows them.
    """
    older, newer = sorted((one, other), key=lambda mark: mark.last_step)
    facts = {f: new if (new := getattr(newer, f)) is not None else getattr(older, f) for f in _FACTS}
    return RankWatermark(
        one.attempt,
        one.rank,
        one.recorded_steps + other.recorded_steps,
        min(one.first_step, other.first_step),
        newer.last_step,
        min(one.first_start_ns, other.first_start_ns),
        max(one.last_end_ns, other.last_end_ns),
        **facts,
    )


def _by_rank(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
    attempt, rank = _INDEX["attempt"], _INDEX["rank"]
    groups: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault((row[attempt], row[rank]), []).append(row)
    return groups


def _of_rows(attempt: int, rank: int, rows: list[tuple[Any, ...]]) -> RankWatermark:
    step, start, end = _INDEX["step"], _INDEX["start_ns"], _INDEX["end_ns"]
    latest = max(rows, key=lambda row: row[step])
    return RankWatermark(
        attempt,
        rank,
        len(rows),
        min(row[step] for row in rows),
        latest[step],
        min(row[start] for row in rows),
        max(row[end] for row in rows),
        **{name: latest[_INDEX[name]] for name in _FACTS},
    )


def _of_block(block: Block) -> RankWatermark:
    import numpy as np

    def column(name: str) -> np.ndarray[Any, Any]:
        values = block.columns[_INDEX[name]]
        return np.atleast_1d(values.value if isinstance(values, Same) else values)

    steps = column("step")
    latest = block.row(int(steps.argmax()))
    return RankWatermark(
        latest[_INDEX["attempt"]],
        latest[_INDEX["rank"]],
        block.length,
        int(steps.min()),
        latest[_INDEX["step"]],
        int(column("start_ns").min()),
        int(column("end_ns").max()),
        **{name: latest[_INDEX[name]] for name in _FACTS},
    )


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_bytes())
        return {"number": int(content["number"]), "ranks": [RankWatermark(*values) for values in content["ranks"]]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
