import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmeter.alerts.engine import AlertEngine
from stepmeter.alerts.evaluate import compile_condition, compile_value
from stepmeter.alerts.memory import Memory
from stepmeter.alerts.parse import parse_condition
from stepmeter.alerts.rule import parse_rule
from stepmeter.conventions.rows import Row

NAN, INF = math.nan, math.inf


def memory(**series):
    """Rows at 0, 10, 20 … s; the last value of each series is the newest."""
    made = Memory(4096, 0.0)
    length = max(len(values) for values in series.values())
    for index in range(length):
        row = {
            name: values[index - (length - len(values))]
            for name, values in series.items()
            if index >= length - len(values)
        }
        made.add(Row(index, index * 10 * 10**9, row))
    return made


def value(text, of):
    return compile_value(parse_condition(text))(of)


SERIES = memory(x=[1, 2, 3, 4, 10], y=[5, 5, 5, 5, 5], z=[-1, 2, -3, 4, -5], bad=[1, NAN, 2, 3, INF])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", 10),
        ("mean(x[5])", 4),
        ("sum(x[2])", 14),
        ("median(x[4])", 3.5),
        ("first(x[3])", 3),
        ("last(x)", 10),
        ("std(y[5])", 0),
        ("var(x[2])", 9),
        ("quantile(x[5], 0.25)", 2),
        ("count(x[9])", 5),
        ("count(x[25s])", 3),
        ("min(x)", 1),
        ("max(x[2])", 10),
        ("max(x, y, 99)", 99),
        ("diff(x)", 6),
        ("diff(x[5])", 9),
        ("rate(x[5])", 2.25),
        ("pct_change(x)", 1.5),
        ("slope(x[5])", 2),
        ("ema(x[2], 0.5)", 7),
        ("stalled(y[5])", True),
        ("stalled(x[2], 6)", True),
        ("increasing(x[5])", True),
        ("decreasing(x[5])", False),
        ("mean(abs(z)[5])", 3),
        ("mean((x + y)[2])", 12),
        ("sum(x[30s])", 19),
        ("step()", 4),
        ("elapsed()", 40),
        ("age(x)", 0),
        ("isnan(bad)", False),
        ("isinf(bad)", True),
        ("has(x)", True),
        ("has(nothing)", False),
        ("abs(0 - 3) + sqrt(16) + floor(1.5) + ceil(1.5)", 10),
        ("log(8, 2)", 3),
        ("7 % 4", 3),
        ("2m", 120),
    ],
)
def test_functions_have_these_values(text, expected):
    """Each function's formula, added up in the head."""
    assert value(text, SERIES) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        *("nothing", "mean(x[6])", "mean(x[2m])", "diff(nothing)", "std(x[1])", "zscore(x[2])", "zscore(y[5])"),
        *("mean(bad[5])", "bad > 1", "1 / 0", "1 % 0", "sqrt(0 - 1)", "log(0)", "exp(10000)", "pct_change(zero)"),
        *("stalled(bad[4])", "age(nothing)"),
    ],
)
def test_what_can_not_be_known_is_unknown(text):
    """Windows that are not full, NaN, infinities, divisions by zero and values outside a domain are unknown."""
    assert value(text, memory(x=[1, 2, 3, 4, 10], y=[5] * 5, bad=[1, NAN, 2, 3, INF], zero=[0, 1])) is None


def test_zscore_leaves_the_last_point_out():
    """An outlier of any size fires in a window of ten, since it is not part of its own reference."""
    quiet = [1.0, 2.0] * 5
    outlier = memory(x=[*quiet[:9], 1e9])

    assert value("zscore(x[10])", outlier) > 1e8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true or nothing", True),
        ("nothing or true", True),
        ("false or nothing", None),
        ("false and nothing", False),
        ("nothing and false", False),
        ("true and nothing", None),
        ("not nothing", None),
        ("not false", True),
        ("nothing > 1", None),
        ("1 < 2 < nothing", None),
        ("2 < 1 < nothing", False),
        ("3", True),
        ("0", False),
        ("x > 9 and y == 5", True),
    ],
)
def test_logic_is_three_valued(text, expected):
    """`and`, `or` and `not` are Kleene's; a number is true unless it is 0."""
    assert compile_condition(parse_condition(text))(SERIES) is expected


def test_dots_stand_for_slashes_where_there_is_no_such_name():
    """`train.loss` finds `train/loss`."""
    assert value("train.loss", memory(**{"train/loss": [3]})) == 3


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.floats(), st.integers(-(10**20), 10**20), st.text(max_size=3), st.none()), max_size=20))
def test_evaluation_never_raises(values):
    """Whatever is logged, a rule is true, false or unknown."""
    fired = []
    rules = [
        parse_rule(text)
        for text in (
            "mean(x[3]) > 1 or slope(x[4]) < 0 or zscore(x[5]) > 3",
            "std(abs(x)[3]) / mean(x[2]) > exp(x) - log(x)",
            "pct_change(x[30s]) > 0.1 and not increasing(x[3]) and x % 2 == 0",
        )
    ]
    engine = AlertEngine(rules, 0.0, fired.append)
    for step, each in enumerate(values):
        engine.on_row(Row(step, step * 10**9, {"x": each}))


def test_ten_rules_cost_little_next_to_a_row():
    """Ten rules over windows of 100 points cost less than a hundred times what making a row's mapping costs."""
    rules = [parse_rule(f"m{i} > {3 + i} * mean(m{i}[100])") for i in range(10)]
    engine = AlertEngine(rules, 0.0, lambda _: None)
    rows = [Row(step, step * 10**9, {f"m{i}": 1.0 for i in range(10)}) for step in range(600)]
    for row in rows[:300]:
        engine.on_row(row)
    start = time.thread_time_ns()
    for row in rows[300:]:
        engine.on_row(row)
    evaluating = time.thread_time_ns() - start
    start = time.thread_time_ns()
    for _ in range(300):
        math.fsum(point for point in range(1000))
    adding = time.thread_time_ns() - start

    assert evaluating < 40 * adding
