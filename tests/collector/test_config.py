"""Tests of the collector's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepmeter.collector.config import (
    CollectorConfig,
    Endpoint,
    default_config,
    parse_address,
    read_config,
    require_guarded,
)
from stepmeter.collector.destination import Destination, RetryPolicy
from stepmeter.errors import ConfigError, UsageError

LOCAL = Path(__file__).parents[2] / "collector-config" / "local.yaml"

WHOLE = """\
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:0
processors:
  duckdb:
service:
  pipelines:
    traces:
      receivers: [otlp]
      processors: [duckdb]
"""


@pytest.fixture
def read(tmp_path):
    """Read a configuration from its text."""

    def read(text, environ=None):
        file = tmp_path / "c.yaml"
        file.write_text(text)
        return read_config(file, environ or {})

    return read


@pytest.mark.parametrize("environ", [{}, {"STEPMETER_DIR": "/somewhere"}])
def test_local_yaml_is_what_is_built_in(environ):
    """collector-config/local.yaml says in full what the collector does without a configuration."""
    assert read_config(LOCAL, environ) == default_config(environ)


def test_a_configuration_says_what_it_says(read):
    """Endpoints, limits, directory, interval and pipelines are read; a protocol that is not named is off."""
    text = WHOLE.replace("127.0.0.1:0", "'[::1]:9'\n        max_recv_msg_size_mib: 2").replace(
        "duckdb:\n", "duckdb:\n    directory: ${env:D:-runs}/x\n    flush_interval: 250ms\n"
    )
    expected = CollectorConfig(Endpoint("::1", 9, 2 << 20), None, Path("here/x"), 0.25, ("traces",))
    assert read(text, {"D": "here"}) == expected
    assert read(text).directory == Path("runs/x")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("duckdb:\n", "duckbd:\n", 'c.yaml:7: unknown processor "duckbd"; known: duckdb'),
        ("  otlp:", "  zipkin:", 'c.yaml:2: unknown receiver "zipkin"; known: otlp'),
        ("receivers:\n  otlp", "recievers:\n  otlp", 'c.yaml:1: unknown section "recievers"; known: receivers'),
        ("endpoint:", "endpiont:", 'c.yaml:5: unknown key "endpiont"; known: endpoint, max_recv_msg_size_mib'),
        ("grpc:", "thrift:", 'c.yaml:4: unknown protocol "thrift"; known: grpc, http'),
        ("127.0.0.1:0", "nonsense", 'c.yaml:5: address "nonsense"; expected host:port'),
        ("127.0.0.1:0", "0.0.0.0:4317", "c.yaml:5: .*can be reached from other machines"),
        ("127.0.0.1:0", "${env:WHERE}", "c.yaml:5: WHERE is not set and has no default"),
        ("127.0.0.1:0", "127.0.0.1:0\n        max_recv_msg_size_mib: big", 'c.yaml:6: found "big", expected a number'),
        ("duckdb:\n", "duckdb:\n    flush_interval: soon\n", 'c.yaml:8: found "soon", expected a duration'),
        ("duckdb:\n", "duckdb: 5\n", 'c.yaml:7: found "5", expected a mapping'),
        ("traces:", "profiles:", 'c.yaml:10: unknown pipeline "profiles"; known: traces, metrics, logs'),
        ("[otlp]", "[otlp, jaeger]", 'c.yaml:11: unknown receiver "jaeger"; known: otlp'),
        ("[otlp]", "[]", "c.yaml:11: pipeline traces has no receivers"),
        ("      receivers: [otlp]\n", "", "c.yaml:10: pipeline traces has no receivers"),
        ("[duckdb]", "duckdb", r"c.yaml:12: expected a list"),
        ("[duckdb]", "[duckdb]\n      exporters: [otlp]", 'c.yaml:13: unknown exporter "otlp"; known: none'),
        ("processors:\n  duckdb:\n", "", "c.yaml:1: no section processors"),
        ("  duckdb:\n", "", "c.yaml:6: no processor; expected duckdb"),
        ("receivers:\n  otlp:", "receivers: [\n  otlp:", r"c.yaml:\d+: not YAML: "),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(read, old, new, message):
    """Anything unknown or wrong is one line that begins with file and line and says what is known or expected."""
    assert old in WHOLE
    with pytest.raises(ConfigError, match=message) as caught:
        read(WHOLE.replace(old, new, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "text", "\x00", "a: &a [*a]", "- " * 2000])
def test_what_is_no_configuration_is_one_line(read, text):
    """A file that is empty, no mapping or no YAML is a ConfigError."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    """A configuration that can't be read is a ConfigError."""
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read_config(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        (":0", ("127.0.0.1", 0)),
        ("[::1]:2", ("::1", 2)),
        ("localhost:3", ("localhost", 3)),
    ],
)
def test_addresses_are_taken_apart(text, expected):
    """An address is a host and a port; without a host it is this machine."""
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "4317", "host", "127.0.0.1:x", "127.0.0.1:65536", ":-1"])
def test_what_is_no_address_is_refused(text):
    """What is no address is refused."""
    with pytest.raises(UsageError, match="expected"):
        parse_address(text)


