"""Tests of tokens and TLS over real sockets."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
import trustme
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from tests.support.otlp import PROTOBUF, post, step_span, traces, wait_until

from stepmeter.collector.auth import is_allowed
from stepmeter.collector.config import CollectorConfig, Endpoint, ServerTls
from stepmeter.collector.destination import Destination, Tls
from stepmeter.collector.forward import Forwarder
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import TRACES, Encoding
from stepmeter.collector.server import Collector

BODY = traces(step_span(1)).SerializeToString()


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """A certificate authority, a server's and a client's certificate, as files."""
    directory = tmp_path_factory.mktemp("pems")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    for name in ("server", "client"):
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        certificate.private_key_pem.write_to_path(directory / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(directory / f"{name}.pem")
    return {path.name: str(path) for path in directory.iterdir()}


@pytest.fixture
def start(tmp_path):
    """Start collectors on free ports of one endpoint's kind."""
    started = []

    def make(**options):
        endpoint = Endpoint("127.0.0.1", 0, **options)
        started.append(Collector(CollectorConfig(endpoint, endpoint, tmp_path)))
        started[-1].start()
        return started[-1]

    yield make
    for collector in started:
        collector.close()


@pytest.mark.parametrize("shown", [None, "Bearer wrong", "Bearer", "Basic secret", "secret"])
def test_without_the_token_nothing_is_taken(start, shown):
    """A sender without the right token gets 401 or UNAUTHENTICATED on both protocols, and leaves nothing."""
    collector = start(token="secret")
    headers = {"Authorization": shown} if shown else {}
    answer = post(collector.ready.http, BODY, **headers)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert Status.FromString(answer.body).code == 16
    with grpc.insecure_channel(collector.ready.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        TraceServiceStub(channel).Export(traces(step_span(1)), metadata=[(k.lower(), v) for k, v in headers.items()])
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "requests_accepted" not in collector.health.counts()
    assert collector.health.counts()["requests_unauthenticated"] == 2


def test_with_the_token_everything_is(start):
    """The right token opens both protocols; health needs none."""
    collector = start(token="secret")
    assert post(collector.ready.http, BODY, Authorization="Bearer secret").status == 200
    with grpc.insecure_channel(collector.ready.grpc) as channel:
        TraceServiceStub(channel).Export(traces(step_span(2)), metadata=[("authorization", "Bearer secret")])
    with urllib.request.urlopen(f"http://{collector.ready.http}/healthz", timeout=10) as answer:
        assert answer.status == 200


def test_no_token_asks_nobody():
    """Without a token whatever is shown is right; with one only the token itself is."""
    assert is_allowed(None, None)
    assert is_allowed("x", "bearer x")
    assert not is_allowed("x", "Bearer xy")


def https(collector, pems, body=BODY, client=None):
    """Post over TLS."""
    context = ssl.create_default_context(cafile=pems["ca.pem"])
    if client:
        context.load_cert_chain(pems[f"{client}.pem"], pems[f"{client}.key"])
    request = urllib.request.Request(
        f"https://{collector.ready.http}/v1/traces", data=body, headers={"Content-Type": PROTOBUF}
    )
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return answer.status


def test_tls_encrypts_both_protocols(start, pems):
    """With a certificate both protocols speak TLS, and plain text is refused."""
    collector = start(tls=ServerTls(pems["server.pem"], pems["server.key"]))
    assert https(collector, pems) == 200
    credentials = grpc.ssl_channel_credentials(Path(pems["ca.pem"]).read_bytes())
    with grpc.secure_channel(collector.ready.grpc, credentials) as channel:
        TraceServiceStub(channel).Export(traces(step_span(2)), timeout=10)
    with pytest.raises(OSError):
        post(collector.ready.http, BODY)


def test_client_certificates_are_asked_for(start, pems):
    """With a client authority only senders with a certificate of its are heard."""
    collector = start(tls=ServerTls(pems["server.pem"], pems["server.key"], pems["ca.pem"]))
    assert https(collector, pems, client="client") == 200
    with pytest.raises((urllib.error.URLError, OSError)):
        https(collector, pems)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_collectors_forward_to_one_another_with_token_and_tls(start, pems, protocol):
    """A collector forwards to another one that asks for a token and a client certificate."""
    there = start(token="secret", tls=ServerTls(pems["server.pem"], pems["server.key"], pems["ca.pem"]))
    address = there.ready.grpc if protocol == "grpc" else f"https://{there.ready.http}"
    destination = Destination(
        "there",
        protocol,
        address,
        secure=True,
        headers=(("authorization", "Bearer secret"),),
        tls=Tls(pems["ca.pem"], pems["client.pem"], pems["client.key"]),
    )
    health = Health()
    forwarder = Forwarder([destination], health)
    forwarder.offer(Record(TRACES, Encoding.PROTOBUF, BODY))
    wait_until(lambda: health.counts().get("forwarded.there") == 1)
    forwarder.close()
    assert there.health.counts()["requests_accepted"] == 1
