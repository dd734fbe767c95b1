"""The verdict as one HTML file that needs nothing else: no script, no font, no image from anywhere."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from stepmeter.errors import StoreError
from stepmeter.report.alerts import severity_of
from stepmeter.report.charts import PHASES, interval_mark, stacked_bar, step_series
from stepmeter.report.parts import PHASE_ROWS, SEVERITY_WORDS, metric_words
from stepmeter.report.style import STYLE
from stepmeter.report.text import run_line
from stepmeter.units import format_ms, format_quantity, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepmeter.analysis.alerts import AlertedRule
    from stepmeter.analysis.diagnosis.model import Issue
    from stepmeter.analysis.diagnosis.primary import PrimaryDiagnosis
    from stepmeter.analysis.section import SectionAnalysis
    from stepmeter.analysis.step_time.model import StepTimeMetric, StepTimeWindow
    from stepmeter.report.summary import Summary

RANKS_SHOWN = 32
LABELS = {name: label for label, name in PHASE_ROWS}


def write_html(summary: Summary, path: Path) -> None:
    """Write the report.

    Args:
        summary: The summary of a run.
        path: The file; replaced when it is there.

    Raises:
        StoreError: It can't be written.
    """
    try:
        path.write_text(page(summary), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: not writable ({error.strerror}); give a file in a directory that exists") from error


def page(summary: Summary) -> str:
    """Project a summary.

    Args:
        summary: The summary of a run.

    Returns:
        The HTML document.
    """
    analysis = summary.analysis
    window, issues = analysis.step_time.window, analysis.step_time.diagnosis.issues
    from_system = analysis.primary.section == "system"
    lead, further = (analysis.primary, issues) if from_system else (issues[0], issues[1:])
    body = [
        _hero(summary.title, lead, run_line(summary.title, analysis.step_time)),
        _step(window),
        _series(window),
        _ranks(window),
        _findings(further),
        _alerts(analysis.alerts),
        _overview(
            [
                ("step time", issues[0]),
                *((_words(item.facts.name), item.diagnosis.primary) for item in analysis.readings),
            ]
        ),
        *(_readings(item) for item in analysis.readings),
        _footer(summary),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(summary.title)}: {escape(lead.status)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(part for part in body if part)}</main>\n</body>\n</html>\n"
    )


def _hero(title: str, lead: PrimaryDiagnosis | Issue, line: str) -> str:
    return (
        f'<header class="{lead.severity}"><p class="run">{escape(title)}</p>'
        f"<h1>{escape(lead.status)} {_chip(lead.severity)}</h1>"
        f"<p>{escape(lead.summary)}</p><p><b>Next</b> {escape(lead.action)}</p>"
        f'<p class="dim">{escape(line)}</p></header>\n'
    )


def _chip(severity: str) -> str:
    return f'<span class="chip {severity}">{SEVERITY_WORDS[severity]}</span>'  # type: ignore[index]  # one of them


def _step(window: StepTimeWindow) -> str:
    """Where a typical step goes: one bar, and the numbers below."""
    measured = [name for name in PHASES if name in window.shares]
    if not measured:
        return ""
    bar = stacked_bar([(name, window.shares[name].mean) for name in measured], "shares of the phases in a step")
    rows = "".join(_phase_row(window, name, window.metrics[name]) for name in (*measured, "step_time_ms"))
    heads = ("phase", "share (95 % interval)", "median", "worst", "skew", "where")
    return _section("Where a step goes", bar + _table(heads, rows))


def _phase_row(window: StepTimeWindow, name: str, metric: StepTimeMetric) -> str:
    share = window.shares.get(name)
    identity = window.identities.get(metric.worst_rank)
    host = f" on {identity.host}" if identity and identity.host else ""
    cells = (
        "" if share is None else interval_mark(share.mean, share.low, share.high),
        format_ms(metric.median_ms),
        format_ms(metric.worst_ms),
        format_share(metric.skew),
        f"rank {metric.worst_rank}{host}" if len(metric.ranks) > 1 else "",
    )
    swatch = f'<i class="swatch p{PHASES.index(name)}"></i>' if name in PHASES else ""
    return _row((f"{swatch}{escape(LABELS[name])}", *(escape(cell) for cell in cells)))


def _series(window: StepTimeWindow) -> str:
    step_time = window.metrics.get("step_time_ms")
    if step_time is None:
        return ""
    several = len(step_time.ranks) > 1
    chart = step_series(window.steps, step_time.median_series_ms, step_time.worst_series_ms if several else None)
    legend = '<p class="dim"><i class="key median"></i> median rank <i class="key worst"></i> slowest rank</p>'
    return _section("Step time", chart + (legend if several else ""))


def _ranks(window: StepTimeWindow) -> str:
    """Each rank's step, the slowest first; the longest bar is the slowest rank's."""
    step_time = window.metrics.get("step_time_ms")
    if step_time is None or len(step_time.ranks) < 2:
        return ""
    facts = sorted(
        (window.facts(rank) for rank in step_time.ranks),
        key=lambda item: (-(item.average.step_time_ms or 0.0), item.global_rank),
    )
    rows = []
    for item in facts[:RANKS_SHOWN]:
        parts = [(name, value) for name in PHASES if (value := item.average.get(name)) is not None]
        bar = stacked_bar(
            parts, f"phases of rank {item.global_rank}", max(step_time.worst_ms, sum(v for _, v in parts))
        )
        identity = window.identities.get(item.global_rank)
        host = escape(identity.host if identity and identity.host else "")
        rows.append(_row((str(item.global_rank), host, format_ms(item.average.step_time_ms), bar)))
    rest = len(facts) - len(rows)
    note = f'<p class="dim">and {rest} ranks more</p>' if rest > 0 else ""
    return _section("Ranks", _table(("rank", "host", "step", "phases"), "".join(rows), "ranks") + note)


def _findings(issues: Sequence[Issue]) -> str:
    return _section("Further findings", "".join(_finding(issue) for issue in issues)) if issues else ""


def _alerts(alerts: Sequence[AlertedRule]) -> str:
    rows = "".join(_row((_level(rule.level), escape(rule.where), escape(rule.message))) for rule in alerts)
    return _section("Alerts", _table(("level", "when", "message"), rows, "words")) if alerts else ""


def _level(level: str) -> str:
    return f'<span class="chip {severity_of(level)}">{escape(level)}</span>'


def _finding(issue: Issue) -> str:
    return (
        f"<article><h3>{escape(issue.status)} {_chip(issue.severity)}</h3>"
        f"<p>{escape(issue.summary)}</p><p><b>Next</b> {escape(issue.action)}</p></article>"
    )


def _named(analysis: SectionAnalysis) -> tuple[str, Issue]:
    return _words(analysis.facts.name), analysis.diagnosis.primary


def _overview(sections: Iterable[tuple[str, Issue]]) -> str:
    rows = "".join(
        _row((escape(name), escape(issue.status), _chip(issue.severity), escape(issue.summary)))
        for name, issue in sections
    )
    return _section("Sections", _table(("section", "finding", "", "why"), rows, "words"))


def _readings(analysis: SectionAnalysis) -> str:
    """What was read, and every finding beyond information."""
    facts = analysis.facts
    if not facts.rows:
        return ""
    place = "node" if facts.index_by == "node_rank" else "rank"
    rows = []
    for metric in facts.metrics:
        median, worst = facts.representative(metric.name), facts.worst(metric.name)
        if median is not None and worst is not None:
            values = [format_quantity(value, metric.unit) for _, value in (median, worst)]
            where = f"{place} {worst[0]}" if len(facts.rows) > 1 else ""
            rows.append(_row([escape(cell) for cell in (metric_words(metric.name), *values, where)]))
    findings = "".join(_finding(issue) for issue in analysis.diagnosis.issues if issue.severity != "info")
    table = _table(("reading", "median", "worst", "where"), "".join(rows))
    return _section(_words(facts.name).capitalize(), findings + table)


def _footer(summary: Summary) -> str:
    made, version = summary.document["generated_at"], summary.document["schema_version"]
    return f"<footer>stepmeter, {escape(made)}, summary version {escape(version)}</footer>\n"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>\n"


def _table(heads: Sequence[str], rows: str, kind: str = "numbers") -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _words(name: str) -> str:
    return name.replace("_", " ")
