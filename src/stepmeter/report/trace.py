"""A run as a Chrome trace, which Perfetto and chrome://tracing open; written row by row.

Source:
    "Trace Event Format", Google, for the JSON; times are microseconds.
"""

from __future__ import annotations

import json
import operator
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from stepmeter.analysis.queries import query
from stepmeter.errors import StoreError, UsageError
from stepmeter.report.trace_energy import TraceEnergies
from stepmeter.report.trace_tracks import DEVICE_TRACK, Tracks
from stepmeter.store.connection import Spill
from stepmeter.store.reader import open_run
from stepmeter.store.snapshot import Snapshot

_MEMORY_BYTES: Final = 512 << 20
_MERGED_FIRST_PROCESS: Final = 10_000_000  # beyond any process id that a profiler's trace names
_NS_PER_US: Final = 1000
_START: Final = 4
_end_of: Final = operator.itemgetter(5)


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a run goes into a trace; all of it where None. All must hold.

    Attributes:
        streams: Streams, `default` for the unnamed one.
        ranks: Global ranks.
        steps: (first, end): steps from `first` on and below `end`; either may be None.
        time_ns: (start, end) in Unix time: spans that overlap it, uncut, without those of no length; likewise.
    """

    streams: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    steps: tuple[int | None, int | None] = (None, None)
    time_ns: tuple[int | None, int | None] = (None, None)

    @property
    def empty(self) -> bool:
        """Whether a range selects nothing."""
        return any(low is not None and high is not None and low >= high for low, high in (self.steps, self.time_ns))


def write_trace(
    run: Path, output: Path, selection: Selection, temp_dir: Path | None = None, merge: Path | None = None
) -> int:
    """Write a trace; a file that is there stays as it is until the new one is whole.

    Args:
        run: The run directory.
        output: Where to write.
        selection: What of the run.
        temp_dir: Where sorting goes when it needs more than 512 MiB; the system's temporary directory when None.
        merge: A torch.profiler trace to lay on the same clock, or None.

    Returns:
        The number of spans and steps in it.

    Raises:
        StoreError: The run can't be read, or the file can't be written.
        UsageError: `merge` is no trace of torch.profiler, or `temp_dir` is no directory.
    """
    if temp_dir is not None and not temp_dir.is_dir():
        raise UsageError(f"{temp_dir}: no such directory; make it or leave --temp-dir out")
    merged = None if merge is None else _read_profile(merge)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="stepmeter-trace-", dir=temp_dir) as spill_dir,
            open_run(run, Spill(Path(spill_dir), _MEMORY_BYTES)) as reader,
        ):
            return _replace(output, lambda file: _write(file, reader.snapshot(), selection, merged))
    except OSError as error:
        raise StoreError(f"{output}: can't be written ({error.strerror or error}); choose another -o") from None


def _replace(output: Path, write: Any) -> int:
    descriptor, name = tempfile.mkstemp(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            count: int = write(file)
        beside.chmod(0o644)
        beside.replace(output)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    return count


def _write(file: IO[str], snapshot: Snapshot, selection: Selection, merged: dict[str, Any] | None) -> int:
    spans = query("trace_spans")
    parameters = [
        None if selection.streams is None else list(selection.streams),
        None if selection.ranks is None else list(selection.ranks),
        *selection.steps,
        *selection.time_ns,
    ]
    energies = TraceEnergies(snapshot)
    chunks = iter(()) if selection.empty else snapshot.stream(spans, parameters)
    rows = next(chunks, [])
    first_ns: int = rows[0][_START] if rows else 0
    last_ns = first_ns
    origin_ns = first_ns if merged is None else _earlier(merged, first_ns if rows else None)
    events = _Events(origin_ns, _MERGED_FIRST_PROCESS if merged else 1, energies)
    about = {"origin_unix_ns": str(origin_ns), **({"energy": energies.trouble} if energies.trouble else {})}
    file.write('{"displayTimeUnit":"ms","otherData":' + json.dumps(about))
    file.write(',"traceEvents":[\n{"ph":"M","name":"stepmeter","pid":0,"tid":0,"args":{}}')
    while rows:
        file.write(events.spans(rows))
        last_ns = max(last_ns, *map(_end_of, rows))
        rows = next(chunks, [])
    if events.count:
        for name, write in (("device", events.device), ("counters", events.counter), ("alerts", events.alert)):
            for found in snapshot.stream(query(f"trace_{name}"), [parameters[1], first_ns, last_ns]):
                file.write("".join([f",\n{write(*row)}" for row in found]))
    if merged is not None:
        for event in _moved(merged, origin_ns):
            file.write(f",\n{json.dumps(event, ensure_ascii=False)}")
    file.write("\n]}\n")
    return events.count


class _Events:
    """Makes the events of a trace.

    Args:
        origin_ns: Zero of its clock, Unix time in ns.
        first_process: Number of its first process.
        energies: What steps and calls cost.
    """

    def __init__(self, origin_ns: int, first_process: int, energies: TraceEnergies) -> None:
        self._energies = energies
        self._origin_ns = origin_ns
        self._tracks = Tracks(first_process)
        self._quoted: dict[str, str] = {}
        self.count = 0

    def spans(self, rows: list[tuple[Any, ...]]) -> str:
        """Spans of `trace_spans`, each with a comma before it; one loop, since a million of them go through it."""
        tracks, of_step, of_span = self._tracks, self._energies.of_step, self._energies.of_span
        origin_ns = self._origin_ns
        written: list[str] = []
        for rank, stream, name, thread_id, start_ns, end_ns, span_id, parent_id, step, attempt, event in rows:
            track = tracks.of_thread(rank, stream, name, thread_id)
            lane = track.lanes.place(span_id, parent_id, start_ns, end_ns)
            if lane == len(track.threads):
                tracks.thread(track, lane)
                written.append(tracks.news())
            energy = of_span(span_id) if step is None else of_step(attempt, rank, step)
            more = "" if not energy else energy if event[-1] == "{" else f",{energy}"
            ts = (start_ns - origin_ns) / _NS_PER_US
            written.append(f',\n{{"pid":{track.process},"tid":{track.threads[lane]},"ts":{ts},{event}{more}}}}}')
        self.count += len(rows)
        return "".join(written)

    def device(self, rank: int, step: int, start_ns: int, end_ns: int) -> str:
        """One step of `trace_device`."""
        tracks = self._tracks
        process = tracks.process(rank, "default")
        track = tracks.track(process, DEVICE_TRACK)
        thread = tracks.thread(track, track.lanes.place(f"{step}", None, start_ns, end_ns))
        return tracks.after_news(
            f'{{"ph":"X","name":"step {step}","cat":"device","pid":{process},"tid":{thread},'
            f'"ts":{self._us(start_ns)},"dur":{(end_ns - start_ns) / _NS_PER_US},"args":{{"step":{step}}}}}'
        )

    def counter(self, rank: int, hw_id: str | None, counter: str, unit: str, time_ns: int, value: float) -> str:
        """One point of `trace_counters`."""
        tracks = self._tracks
        process = tracks.process(rank, "default") if hw_id is None else tracks.device(hw_id)
        return tracks.after_news(
            f'{{"ph":"C","name":{self._quote(counter)},"pid":{process},"tid":0,"ts":{self._us(time_ns)},'
            f'"args":{{"{unit}":{value}}}}}'
        )

    def alert(self, rank: int, time_ns: int, level: str, message: str | None, step: int | None) -> str:
        """One alert of `trace_alerts`."""
        process = self._tracks.process(rank, "default")
        event = {
            "ph": "i",
            "s": "p",
            "name": f"{(level or 'alert').lower()}: {message or ''}",
            "cat": "alert",
            "pid": process,
            "tid": 0,
            "ts": self._us(time_ns),
            "args": {"step": step},
        }
        return self._tracks.after_news(json.dumps(event, ensure_ascii=False))

    def _us(self, at_ns: int) -> float:
        return (at_ns - self._origin_ns) / _NS_PER_US

    def _quote(self, text: str) -> str:
        quoted = self._quoted.get(text)
        if quoted is None:
            if len(self._quoted) > 10_000:
                self._quoted.clear()
            quoted = self._quoted[text] = json.dumps(text, ensure_ascii=False)
        return quoted


def _read_profile(path: Path) -> dict[str, Any]:
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not readable as JSON ({error}); give what torch.profiler exported") from None
    if not isinstance(profile, dict) or not isinstance(profile.get("traceEvents"), list):
        raise UsageError(f"{path}: no traceEvents in it; give what torch.profiler's export_chrome_trace wrote")
    return profile


def _earlier(profile: dict[str, Any], first_ns: int | None) -> int:
    """Zero of the clock: viewers drop what is before it."""
    base_ns = int(profile.get("baseTimeNanoseconds", 0))
    moments = [
        base_ns + int(event["ts"] * _NS_PER_US)
        for event in profile["traceEvents"]
        if isinstance(event, dict) and isinstance(event.get("ts"), int | float) and event.get("ph") != "M"
    ]
    return min([*moments, *([] if first_ns is None else [first_ns])], default=0)


def _moved(profile: dict[str, Any], origin_ns: int) -> Iterator[dict[str, Any]]:
    """A profile's events on our clock; its times are microseconds since its own base, which is Unix time in ns."""
    shift_us = (int(profile.get("baseTimeNanoseconds", 0)) - origin_ns) / _NS_PER_US
    for event in profile["traceEvents"]:
        if isinstance(event, dict):
            if isinstance(event.get("ts"), int | float) and event.get("ph") != "M":
                event["ts"] += shift_us
            yield event
