"""Tests of how requests are decoded from protobuf and JSON."""

from __future__ import annotations

import json

import pytest

from stepmeter.collector.otlp import METRICS, TRACES, Encoding, MalformedError, encode_response, parse

TRACE_ID, SPAN_ID = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def json_request(**fields):
    """A JSON request with one span."""
    span = {"traceId": TRACE_ID, "spanId": SPAN_ID, "name": "work", **fields}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def only_span(body):
    """The span of a JSON request."""
    return parse(TRACES, Encoding.JSON, body).resource_spans[0].scope_spans[0].spans[0]


def test_ids_in_json_are_hexadecimal():
    """An id of a JSON request has the bytes that its hexadecimal digits say, in either case."""
    span = only_span(json_request(parentSpanId=SPAN_ID.upper(), links=[{"traceId": TRACE_ID, "spanId": SPAN_ID}]))
    assert span.trace_id.hex() == TRACE_ID
    assert span.span_id.hex() == span.parent_span_id.hex() == SPAN_ID
    assert span.links[0].trace_id.hex() == TRACE_ID


def test_an_attribute_called_like_an_id_keeps_its_value():
    """Only ids of the protocol are rewritten, not what a user calls traceId."""
    span = only_span(json_request(attributes=[{"key": "traceId", "value": {"stringValue": "abcd"}}]))
    assert (span.attributes[0].key, span.attributes[0].value.string_value) == ("traceId", "abcd")


@pytest.mark.parametrize("time", ["1700000000000000000", 1700000000000000000])
def test_large_integers_in_json_may_be_strings_and_numbers(time):
    """A 64-bit integer is read from a string and from a number, to the last digit."""
    span = only_span(
        json_request(startTimeUnixNano=time, attributes=[{"key": "n", "value": {"intValue": "9007199254740993"}}])
    )
    assert span.start_time_unix_nano == 1700000000000000000
    assert span.attributes[0].value.int_value == 9007199254740993


def test_unknown_fields_in_json_are_passed_over():
    """A newer sender's fields do not make a request undecodable."""
    assert only_span(json_request(somethingNew={"a": [1]})).name == "work"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": -1}]}]}]}',
        b"[" * 5000 + b"]" * 5000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_json_request_is_malformed(body):
    """Whatever is wrong with a JSON request is one line and nothing else."""
    with pytest.raises(MalformedError, match="not a JSON traces request") as caught:
        parse(TRACES, Encoding.JSON, body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("signal", [TRACES, METRICS])
def test_what_is_no_protobuf_is_malformed(signal):
    """Bytes that are no such message are malformed."""
    with pytest.raises(MalformedError, match="not a protobuf"):
        parse(signal, Encoding.PROTOBUF, b"\x0a\xff not protobuf")


def test_an_answer_says_what_was_rejected_and_is_empty_otherwise():
    """partial_success is set only when something was rejected, in the encoding of the request."""
    assert encode_response(TRACES.respond(0, ""), Encoding.PROTOBUF) == b""
    assert encode_response(METRICS.respond(0, ""), Encoding.JSON) == b"{}"
    answer = json.loads(encode_response(TRACES.respond(2, "why"), Encoding.JSON))
    assert answer == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "why"}}
