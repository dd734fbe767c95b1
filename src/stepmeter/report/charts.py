"""Charts as SVG, coloured by the page's own style, so that light and dark need one drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from stepmeter.units import format_ms, format_share

PHASES: Final = ("input_wait_ms", "h2d_ms", "forward_ms", "backward_ms", "optimizer_ms", "residual_ms")
"""Phases in the order of a step; class `p0`, `p1` … of the style colours them."""

WIDTH, HEIGHT = 720, 200
LEFT, RIGHT, TOP, BOTTOM = 76, 8, 16, 22
MAX_POINTS = 600
"""More points than columns of the drawing show nothing more; each one shows the largest of its steps."""


def stacked_bar(parts: Sequence[tuple[str, float]], label: str, whole: float | None = None) -> str:
    """Draw parts of a whole beside one another.

    Args:
        parts: Metrics of `PHASES` with their values, 0 or more.
        label: What the bar shows, for who can't see it.
        whole: What a full bar stands for; the sum of the parts when None.

    Returns:
        An HTML element as wide as its place.
    """
    total = whole or sum(value for _, value in parts)
    if total <= 0:
        return ""
    segments = "".join(
        f'<i class="p{PHASES.index(name)}" style="width:{100 * value / total:.3f}%"></i>'
        for name, value in parts
        if value > 0
    )
    return f'<div class="bar" role="img" aria-label="{escape(label)}">{segments}</div>'


def step_series(steps: Sequence[int], median_ms: Sequence[float], worst_ms: Sequence[float] | None) -> str:
    """Draw step time over steps.

    Args:
        steps: Step numbers, ascending, one or more.
        median_ms: Median over ranks on each step.
        worst_ms: Largest value over ranks on each step; None for a single rank.

    Returns:
        An SVG element.
    """
    top_ms, tick_ms = nice_scale(max(worst_ms or median_ms))
    rows = [round(number * tick_ms, 9) for number in range(round(top_ms / tick_ms) + 1)]
    grid = "".join(_tick(value, _y(value, top_ms)) for value in rows)
    lines = _line(worst_ms, top_ms, "worst") if worst_ms else ""
    lines += _line(median_ms, top_ms, "median")
    ends = (
        f'<text x="{LEFT}" y="{HEIGHT - 4}">step {steps[0]:,}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">step {steps[-1]:,}</text>'
    )
    label = f"step time over steps {steps[0]} to {steps[-1]}, at most {format_ms(max(worst_ms or median_ms))}"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{grid}{lines}{ends}</svg>'


def interval_mark(mean: float, low: float, high: float) -> str:
    """Write a share with its interval.

    Args:
        mean: The share.
        low: Lower end of its interval.
        high: Upper end.

    Returns:
        For instance `5.0 % (4.8 to 5.3 %)`.
    """
    return f"{format_share(mean)} ({low * 100:.1f} to {format_share(high)})"


def nice_scale(largest: float) -> tuple[float, float]:
    """A scale from 0 whose ticks are round numbers.

    Args:
        largest: The largest value, 0 or more.

    Returns:
        The end of the scale and the distance of its ticks.
    """
    if largest <= 0:
        return 1.0, 1.0
    rough = largest / 4
    magnitude = 10.0 ** math.floor(math.log10(rough))
    tick = next(step * magnitude for step in (1, 2, 2.5, 5, 10) if step * magnitude >= rough)
    return math.ceil(largest / tick - 1e-9) * tick, tick


def _tick(value_ms: float, y: float) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(format_ms(value_ms))}</text>'
    )


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _line(values: Sequence[float], top: float, name: str) -> str:
    columns = min(len(values), MAX_POINTS)
    edges = [number * len(values) // columns for number in range(columns + 1)]
    points = [max(values[edges[number] : edges[number + 1]]) for number in range(columns)]
    width = WIDTH - LEFT - RIGHT
    across = [LEFT + width * (number / (columns - 1) if columns > 1 else 0.5) for number in range(columns)]
    path = " ".join(f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(across, points, strict=True))
    return f'<polyline class="{name}" points="{path}"/>'
