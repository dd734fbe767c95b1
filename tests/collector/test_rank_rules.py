import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepmeter.collector.config import read_config
from stepmeter.collector.decode import RunKey
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import LOGS, Encoding
from stepmeter.collector.rank_rules import RULES_FILE, RankRules
from stepmeter.collector.signals import CONTENTS, read
from stepmeter.errors import ConfigError, UsageError
from stepmeter.store.reader import find_run, open_run

RUN = RunKey("run-1", "r")


def request(*rows, rule=None, world_size=2, rank=0):
    """A request with rows of a rank, and a rule that it hands over."""
    message = LOGS.request()
    part = message.resource_logs.add()
    for key, value in (("stepmeter.run.id", "run-1"), ("stepmeter.run.name", "r")):
        part.resource.attributes.add(key=key).value.string_value = value
    for key, value in (("stepmeter.world_size", world_size), ("stepmeter.rank", rank)):
        part.resource.attributes.add(key=key).value.int_value = value
    records = part.scope_logs.add().log_records
    for step, values in rows:
        record = records.add(event_name="stepmeter.row", time_unix_nano=10**9 * (1 + step))
        for key, value in (("stepmeter.step", step), ("stepmeter.rank", rank)):
            record.attributes.add(key=key).value.int_value = value
        logged = record.attributes.add(key="stepmeter.values").value.kvlist_value.values
        for key, value in values.items():
            if isinstance(value, str):
                logged.add(key=key).value.string_value = value
            else:
                logged.add(key=key).value.double_value = value
    if rule is not None:
        records.add(event_name="stepmeter.rule", time_unix_nano=1).body.string_value = json.dumps({"rule": rule})
    return Record(LOGS, Encoding.PROTOBUF, message.SerializeToString())


def rules(directory, *given, webhook=None):
    (directory / "r").mkdir(exist_ok=True)
    return RankRules(directory, given, webhook, Health())


def looked_at(made, directory, number, *requests):
    """The messages of what fired."""
    fired = made.look_at(number, RUN, requests, lambda _: directory / "r")
    messages = [read(each) for each in fired]
    return [
        record.body.string_value
        for message in messages
        for part in message.resource_logs
        for scope in part.scope_logs
        for record in scope.log_records
    ]


def test_a_rule_of_the_configuration_sees_all_ranks(tmp_path):
    """The step at which one of two ranks is above the limit fires once both have sent it."""
    made = rules(tmp_path, "loss@max > 2 => error: {loss@max} at {step}")

    assert looked_at(made, tmp_path, 1, request((0, {"loss": 1}), (1, {"loss": 1}))) == []
    assert looked_at(made, tmp_path, 2, request((0, {"loss": 1}), (1, {"loss": 3}), rank=1)) == ["3.0 at 1"]


def test_asked_again_it_says_the_same(tmp_path):
    """A journal file that is written a second time has the same alerts, and its rows are not taken twice."""
    made = rules(tmp_path, "loss@sum > 2 => error: much")
    rows = request((0, {"loss": 3}), world_size=1)

    assert looked_at(made, tmp_path, 1, rows) == looked_at(made, tmp_path, 1, rows) == ["much"]


def test_a_program_hands_its_rules_over_once(tmp_path):
    """All ranks send the same rule; it counts once, and a collector that starts again still knows it."""
    rule = "loss@min < 0 => warning: below"
    made = rules(tmp_path)
    first = [request((0, {"loss": 1}), rule=rule, rank=rank) for rank in (0, 1)]
    assert looked_at(made, tmp_path, 1, *first) == []
    assert len(json.loads((tmp_path / "r" / RULES_FILE).read_text())) == 1
    again = rules(tmp_path)

    assert looked_at(again, tmp_path, 2, *[request((1, {"loss": -1}), rank=rank) for rank in (0, 1)]) == ["below"]


def test_without_rules_logs_are_not_looked_into(tmp_path, monkeypatch):
    """A collector without such rules decodes no request twice."""
    made = rules(tmp_path)
    monkeypatch.setitem(CONTENTS, LOGS, None)

    assert looked_at(made, tmp_path, 1, request((0, {"loss": 1}))) == []


