"""The DuckDB processor: acknowledges a request once it is durable, and turns what is durable into segments.

accept → parse and check → journal, one sync for all that wait → acknowledged
                                 └ once a second → rows → a segment for each run and table → the file goes
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.closed import Closed, left_over
from stepmeter.collector.committer import Committer, Pending
from stepmeter.collector.decode import UNASSIGNED
from stepmeter.collector.folder import Folder
from stepmeter.collector.journal import JournalFile, Record, journal_files
from stepmeter.collector.open_runs import OpenRuns
from stepmeter.collector.otlp import parse
from stepmeter.collector.rank_rules import RankRules
from stepmeter.collector.seen import Receipt, SeenRequests, digest_of
from stepmeter.collector.seen_file import SeenFile
from stepmeter.collector.segment_writer import SegmentWriter
from stepmeter.collector.signals import CONTENTS, items_of, runs_of
from stepmeter.collector.slot import take_slot
from stepmeter.collector.spares import Spares
from stepmeter.collector.verdicts import RefusedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from stepmeter.collector.decode import RunKey
    from stepmeter.collector.health import Health
    from stepmeter.collector.otlp import Signal

_SEGMENT_BYTES: Final = 32 << 20
"""Requests of this size become segments before their second is over."""
_WAITING_BYTES: Final = 128 << 20
"""Beyond this much that no segment holds yet, senders are asked to come again."""
_LEISURE_BYTES: Final = 32 << 20
"""As long as no more than this waits, senders go first."""
_PATIENCE_S: Final = 0.3
"""How long the making of a file's segments, of which one is due each second, gives way to senders at most."""


