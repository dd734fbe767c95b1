"""Every diagnosis that there is, from the rules' own docstrings and thresholds."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stepmeter.analysis import no_gpu
from stepmeter.analysis.diagnosis import primary
from stepmeter.analysis.diagnosis.model import Rule
from stepmeter.analysis.diagnosis.rules import CONCLUSIONS, GATES, RULES
from stepmeter.analysis.energy import rules as energy
from stepmeter.analysis.memory import rules as memory
from stepmeter.analysis.process import rules as process
from stepmeter.analysis.system import rules as system

SECTIONS: Final[dict[str, tuple[Rule[Any], ...]]] = {
    "step_time": (*GATES, *RULES, *CONCLUSIONS),
    "step_memory": (*memory.RULES, *memory.CONCLUSIONS),
    "system": (*system.RULES, *system.CONCLUSIONS),
    "process": (*process.RULES, *process.CONCLUSIONS),
    "energy": (*energy.RULES, *energy.CONCLUSIONS),
    "primary": (primary.RULE,),
}
"""The rules of each section of the summary, and of the diagnosis that sums a run up, in their order."""

TEXT_COLUMNS: Final = 100

_INTRODUCTION = """\
# Diagnoses

What `stepmeter summary` and `stepmeter watch` can find. Generated from the rules by `make docs`; do not edit.
`stepmeter diagnoses --explain KIND` prints one entry.

A rule sees the analyzed window and its thresholds, nothing else. It gives a finding (`info`, `warn` or `crit`), says
that it can't judge for want of a signal, or says nothing. Findings are put in order by severity, then by score, which
is always a share of the same whole, then by the order on this page; the first is the section's diagnosis. Step time is
critical only from 20 steps on, and under FSDP at most a warning, since ranks then wait for one another in forward too.

Absent is not zero: a phase that was not measured on every step makes no rank fast, and no rule fire.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule as documentation.

    Attributes:
        section: Section of the summary that it belongs to.
        kinds: The kinds it can give.
        title: What it means, in one sentence.
        paragraphs: When it is given, why that matters, what to try; marks of emphasis kept.
        thresholds: The numbers it goes by.
    """

    section: str
    kinds: tuple[str, ...]
    title: str
    paragraphs: tuple[str, ...]
    thresholds: Mapping[str, float]


def entries() -> Iterator[Entry]:
    """Every rule, by section, in the order of the rules; NO_GPU once, for the sections that share it."""
    for section, rules in SECTIONS.items():
        for rule in rules:
            if rule is not no_gpu.RULE or section == "system":
                shown = "system, process, step_memory" if rule is no_gpu.RULE else section
                yield _entry(shown, rule)


def find(kind: str) -> list[Entry]:
    """The rules that give a kind; several sections may share its name.

    Args:
        kind: Name of a kind, in any case, with `_`, `-` or blanks.

    Returns:
        The entries, none when there is no such kind.
    """
    wanted = re.sub(r"[\s-]+", "_", kind.strip()).upper()
    return [entry for entry in entries() if wanted in entry.kinds]


def reference_page() -> str:
    """The page of all diagnoses, in Markdown."""
    parts, section = [_INTRODUCTION], ""
    for entry in entries():
        if entry.section.partition(",")[0] != section:
            section = entry.section.partition(",")[0]
            parts.append(f"## {_HEADINGS[section]}\n")
        parts.append(_markdown(entry))
    return "\n".join(parts).rstrip("\n") + "\n"


def explain(entry: Entry) -> str:
    """One entry as plain text, ending in a newline."""
    lines = [f"{', '.join(entry.kinds)}  ({entry.section.replace('_', ' ')})", entry.title, ""]
    lines += [textwrap.fill(re.sub(r"\*(\w+)\*", r"\1", text), TEXT_COLUMNS) for text in entry.paragraphs]
    if entry.thresholds:
        lines += ["", "Thresholds:", *(f"  {name} = {_number(value)}" for name, value in entry.thresholds.items())]
    return "\n".join(lines) + "\n"


_HEADINGS = {
    "step_time": "Step time",
    "step_memory": "Step memory",
    "system": "System",
    "process": "Process",
    "energy": "Energy",
    "primary": "The run as a whole",
}


def _entry(section: str, rule: Rule[Any]) -> Entry:
    head, _, body = (rule.explanation or "").strip().partition("\n\n")
    title = " ".join(head.split()).partition(": ")[2]
    return Entry(section, rule.kinds, title[:1].upper() + title[1:], tuple(_paragraphs(body)), rule.thresholds)


def _paragraphs(body: str) -> Iterator[str]:
    """Paragraphs end at an empty line and before a word that is emphasized, such as *Why*."""
    for block in re.split(r"\n\s*\n|\n(?=\*\w+\*)", body.strip()):
        if block.strip():
            yield " ".join(block.split())


def _markdown(entry: Entry) -> str:
    lines = [f"### {', '.join(entry.kinds)}", "", entry.title, ""]
    lines += [f"{paragraph}\n" for paragraph in entry.paragraphs]
    if entry.thresholds:
        lines += ["| threshold | value |", "|---|---|"]
        lines += [f"| `{name}` | {_number(value)} |" for name, value in entry.thresholds.items()]
        lines.append("")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 10_000 else f"{value:g}"
