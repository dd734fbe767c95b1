"""Files of the stock Collector's file exporter, through the same processor as everything that comes by wire.

    JSON        one request a line
    protobuf    length (u32, big endian) and request, again and again

Source: OpenTelemetry Collector, `exporter/fileexporter`; OTLP file exporter specification.
"""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from google.protobuf.message import DecodeError

from stepmeter.collector.decode import UNASSIGNED, RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import LOGS, METRICS, SIGNALS, TRACES, Encoding, MalformedError, Signal
from stepmeter.collector.verdicts import RefusedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_THREADS: Final = 16
_IN_FLIGHT: Final = 64
_ATTEMPTS: Final = 30
_MAX_REQUEST_BYTES: Final = 256 << 20
_LENGTH: Final = struct.Struct(">I")
_KEYS: Final = {b'"resourceSpans"': TRACES, b'"resourceMetrics"': METRICS, b'"resourceLogs"': LOGS}
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


@dataclass(slots=True)
class Ingested:
    """What became of files.

    Attributes:
        requests: Requests that were taken.
        repeated: Those among them that were known already.
        rows: Rows that were written.
        problems: What could not be taken, each a line with its file.
    """

    requests: int = 0
    repeated: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list)


def ingest(files: Sequence[Path], directory: Path, run: RunKey | None, signal: str | None = None) -> Ingested:
    """Read files into runs.

    Args:
        files: The files.
        directory: Where runs live.
        run: The run of telemetry that names none.
        signal: What protobuf files hold; None to find out.

    Returns:
        What became of them.

    Raises:
        OSError: A file can't be read or the directory not written.
    """
    health, result = Health(), Ingested()
    processor = DuckdbProcessor(directory, run or RunKey(UNASSIGNED), health)
    named = next((known for known in SIGNALS if known.name == signal), None)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            waiting: set[Future[str | None]] = set()
            for file in files:
                for where, record in _requests(file, named, result.problems):
                    waiting.add(pool.submit(_take, processor, where, record))
                    if len(waiting) >= _IN_FLIGHT:
                        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                        _note(done, result)
            _note(wait(waiting).done, result)
    finally:
        processor.close()
    result.repeated = health.counts().get("requests_deduplicated", 0)
    result.rows = health.counts().get("rows_written", 0)
    return result


def _note(done: set[Future[str | None]], result: Ingested) -> None:
    for future in done:
        problem = future.result()
        if problem:
            result.problems.append(problem)
        else:
            result.requests += 1


def _take(processor: DuckdbProcessor, where: str, record: Record) -> str | None:
    attempt = 0
    while True:
        attempt += 1
        try:
            receipt = processor.accept(record)
        except UnavailableError as error:
            if attempt == _ATTEMPTS:
                return f"{where}: {error}"
            time.sleep(error.retry_after_s)
            continue
        except (MalformedError, RefusedError) as error:
            return f"{where}: {error}"
        return f"{where}: {receipt.rejected} items rejected: {receipt.reason}" if receipt.rejected else None


def _requests(file: Path, named: Signal | None, problems: list[str]) -> Iterator[tuple[str, Record]]:
    with _opened(file) as stream:
        try:
            start = stream.read(1)
            stream.seek(0)
            read = _lines(file, stream, problems) if start in b"{\n \t\r" else _framed(file, stream, named, problems)
            yield from read
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problems.append(f"{file}: not whole as gzip ({error}); what came before that was read")


def _opened(file: Path) -> BinaryIO:
    with file.open("rb") as plain:
        zipped = plain.read(2) == b"\x1f\x8b"
    return gzip.open(file) if zipped else file.open("rb")  # type: ignore[return-value] # it reads and seeks


def _lines(file: Path, stream: BinaryIO, problems: list[str]) -> Iterator[tuple[str, Record]]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        signal = next((signal for key, signal in _KEYS.items() if key in line[:200]), None) or next(
            (signal for key, signal in _KEYS.items() if key in line), None
        )
        if signal is None:
            problems.append(f"{where}: no resourceSpans, resourceMetrics or resourceLogs; expected OTLP JSON")
        else:
            yield where, Record(signal, Encoding.JSON, line.rstrip(b"\n"))


def _framed(file: Path, stream: BinaryIO, named: Signal | None, problems: list[str]) -> Iterator[tuple[str, Record]]:
    offset = 0
    while head := stream.read(_LENGTH.size):
        where = f"{file}: byte {offset}"
        length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
        body = stream.read(length) if 0 <= length <= _MAX_REQUEST_BYTES else b""
        if len(body) != length:
            problems.append(f"{where}: cut short or no length; expected OTLP JSON lines or protobuf with lengths")
            return
        offset += _LENGTH.size + length
        if body.startswith(_ZSTD):
            problems.append(f"{where}: compressed with zstd; write without compression, or decompress the requests")
            return
        signal = named or _signal_of(body)
        if signal is None:
            problems.append(f"{where}: neither traces, metrics nor logs; say which with --signal")
        else:
            yield where, Record(signal, Encoding.PROTOBUF, body)


def _signal_of(body: bytes) -> Signal | None:
    """Requests of the three signals look alike on the wire; what is inside them does not."""
    return next((signal for signal, fits in _FITS.items() if _fits(signal, body, fits)), None)


def _fits(signal: Signal, body: bytes, fits: Any) -> bool:
    try:
        return bool(fits(signal.request.FromString(body)))
    except DecodeError:
        return False


def _items(message: Any, *names: str) -> list[Any]:
    found = [message]
    for name in names:
        found = [inner for outer in found for inner in getattr(outer, name)]
    return found


_FITS: Final = {
    TRACES: lambda m: all(
        len(s.trace_id) == 16 and s.name for s in _items(m, "resource_spans", "scope_spans", "spans")
    ),
    METRICS: lambda m: all(
        x.name and x.WhichOneof("data") for x in _items(m, "resource_metrics", "scope_metrics", "metrics")
    ),
    LOGS: lambda m: _items(m, "resource_logs", "scope_logs", "log_records"),
}
