"""The thread that follows one device's energy counter, with its power beside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stepmeter.capture.channel import Channel
from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics
from stepmeter.conventions.attributes import HW_ID
from stepmeter.conventions.resource import HW_TYPE
from stepmeter.samplers.board import Board
from stepmeter.samplers.feed import EnergyFeed, feed_of
from stepmeter.samplers.lock import DeviceLock
from stepmeter.samplers.ticks import TickFollower
from stepmeter.units import NS_PER_S, seconds

RETRY_S = 1.0
"""Between attempts while another process has the device, or NVML has no answer."""

POWER_INTERVAL_S = 0.1
"""Between power samples of a board without a counter."""

_AVERAGE_EVERY_NS = NS_PER_S
_SLOW_EVERY_NS = 60 * NS_PER_S


class _StoppedError(Exception):
    """The thread is to end."""


class EnergySampling:
    """Follows one device; one process a host and run does.

    Args:
        find_uuid: Says which device, by UUID, or None while that is unknown.
        run_id: The run.
        channel: Where readings go.
        on_fault: Told of what no one expected, by a name and the error.
        lock_directory: Where the lock file is; None for the system's.
        watches_processes: Whether processes of others on the device are looked for.
        wanted: Whether anybody still wants it; asked at each tick.
    """

    def __init__(
        self,
        find_uuid: Callable[[], str | None],
        run_id: str,
        channel: Channel[Reading],
        on_fault: Callable[[str, BaseException], None],
        lock_directory: str | None = None,
        *,
        watches_processes: bool = True,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._find_uuid = find_uuid
        self._run_id = run_id
        self._channel = channel
        self._on_fault = on_fault
        self._lock_directory = lock_directory
        self._watches_processes = watches_processes
        self._wanted = wanted
        self._feed = EnergyFeed()
        self._stop = threading.Event()
        self._next_average_ns = self._next_slow_ns = 0
        self._told_faults: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="stepmeter-energy", daemon=True)
        self.cpu_time_s = 0.0
        self.reads = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end; does not wait for a reading under way."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set() and self._attempt():
            pass

    def _attempt(self) -> bool:
        """Follow the device as long as it goes; whether to try again."""
        try:
            self._work()
        except (_StoppedError, ImportError):  # without nvidia-ml-py there is nothing to follow
            return False
        except Exception as error:  # whatever a driver does, training goes on, and so does the next attempt
            self._on_fault(type(self).__name__, error)
            self._stop.wait(RETRY_S)
        return True

    def _work(self) -> None:
        uuid = self._find_uuid()
        if uuid is None:
            self._rest(RETRY_S)
            return
        board = Board(uuid)
        lock: DeviceLock | None = None
        try:
            if not board.open():
                self._tell_faults(board)
                self._rest(RETRY_S)
                return
            if board.uuid != uuid:
                whole = ((HW_ID.key, uuid), (HW_TYPE.key, "gpu"), ("kind", board.uuid))
                self._put(metrics.ENERGY_INSTANCE, 1, monotonic_ns(), whole)
            lock = DeviceLock(self._run_id, board.uuid, self._lock_directory)
            while not lock.take():
                self._rest(RETRY_S)
            self._feed = feed_of(uuid)
            self._feed.followers += 1
            try:
                self._follow(board)
            finally:
                self._feed.followers -= 1
        finally:
            board.close()
            if lock is not None:
                lock.release()

    def _follow(self, board: Board) -> None:
        """Until a query that used to work fails; then the device is found anew."""
        has_counter = board.has_counter()
        if has_counter is None:
            self._tell_faults(board)
            self._rest(RETRY_S)
            return
        follower = TickFollower(board.read_counter, monotonic_ns, self._sleep)
        self._feed.has_counter = has_counter
        while self._wanted():
            if not has_counter:
                self._rest(POWER_INTERVAL_S)
            elif not self._tick(board, follower):
                self._tell_faults(board)
                self._rest(RETRY_S)
                return
            self._power(board)
            self._slow(board)
            self.cpu_time_s = time.thread_time()
        raise _StoppedError

    def _tick(self, board: Board, follower: TickFollower) -> bool:
        begun = follower.reads
        try:
            tick = follower.next()
        except _StoppedError:
            raise
        except Exception as error:  # an NVMLError of any kind, which the module must not be imported for to name
            board.count(error)
            return False
        finally:
            self.reads += follower.reads - begun
        if tick is not None:
            self._feed.tick(tick)
            attributes = _attributes(board)
            gap_ns = tick.t_hi_ns - tick.t_lo_ns
            self._put(metrics.HW_ENERGY, tick.energy_mj / 1000, tick.t_hi_ns, attributes)
            self._put(metrics.ENERGY_TICK_GAP, seconds(gap_ns), tick.t_hi_ns, attributes)
        return True

    def _power(self, board: Board) -> None:
        found = board.power_w()
        now_ns = monotonic_ns()
        self.reads += 1
        wants_average = now_ns >= self._next_average_ns
        if wants_average:
            self._next_average_ns = now_ns + _AVERAGE_EVERY_NS
            throttled = board.is_throttled()
            if throttled is not None:
                self._put(metrics.ENERGY_THROTTLED, int(throttled), now_ns, _attributes(board))
        for kind, power_w in found.items():
            if kind != "average":
                self._feed.power(now_ns, power_w)
            if kind != "average" or wants_average:
                self._put(
                    metrics.HW_POWER, power_w, now_ns, (*_attributes(board), *((("kind", kind),) if kind else ()))
                )

    def _slow(self, board: Board) -> None:
        """What changes seldom and may take milliseconds to ask."""
        now_ns = monotonic_ns()
        self._tell_faults(board)
        if now_ns < self._next_slow_ns:
            return
        self._next_slow_ns = now_ns + _SLOW_EVERY_NS
        limit_w = board.limit_w()
        if limit_w is not None:
            self._feed.limit_w = limit_w
            self._put(metrics.ENERGY_POWER_LIMIT, limit_w, now_ns, _attributes(board))
        others = board.other_processes(self._run_id) if self._watches_processes else None
        if others is not None:
            self._put(metrics.ENERGY_OTHER_PROCESSES, others, now_ns, _attributes(board))

    def _tell_faults(self, board: Board) -> None:
        for reason, count in board.faults.items():
            self._told_faults[reason] = self._told_faults.get(reason, 0) + count
            attributes = (*_attributes(board), ("kind", reason))
            self._put(metrics.ENERGY_FAULTS, self._told_faults[reason], monotonic_ns(), attributes)
        board.faults.clear()

    def _put(
        self, metric: metrics.Metric, value: float, at_ns: int, attributes: tuple[tuple[str, str | int], ...]
    ) -> None:
        self._channel.put(Reading(metric.name, value, at_ns, attributes))

    def _sleep(self, duration_ns: int) -> None:
        """Short sleeps by the system's timer, since waiting on an event costs more than the reading."""
        if duration_ns > 20_000_000:
            self._rest(duration_ns / NS_PER_S)
        elif self._stop.is_set():
            raise _StoppedError
        else:
            time.sleep(duration_ns / NS_PER_S)

    def _rest(self, duration_s: float) -> None:
        if self._stop.wait(duration_s):
            raise _StoppedError


def _attributes(board: Board) -> tuple[tuple[str, str | int], ...]:
    return ((HW_ID.key, board.uuid), (HW_TYPE.key, "gpu"))
