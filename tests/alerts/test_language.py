import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmeter.alerts.functions import FUNCTIONS
from stepmeter.alerts.parse import parse_condition
from stepmeter.alerts.rule import parse_rule
from stepmeter.alerts.tree import (
    And,
    Binary,
    Call,
    Compare,
    Duration,
    Metric,
    Not,
    Number,
    Or,
    Truth,
    Unary,
    Windowed,
    render,
)
from stepmeter.errors import UsageError

METRICS = st.sampled_from(
    ["loss", "time_ms/forward", "m@rank1", "a.b", "or", "true", "my metric", 'say "x"', "läs/1", "order"]
).map(Metric)
SIZES = st.one_of(st.integers(1, 500), st.sampled_from(["5m", "30s", "1.5h", "200ms", "1d", "2min"]).map(Duration))
LEAVES = st.one_of(
    METRICS,
    st.floats(0, 1e300, allow_nan=False).map(Number),
    st.integers(0, 10**6).map(lambda value: Number(float(value))),
    st.sampled_from(["5m", "10s", "200ms"]).map(Duration),
    st.booleans().map(Truth),
    st.builds(Windowed, METRICS, SIZES),
    st.builds(lambda m, n: Call("mean", (Windowed(m, n),)), METRICS, SIZES),
    st.builds(lambda m, n: Call("mean", (Windowed(Call("abs", (m,)), n),)), METRICS, SIZES),
    st.builds(lambda m: Call("isnan", (m,)), METRICS),
    st.just(Call("step", ())),
)


def branches(inner):
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        several.map(And),
        several.map(Or),
        inner.map(Not),
        st.builds(Unary, st.sampled_from("+-"), inner),
        st.builds(Binary, st.sampled_from("+-*/%"), inner, inner),
        several.flatmap(
            lambda values: st.tuples(*[st.sampled_from([">", ">=", "<", "<=", "==", "!="])] * (len(values) - 1)).map(
                lambda signs: Compare(values, signs)
            )
        ),
        st.builds(lambda value: Call("abs", (value,)), inner),
        st.builds(lambda values: Call("max", values), several),
    )


@settings(deadline=None, max_examples=300)
@given(st.recursive(LEAVES, branches, max_leaves=12))
def test_what_is_rendered_parses_to_the_same(node):
    """Any condition, written and parsed again, is the same condition."""
    assert parse_condition(render(node)) == node


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a||b&&!c", "a or b and not c"),
        ("a | b & ~c", "a or b and not c"),
        ("(a or b) and c", "(a or b) and c"),
        ("1<a<=3", "1 < a <= 3"),
        ("a-b", "a - b"),
        ("a / b", "a / b"),
        ("loss/2", "loss/2"),
        ("-a*2", "-a * 2"),
        ("(a-b)-c", "a - b - c"),
        ("a-(b-c)", "a - (b - c)"),
        ("`my metric`[5m]", '"my metric"[5m]'),
        ("mean(abs(grad)[50])", "mean(abs(grad)[50])"),
        (".5 + 1e3", "0.5 + 1000"),
    ],
)
def test_forms_and_precedence(text, canonical):
    """Operators have their several spellings and bind as everywhere; a slash joins a name only without spaces."""
    assert render(parse_condition(text)) == canonical


@pytest.mark.parametrize(
    ("text", "column", "word"),
    [
        ("mean(loss[) > 1", 11, "number"),
        ("loss > > 1", 8, "a name"),
        ("loss >", 7, "the end"),
        ("loss # 1", 6, '"#"'),
        ("1 + foo(x)", 5, "expected one of"),
        ("mean(loss)", 1, "needs a window"),
        ("loss > 0 and loss[0] > 1", 19, "from 1"),
        ("loss[1.5]", 6, "from 1"),
        ("loss[0s]", 6, "more than no time"),
        ("zscore(x[10], 3)", 1, "2 arguments, expected 1"),
        ("quantile(x[10], 2)", 1, "from 0 to 1"),
        ("ema(x[10], 0)", 1, "above 0"),
        ("mean(mean(x[2])[3])", 1, "window inside"),
        ("isnan(1)", 1, "name of a metric"),
        ("no_data()", 1, "expected 1"),
        ("", 1, "nothing"),
        ("=> error: x", 1, "nothing"),
        ("a => error: b => c and d)", None, None),
    ],
)
def test_a_wrong_rule_points_at_its_column(text, column, word):
    """What is wrong is said in one line with its column, what was found and what was expected."""
    if column is None:
        assert parse_rule(text).message == "b => c and d)"
        return
    with pytest.raises(UsageError) as refused:
        parse_rule(text)

    assert f"column {column}:" in str(refused.value)
    assert word in str(refused.value)
    assert "\n" not in str(refused.value)


@settings(deadline=None, max_examples=200)
@given(st.text("ab/.()[]<>=!&|+-*%0159e \"'`sm@#,é", max_size=30))
def test_no_text_crashes_the_parser(text):
    """Any text is a rule or is refused in one line."""
    said = ""
    try:
        parse_rule(text)
    except UsageError as error:
        said = str(error)

    assert "\n" not in said


def test_very_deep_and_very_long_rules_are_refused():
    """A rule of 3,000 brackets or 20,000 characters is an error, not a crash."""
    with pytest.raises(UsageError):
        parse_rule("(" * 3000 + "a" + ")" * 3000)
    with pytest.raises(UsageError, match="shorten"):
        parse_rule("a or " * 4000 + "a")


@pytest.mark.parametrize(
    ("text", "level", "message"),
    [
        ("a > 1", "warning", ""),
        ("a > 1 => error", "error", ""),
        ("a > 1 => WARN: slow", "warning", "slow"),
        ("a > 1 => fatal: x: y", "critical", "x: y"),
        ("a > 1 => look here", "warning", "look here"),
        ("a > 1 => : look here", "warning", "look here"),
        ('"x => y" > 1 => info: z', "info", "z"),
    ],
)
def test_level_and_message(text, level, message):
    """The arrow outside quotes parts condition from level and message; what is no level is the message."""
    rule = parse_rule(text)

    assert (rule.level, rule.message) == (level, message)


@pytest.mark.parametrize(
    "given",
    [
        {"rule": "a", "mode": "x"},
        {"rule": "a", "for_steps": 0},
        {"rule": "a", "mood": 1},
        {},
        3,
        {"rule": "a", "level": "x"},
    ],
)
def test_wrong_options_are_refused(given):
    """Unknown options and values are errors at once."""
    with pytest.raises(UsageError):
        parse_rule(given)


def test_rules_without_a_name_have_one_of_their_content():
    """The same rule has the same name everywhere, another one another."""
    assert parse_rule("a>1").name == parse_rule("a > 1").name != parse_rule("a > 2").name


def test_every_function_is_described():
    """Each function has one line that says what it gives."""
    assert all(function.brief for function in FUNCTIONS.values())
    assert len(FUNCTIONS) >= 32
