import pytest
from tests.support.metrics_page import serving

from stepmeter.samplers import inference
from stepmeter.samplers.inference import FAMILIES, InferenceSampler, read_counters

VLLM = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 96.0
vllm:prompt_tokens_total{engine="0",model_name="other, with a comma"} 7.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 38.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 270.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 144.0
# TYPE vllm:request_prefill_time_seconds histogram
vllm:request_prefill_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:request_prefill_time_seconds_count{engine="0",model_name="m"} 2.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="m"} 1.5
# TYPE vllm:request_decode_time_seconds histogram
vllm:request_decode_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:request_decode_time_seconds_count{engine="0",model_name="m"} 2.0
vllm:request_decode_time_seconds_sum{engine="0",model_name="m"} 3.0
"""
SGLANG = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 2900.0
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 500.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{is_streaming="false",model_name="m"} 480.0
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 32.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{cache_source="device",model_name="m"} 1800.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 520.0
sglang:cached_tokens_total{cache_source="total",model_name="m"} 2320.0
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="m"} 0.5
"""


def by_name(found, model="m"):
    return {metric.name.removeprefix("stepmeter.inference."): v for (metric, of), v in found.items() if of == model}


def test_vllm_replicas_are_summed_by_model():
    """Two engines of one model are summed, another model stays apart, and `_created` and buckets are not read."""
    found = read_counters(VLLM, "vllm")

    assert by_name(found) == {
        "prompt_tokens": 196.0,
        "generation_tokens": 38.0,
        "prefix_cache.queries": 270.0,
        "prefix_cache.hits": 144.0,
        "prefill.time": 1.5,
        "decode.time": 3.0,
    }
    assert by_name(found, "other, with a comma") == {"prompt_tokens": 7.0}


def test_sglang_sums_streams_and_leaves_totals_out():
    """SGLang's streams are summed; its cache's `total` repeats the sources and is left out; it counts no times."""
    assert by_name(read_counters(SGLANG, "sglang")) == {
        "prompt_tokens": 3400.0,
        "generation_tokens": 512.0,
        "prefix_cache.queries": 3400.0,
        "prefix_cache.hits": 2320.0,
    }


@pytest.mark.parametrize("engine", FAMILIES)
def test_every_engine_counts_tokens(engine):
    """From each engine's own names prompt and generated tokens are read, and what is not served is absent."""
    wanted = list(FAMILIES[engine].items())[:2]
    page = "".join(f"{family.samples[0]} {10 + i}\n" for i, (_, family) in enumerate(wanted))

    assert {"prompt_tokens": 10.0, "generation_tokens": 11.0}.items() <= by_name(
        read_counters(page, engine), ""
    ).items()


def test_a_server_is_scraped():
    """One GET gives a reading of each counter with engine and model, at the middle of the request."""
    with serving(VLLM) as page:
        readings = InferenceSampler(page.url, "vllm", lambda: 300).read(100)

    assert page.asked == 1
    assert {one.at_ns for one in readings} == {200}
    assert ("stepmeter.inference.generation_tokens", 38.0, 200, (("engine", "vllm"), ("model", "m"))) in readings


def test_failures_are_counted_by_reason(monkeypatch):
    """A page that is missing, slow, unreadable or without the engine's names is counted, and asked again."""
    monkeypatch.setattr(inference, "TIMEOUT_S", 0.2)
    reasons = []
    with serving("") as page:
        sampler = InferenceSampler(page.url, "vllm")

        def read():
            return [(dict(one.attributes)["kind"], one.value) for one in sampler.read(0)]

        reasons += read()
        page.status = 404
        reasons += read() + read()
        page.status, page.text = 200, "vllm:prompt_tokens_total{ 1"
        reasons += read()
        page.text, page.delay_s = VLLM, 0.6
        reasons += read()
        page.delay_s = 0
        assert len(sampler.read(0)) == 7
    reasons += read()

    assert reasons == [
        ("no_series", 1),
        ("status_404", 1),
        ("status_404", 2),
        ("unreadable", 1),
        ("timeout", 1),
        ("refused", 1),
    ]