EXPORTERS = """\
exporters:
  otlp_grpc/far:
    endpoint: far:4317
    headers: {X-Team: ours}
    timeout: 5s
    sending_queue: {sizer: bytes, queue_size: 1000, num_consumers: 1}
    retry_on_failure: {initial_interval: 1s, max_interval: 2s, max_elapsed_time: 1m}
  otlphttp:
    endpoint: http://near:9090/api/v1/otlp
    traces_endpoint: http://other/in
    compression: none
  otlp/unused:
    endpoint: https://nobody:1
service:
"""


def test_exporters_are_read_with_the_collectors_own_keys(read):
    """Exporters have the Collector's keys and defaults, and go where the pipelines say."""
    text = WHOLE.replace("service:\n", EXPORTERS).replace(
        "[duckdb]", "[duckdb]\n      exporters: [otlp_grpc/far, otlphttp]"
    )
    far, near = read(text).destinations
    assert far == Destination(
        "otlp_grpc/far",
        "grpc",
        "far:4317",
        ("traces",),
        secure=True,
        headers=(("x-team", "ours"),),
        compression="gzip",
        timeout_s=5.0,
        queue_bytes=1000,
        consumers=1,
        retry=RetryPolicy(1.0, 2.0, 60.0),
    )
    assert (near.protocol, near.secure, near.compression, near.retry) == ("http", False, "none", RetryPolicy())
    assert near.url("traces") == "http://other/in"
    assert near.url("metrics") == "http://near:9090/api/v1/otlp/v1/metrics"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("otlp_grpc/far", "jaeger/far", 'c.yaml:9: unknown exporter "jaeger/far"; known: otlp_grpc, otlp_http, otlp'),
        ("endpoint: far:4317", "endpoint: far", 'c.yaml:10: endpoint "far"; expected host:port'),
        ("    endpoint: far:4317\n", "", "c.yaml:9: no endpoint"),
        ("http://near:9090/api/v1/otlp", "near:9090", 'endpoint "near:9090"; expected a URL'),
        ("compression: none", "compression: zstd", 'found "zstd", expected none or gzip'),
        ("sizer: bytes, ", "", "queue_size without its unit"),
        ("sizer: bytes", "sizer: items", 'found "items", expected bytes'),
        ("sizer: bytes", "enabled: false", "can't be turned off"),
        ("timeout: 5s", "tls: {ca_file: /nowhere}", 'no file "/nowhere"'),
        ("timeout: 5s", "tls: {insecure: maybe}", 'found "maybe", expected true or false'),
        ("timeout: 5s", "sending_que: {}", 'unknown key "sending_que"'),
    ],
)
def test_a_wrong_exporter_is_named_with_file_and_line(read, old, new, message):
    """What is unknown or wrong in an exporter is one line, as everywhere in a configuration."""
    text = WHOLE.replace("service:\n", EXPORTERS)
    assert old in text
    with pytest.raises(ConfigError, match=message) as caught:
        read(text.replace(old, new, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_an_address_for_others_needs_a_guard(host):
    """An address that other machines can reach needs a token, or the explicit word that it does not."""
    with pytest.raises(UsageError, match="can be reached from other machines"):
        require_guarded(Endpoint(host, 1))
    require_guarded(Endpoint(host, 1, token="secret"))
    require_guarded(Endpoint(host, 1, open_to_all=True))


GUARDED = WHOLE.replace("127.0.0.1:0", "0.0.0.0:0\n        auth: {authenticator: bearertokenauth/team}").replace(
    "service:\n",
    "extensions:\n  bearertokenauth/team: {token: '${env:TOKEN:-secret}'}\n"
    "service:\n  extensions: [bearertokenauth/team]\n",
)


def test_a_token_is_read_and_never_shown(read):
    """A token comes from an extension that is in use, from the environment or a file, and no message repeats it."""
    config = read(GUARDED, {"TOKEN": "hidden"})
    assert config.grpc.token == "hidden"
    assert "hidden" not in repr(config)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bearertokenauth/team: {", "oidc: {", 'unknown extension "oidc"'),
        ("  extensions: [bearertokenauth/team]\n", "", 'no extension "bearertokenauth/team" in service.extensions'),
        ("[bearertokenauth/team]", "[other]", 'unknown extension "other"'),
        ("authenticator: bearertokenauth/team", "", "auth without authenticator"),
        ("token: '${env:TOKEN:-secret}'", "filename: /nowhere", "can't be read"),
        ("token: '${env:TOKEN:-secret}'", "token: ''", "found nothing"),
        ("token: '${env:TOKEN:-secret}'", "token: 'pässword'", "no token, or one that no header can hold"),
        ("auth: {", "tls: {cert_file: /nowhere}\n        auth: {", "tls without key_file"),
        ("auth: {authenticator: bearertokenauth/team}", "open_to_all: perhaps", 'found "perhaps"'),
    ],
)
def test_a_wrong_guard_is_named_with_file_and_line(read, old, new, message):
    """What is wrong about tokens and certificates is one line that shows no secret."""
    assert old in GUARDED
    with pytest.raises(ConfigError, match=message) as caught:
        read(GUARDED.replace(old, new, 1))
    assert "pässword" not in str(caught.value)
