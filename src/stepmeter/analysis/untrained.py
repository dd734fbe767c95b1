"""A run that holds no training step: what it holds instead, and how that is looked at."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Diagnosis
from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from stepmeter.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Untrained:
    """What a run holds beside training steps.

    Attributes:
        genai_calls: Spans that are calls of a model or a tool.
        own_spans: Spans that the program made with `stepmeter.span`.
        other_spans: Spans of other libraries that are no such calls.
        logged_rows: Rows that the program logged.
        own_path: Path of the first span of the program's own; None without one.
    """

    genai_calls: int = 0
    own_spans: int = 0
    other_spans: int = 0
    logged_rows: int = 0
    own_path: str | None = None

    def __bool__(self) -> bool:
        return bool(self.genai_calls or self.own_spans or self.other_spans or self.logged_rows)

    def questions(self, run: str) -> list[tuple[str, str]]:
        """Name what can be asked.

        Args:
            run: The run, as a command line names it.

        Returns:
            Commands and what they tell, the most telling one first.
        """
        rows = f'stepmeter sql {run} "SELECT step, values FROM history"'  # noqa: S608 - to be shown
        path = shlex.quote(self.own_path or "*")
        asked = (
            (self.genai_calls, f"stepmeter energy {run} --genai", "prices the calls"),
            (self.own_spans, f"stepmeter energy {run} --spans {path}", "prices the spans of that path"),
            (self.genai_calls or self.own_spans or self.other_spans, f"stepmeter trace {run}", "draws all spans"),
            (self.logged_rows, rows, "shows the rows"),
        )
        return [(command, tells) for count, command, tells in asked if count]


def load(source: Snapshot) -> Untrained:
    """Count what a run holds beside training steps.

    Args:
        source: One snapshot of the store.

    Returns:
        The counts.
    """
    ((spans, own_spans, own_path, rows),) = source.rows(query("untrained"))
    calls = source.rows(f"SELECT count(*) FROM ({query('energy_genai_spans')})")[0][0]  # noqa: S608 - a file of ours
    return Untrained(calls, own_spans, max(0, spans - calls), rows, own_path)


def told(diagnosis: Diagnosis, found: Untrained) -> Diagnosis:
    """Let NO_DATA say what is there instead of steps; nobody who ran an agent forgot an optimizer.

    Args:
        diagnosis: The findings about step time of a run without steps.
        found: What the run holds.

    Returns:
        The same findings where the run holds nothing.
    """
    issue = diagnosis.primary
    if issue.kind != "NO_DATA" or not found:
        return diagnosis
    counts = {name: count for name, count in asdict(found).items() if name != "own_path"}
    questions = "; ".join(f"`{command}` {tells}" for command, tells in found.questions("RUN"))
    of_steps = (
        "If it trains: `stepmeter doctor` says whether torch is found; updates written by hand go into "
        "`with stepmeter.trace_step(model):`."
    )
    issue = replace(
        issue,
        status="NO TRAINING",
        summary=f"The run holds no training step, but {_listed(found)}.",
        action=f"{questions}. {of_steps}",
        evidence={**issue.evidence, **counts},
    )
    return Diagnosis((issue, *diagnosis.issues[1:]))


def _listed(found: Untrained) -> str:
    other = "other span" if found.genai_calls or found.own_spans else "span"
    parts = [
        f"{count} {words if count == 1 else plural}"
        for count, words, plural in (
            (found.genai_calls, "call of a model or a tool", "calls of models or tools"),
            (found.own_spans, "span of its own", "spans of its own"),
            (found.other_spans, other, f"{other}s"),
            (found.logged_rows, "logged row", "logged rows"),
        )
        if count
    ]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