def test_nan_comes_as_a_number(tmp_path):
    """`NaN`, which travels as text, is not a number to `isnan` here either."""
    made = rules(tmp_path, "isnan(loss@rank0) => error: broken")

    assert looked_at(made, tmp_path, 1, request((0, {"loss": "NaN"}), world_size=1)) == ["broken"]


def test_a_rule_that_names_no_rank_is_refused(tmp_path):
    """What looks at its own process only is evaluated there; from a program it is counted and passed over."""
    with pytest.raises(UsageError, match="names no rank"):
        rules(tmp_path, "loss > 1")
    health = Health()
    made = RankRules(tmp_path, (), None, health)
    assert looked_at(made, tmp_path, 1, request((0, {"loss": 3}), rule="loss > (")) == []
    assert health.counts()["rules_refused"] == 1


CONFIG = """
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:0"}}}}}}}}
processors:
  duckdb:
    alert_webhook: http://127.0.0.1:9/hook
    alert_rules:
      - 'loss@max > 2 => error: high'
      - {rule}
service: {{pipelines: {{logs: {{receivers: [otlp], processors: [duckdb]}}}}}}
"""


def test_rules_stand_in_the_configuration(tmp_path):
    """Rules are text or mappings with options; what is wrong with one is said with its line."""
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(rule="{rule: 'age(loss@rank1) > 60', for_steps: 2}"))
    config = read_config(file, {})
    assert config.alert_rules[1] == {"rule": "age(loss@rank1) > 60", "for_steps": 2}
    assert "hook" not in repr(config)

    file.write_text(CONFIG.format(rule="'loss > 1'"))
    with pytest.raises(ConfigError, match=r"c\.yaml:8: .*names no rank"):
        read_config(file, {})


PROGRAM = """
import os, time, stepmeter
rank = int(os.environ["RANK"])
stepmeter.init(name="r", alert_rules=["loss@max - loss@min > 5 => error: ranks apart by {loss@max}", "loss > 1e9"])
for step in range(4):
    stepmeter.log({"loss": 10.0 * (rank and step == 2)})
stepmeter.finish()
"""
LAUNCH = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
         for rank in (0, 1)]
sys.exit(max(each.wait() for each in ranks))
"""


def test_two_ranks_under_stepmeter_run(tmp_path):
    """A rule of the program over both ranks fires in the collector, is a row of the store, and is said at the end."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("STEPMETER_", "OTEL_"))}
    command = [str(Path(sys.executable).parent / "stepmeter"), "run", "--name", "r", "--"]
    launched = [*command, sys.executable, "-c", LAUNCH, PROGRAM]
    done = subprocess.run(
        launched, env={**environ, "STEPMETER_DIR": str(tmp_path)}, check=True, timeout=100, stderr=subprocess.PIPE
    )

    assert b"\nalert error  step 2  ranks apart by 10.0\n" in done.stderr
    with open_run(find_run("r", tmp_path)) as reader:
        alerts = reader.snapshot().rows("SELECT level, message, attributes ->> '$.\"stepmeter.step\"' FROM alerts")
        stepped = reader.snapshot().rows("SELECT step, rank FROM raw.logs WHERE event_name = 'stepmeter.alert'")
    assert [alert[:2] for alert in alerts] == [("ERROR", "ranks apart by 10.0")]
    assert stepped == [(2, None)]


def test_alerts_go_on_to_other_backends_and_trouble_keeps_no_row_back(tmp_path, monkeypatch):
    """An alert is forwarded like any request; a rule that fails on rows is counted, and the rows are all there."""
    made, forwarded = rules(tmp_path, "loss@max > 2 => error: high"), []
    rows = request((0, {"loss": 3}), world_size=1)
    found = made.with_alerts(1, RUN, [rows], lambda _: tmp_path / "r", forwarded.append)
    assert found == [rows, *forwarded]
    assert len(forwarded) == 1

    monkeypatch.setattr(made, "look_at", lambda *_: 1 / 0)
    assert made.with_alerts(2, RUN, [rows], lambda _: tmp_path / "r", forwarded.append) == [rows]