class DuckdbProcessor:
    """Journal and segments of one collector; `accept` may be called by any number of threads.

    Args:
        directory: The directory of runs.
        default_run: The run of telemetry that names none.
        health: Counters.
        flush_interval_s: How often the journal becomes segments.
        on_durable: Called once for each request that is durable; must not wait.
        slot_number: The slot to take over; None for the first free one.
        rules: Alert rules over ranks, and a URL that takes their alerts or None.

    Raises:
        OSError: The directory can't be written.
    """

    def __init__(
        self,
        directory: Path,
        default_run: RunKey,
        health: Health,
        flush_interval_s: float = 1.0,
        on_durable: Callable[[Record], None] | None = None,
        slot_number: int | None = None,
        rules: tuple[Sequence[Any], str | None] = ((), None),
    ) -> None:
        self._rules = RankRules(directory, *rules, health)
        self.trouble: str | None = None
        self._default_run = default_run
        self._health = health
        self._flush_interval_s = flush_interval_s
        self._on_durable = on_durable
        self._slot = take_slot(directory, slot_number)
        self._runs = OpenRuns(directory)
        self._writer = SegmentWriter(self._runs, self._slot.collector, health)
        self._folder = Folder(self._slot.collector, health)
        self._seen = SeenRequests(health)
        self._seen_file = SeenFile(self._slot.journal_dir)
        for digest, receipt in self._seen_file.read():
            self._seen.remember(digest, receipt)
        left_over = journal_files(self._slot.journal_dir)
        self._spares = Spares(self._slot.journal_dir)
        self._file = JournalFile(self._slot.journal_dir, self._slot.first_number, default_run)
        self._open: list[Pending] = []
        self._waiting_bytes = self._accepting = 0
        self._file_lock, self._count_lock = threading.Lock(), threading.Lock()
        self._backlog = deque(self._take_over(number, path) for number, path in left_over)
        self._wake = threading.Event()
        self._committer = Committer(self._commit)
        self._flusher = threading.Thread(target=self._flush_loop, name="stepmeter-segments", daemon=True)
        self._committer.start()
        self._flusher.start()

    def accept(self, record: Record) -> Receipt:
        """Make a request durable; one that came before is acknowledged and not written again.

        Args:
            record: The request.

        Returns:
            The receipt, once the request is durable.

        Raises:
            MalformedError: It can't be decoded.
            RefusedError: Its run takes no more telemetry.
            UnavailableError: It can't be made durable now.
        """
        digest = digest_of(record)
        return self._seen.once(digest, lambda: self._make_durable(record, digest))

    def close(self) -> None:
        """Write what was acknowledged into segments; what can't be stays in the journal for the next start."""
        self._committer.close()
        self._wake.set()
        self._flusher.join()
        self._rules.close()
        self._folder.close()
        self._file.close(trim=True)
        self._spares.close()
        self._runs.close()
        self._seen_file.close()
        self._slot.release()

    def _make_durable(self, record: Record, digest: bytes) -> Receipt:
        self._reserve(len(record.body), 1)
        try:
            message = parse(record.signal, record.encoding, record.body)
            receipt = self._check(record.signal, message)
            self._committer.make_durable(Pending(record, digest, receipt))
        except BaseException:
            self._reserve(-len(record.body), -1)
            raise
        self._reserve(0, -1)
        self._health.count("requests_accepted")
        if self._on_durable:
            self._on_durable(record)
        if receipt.rejected:
            problem = f"rejected {receipt.rejected} of a request: {receipt.reason}"
            self._health.warn(f"{record.signal.name}_rejected", problem, receipt.rejected)
        return receipt

    def _reserve(self, size_bytes: int, senders: int) -> None:
        """Count what is in memory from the moment that it came until a segment has it, and who waits for an answer."""
        with self._count_lock:  # not the one that is held during a sync: requests are parsed meanwhile
            if size_bytes > 0 and self._waiting_bytes and self._waiting_bytes + size_bytes > _WAITING_BYTES:
                raise UnavailableError(f"{self._waiting_bytes >> 20} MiB wait to be written")
            self._waiting_bytes += size_bytes
            self._accepting += senders

    def _check(self, signal: Signal, message: Any) -> Receipt:
        """What of a request can't be taken: what the store can't hold, and what is for runs that are over."""
        refused: dict[RunKey, str] = {}
        admitted = False
        for run in runs_of(signal, message, self._default_run):
            reason = self._runs.admit(run)
            admitted = admitted or reason is None
            if reason is not None:
                refused[run] = reason
        if refused and not admitted:
            raise RefusedError("; ".join(refused.values()))
        rejected, problem = CONTENTS[signal].reject(message)
        if refused:
            rejected += items_of(signal, message, self._default_run, refused)
            problem = "; ".join([*refused.values(), *filter(None, [problem])])
        return Receipt(rejected, problem)

    # ── journal ──────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, batch: list[Pending]) -> None:
        try:
            with self._file_lock:
                self._file.append([pending.record for pending in batch])
                self._open.extend(batch)
        except OSError as error:
            self._health.warn("journal_failures", f"can't write the journal: {error}; senders are asked to retry")
            for pending in batch:
                pending.durable.set_exception(UnavailableError(f"can't write the journal: {error.strerror}"))
            return
        for pending in batch:
            pending.durable.set_result(None)
        if self._waiting_bytes > _SEGMENT_BYTES:
            self._wake.set()

    # ── segments ─────────────────────────────────────────────────────────────────────────────────────────────

    def _flush_loop(self) -> None:
        self._warm_up()
        self._write_backlog()
        while self._committer.is_alive or self._open:
            self._wake.wait(self._flush_interval_s)
            self._wake.clear()
            stopped = not self._committer.is_alive
            rotated = self._rotate()
            written = self._write_backlog()
            if stopped and not (rotated and written):
                return
            if not self._open and not self._backlog:
                self._runs.release_idle()

    def _warm_up(self) -> None:
        """Make the default run whole, if it is a named one, away from the start and the first second's data."""
        if self._default_run.run_id != UNASSIGNED:
            try:
                self._writer.open_run(self._default_run)
            except (OSError, UnavailableError) as error:
                self._fail(f"can't make the run: {error}")

    def _rotate(self) -> bool:
        """Begin a new journal file, unless the current one is empty."""
        if not self._open:
            return True
        try:
            fresh = JournalFile(self._slot.journal_dir, self._file.number + 1, self._default_run, self._spares)
        except OSError as error:
            self._fail(f"can't begin a journal file: {error}")
            return False
        with self._file_lock:
            full, self._file = self._file, fresh
            records = [pending.record for pending in self._open]
            size_bytes = sum(len(record.body) for record in records)
            seen = {pending.digest: pending.receipt for pending in self._open}
            self._backlog.append(Closed(full.number, full.path, size_bytes, seen, lambda: (self._default_run, records)))
            self._open = []  # last, so that what waits is at each moment in the one or in the other
        full.close()
        return True

    def _write_backlog(self) -> bool:
        """Write in order, so that a reader's cursor, the newest number, never passes over an older one."""
        while self._backlog:
            closed = self._backlog[0]
            try:
                run, requests = closed.load()
                directory_of, forward = self._writer.open_run, self._on_durable
                requests = self._rules.with_alerts(closed.number, run, requests, directory_of, forward)
                self._health.count("rows_written", self._writer.write(closed.number, run, self._at_leisure(requests)))
                self._seen_file.append(closed.seen)
                self._remove(closed)
                self._folder.written(self._runs.all(), closed.number)
            except (OSError, UnavailableError) as error:
                self._fail(f"can't write segments: {error}; what was acknowledged is safe in the journal")
                return False
            except Exception as error:  # whatever it is, it must not keep all later requests from the store
                aside = closed.path.rename(closed.path.with_suffix(".broken"))
                self._health.warn("journals_broken", f"{aside}: kept aside, not written: {error!r}")
            self._backlog.popleft()
            with self._count_lock:
                self._waiting_bytes -= closed.size_bytes
        self.trouble = None
        return True

    def _at_leisure(self, requests: Iterable[Record]) -> Iterable[Record]:
        """Give requests out one by one, each when no sender waits: segments have a second's time, senders have not."""
        end_s = time.monotonic() + _PATIENCE_S
        for request in requests:
            while self._accepting and self._waiting_bytes < _LEISURE_BYTES and time.monotonic() < end_s:
                time.sleep(0.001)
            yield request

    def _remove(self, closed: Closed) -> None:
        if closed.number < self._slot.first_number:
            closed.path.unlink()  # of another process, maybe of a version that can't tell requests of two uses apart
        else:
            self._spares.keep(closed.path)

    def _fail(self, message: str) -> None:
        self.trouble = message
        self._health.warn("segment_failures", message)

    def _take_over(self, number: int, path: Path) -> Closed:
        """The requests of a process that is gone count as seen, whoever sends them again."""
        closed = left_over(number, path, self._default_run)
        for digest, receipt in closed.seen.items():
            self._seen.remember(digest, receipt)
        if closed.seen:
            self._health.count("requests_replayed", len(closed.seen))
        return closed
