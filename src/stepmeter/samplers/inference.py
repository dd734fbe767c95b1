"""Counters of an inference server, scraped from the Prometheus text that it serves."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics

Engine = Literal["vllm", "sglang", "tgi", "llamacpp", "trtllm"]

TIMEOUT_S: Final = 5.0
_BODY_LIMIT_BYTES = 32 * 1024 * 1024
_WORDS: Final[Mapping[str, str]] = {
    "no_series": "none of the counters of {engine} there; look at the page and at --engine",
    "refused": "nothing listens there",
    "timeout": f"no answer within {TIMEOUT_S:.0f} s",
    "unreadable": "no Prometheus text there",
    "status_404": "no such page (404)",
}
_MODEL_LABELS = ("model_name", "model")


@dataclass(frozen=True, slots=True)
class Family:
    """Where an engine shows a counter.

    Attributes:
        samples: Names of its samples; the first that is served is read.
        excluded: A label and a value whose samples repeat others.
    """

    samples: tuple[str, ...]
    excluded: tuple[str, str] | None = None


def _family(*samples: str, excluded: tuple[str, str] | None = None) -> Family:
    return Family(samples, excluded)


FAMILIES: Final[Mapping[Engine, Mapping[metrics.Metric, Family]]] = {
    "vllm": {
        metrics.INFERENCE_PROMPT_TOKENS: _family("vllm:prompt_tokens_total"),
        metrics.INFERENCE_GENERATION_TOKENS: _family("vllm:generation_tokens_total"),
        metrics.INFERENCE_CACHE_QUERIES: _family(
            "vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total"
        ),
        metrics.INFERENCE_CACHE_HITS: _family(
            "vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"
        ),
        metrics.INFERENCE_PREFILL_TIME: _family("vllm:request_prefill_time_seconds_sum"),
        metrics.INFERENCE_DECODE_TIME: _family("vllm:request_decode_time_seconds_sum"),
    },
    "sglang": {
        metrics.INFERENCE_PROMPT_TOKENS: _family("sglang:prompt_tokens_total"),
        metrics.INFERENCE_GENERATION_TOKENS: _family("sglang:generation_tokens_total"),
        metrics.INFERENCE_CACHE_QUERIES: _family("sglang:prompt_tokens_total"),
        metrics.INFERENCE_CACHE_HITS: _family("sglang:cached_tokens_total", excluded=("cache_source", "total")),
    },
    "tgi": {
        metrics.INFERENCE_PROMPT_TOKENS: _family("tgi_request_input_length_sum"),
        metrics.INFERENCE_GENERATION_TOKENS: _family("tgi_request_generated_tokens_sum"),
    },
    "llamacpp": {
        metrics.INFERENCE_PROMPT_TOKENS: _family("llamacpp:prompt_tokens_total"),
        metrics.INFERENCE_GENERATION_TOKENS: _family("llamacpp:tokens_predicted_total"),
        metrics.INFERENCE_PREFILL_TIME: _family("llamacpp:prompt_seconds_total"),
        metrics.INFERENCE_DECODE_TIME: _family("llamacpp:tokens_predicted_seconds_total"),
    },
    "trtllm": {
        metrics.INFERENCE_PROMPT_TOKENS: _family("trtllm_prompt_tokens_total"),
        metrics.INFERENCE_GENERATION_TOKENS: _family("trtllm_generation_tokens_total"),
        metrics.INFERENCE_CACHE_QUERIES: _family("trtllm_prompt_tokens_total"),
        metrics.INFERENCE_CACHE_HITS: _family("trtllm_prompt_cached_tokens_total"),
    },
}
"""What each engine counts. An engine that does not count something has no entry for it, and no zero.

Source: the engines' metric definitions; SGLang and TensorRT-LLM look up every prompt token in the cache."""


class InferenceSampler:
    """Scrapes one server: a GET a reading.

    Args:
        url: Its metrics page.
        engine: What serves there.
        now_ns: The monotonic clock.
        on_failure: Told of each request that gave nothing, in words for a person.
    """

    def __init__(
        self,
        url: str,
        engine: Engine,
        now_ns: Callable[[], int] = monotonic_ns,
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._url = url
        self._engine: Engine = engine
        self._now_ns = now_ns
        self._on_failure = on_failure
        self.failures: Counter[str] = Counter()

    def read(self, at_ns: int) -> list[Reading]:
        """Scrape once.

        Args:
            at_ns: Now, monotonic.

        Returns:
            Counters of each served model, replicas summed, at the middle of the request; or how often each kind of
            failure has happened, when this is one.
        """
        try:
            text = _get(self._url)
            middle_ns = (at_ns + self._now_ns()) // 2
            found = read_counters(text, self._engine)
        except Exception as error:  # a server that is down or speaks otherwise is counted, and asked again
            return self._failed(_reason(error), at_ns)
        if not found:
            return self._failed("no_series", at_ns)
        return [
            Reading(metric.name, value, middle_ns, (("engine", self._engine), ("model", model)))
            for (metric, model), value in found.items()
        ]

    def _failed(self, reason: str, at_ns: int) -> list[Reading]:
        self.failures[reason] += 1
        self._on_failure(_WORDS.get(reason, reason).format(engine=self._engine))
        attributes = (("engine", self._engine), ("kind", reason))
        return [Reading(metrics.INFERENCE_SCRAPE_FAILURES.name, self.failures[reason], at_ns, attributes)]


def read_counters(text: str, engine: Engine) -> dict[tuple[metrics.Metric, str], float]:
    """Find an engine's counters in what it serves.

    Args:
        text: Prometheus text.
        engine: What serves it.

    Returns:
        Values by counter and model, summed over replicas and other labels.

    Raises:
        ValueError: The text is not Prometheus text.
    """
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(text)
    samples = [(each.name, each.labels, each.value) for family in families for each in family.samples]
    served = {name for name, _, _ in samples}
    found: dict[tuple[metrics.Metric, str], float] = {}
    for metric, family in FAMILIES[engine].items():
        name = next((each for each in family.samples if each in served), None)
        for model, value in _of(name, family.excluded, samples):
            found[metric, model] = found.get((metric, model), 0.0) + value
    return found


def _of(
    name: str | None, excluded: tuple[str, str] | None, samples: Iterable[tuple[str, Mapping[str, str], float]]
) -> Iterable[tuple[str, float]]:
    for sample, labels, value in samples:
        repeats = excluded is not None and labels.get(excluded[0]) == excluded[1]
        if sample == name and not repeats and 0 <= value < float("inf"):
            yield next((labels[label] for label in _MODEL_LABELS if label in labels), ""), value


def _get(url: str) -> str:
    request = urllib.request.Request(url, headers={"Accept": "text/plain"})  # noqa: S310 - checked by the command
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
        body: bytes = response.read(_BODY_LIMIT_BYTES)
    return body.decode()


def _reason(error: BaseException) -> str:
    """A name out of a finite set."""
    if isinstance(error, urllib.error.HTTPError):
        return f"status_{error.code}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "refused"
    return "unreadable" if isinstance(error, ValueError) else type(error).__name__
