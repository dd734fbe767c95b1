"""Processes and threads of a trace: who has which number, and what the viewer is told of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from stepmeter.report.lanes import Lanes

_DEVICE = "device"
_FIRST_THREAD = 1001  # a viewer takes a thread with the number of its process for the main one
STEPS_TRACK = "steps"
DEVICE_TRACK = "device work"


@dataclass(slots=True)
class Track:
    """One thread of one process, with its lanes.

    Attributes:
        name: Its name.
        process: Number of its process.
        lanes: Its lanes.
        threads: Number of the viewer's thread of each lane.
    """

    name: str
    process: int
    lanes: Lanes = field(default_factory=Lanes)
    threads: list[int] = field(default_factory=list)


class Tracks:
    """Numbers processes and threads as they come.

    Args:
        first_process: Number of the first process.
    """

    def __init__(self, first_process: int = 1) -> None:
        self._first_process = first_process
        self._processes: dict[tuple[object, ...], int] = {}
        self._tracks: dict[tuple[object, ...], Track] = {}
        self._threads = _FIRST_THREAD - 1
        self._of_threads: dict[tuple[int, str, str, int], Track] = {}
        self._new: list[str] = []

    def process(self, rank: int, stream: str) -> int:
        """The process of a rank's stream.

        Args:
            rank: Global rank.
            stream: `default` for the unnamed one.

        Returns:
            Its number.
        """
        known = self._processes.get((rank, stream))
        if known is not None:
            return known
        label = f"rank {rank}" if stream == "default" else f"rank {rank} · {stream}"
        return self._process((rank, stream), label, rank * 10 + (stream != "default"))

    def device(self, hw_id: str) -> int:
        """The process that stands for a device.

        Args:
            hw_id: Its UUID.

        Returns:
            Its number.
        """
        return self._process((_DEVICE, hw_id), hw_id, 1_000_000)

    def of_thread(self, rank: int, stream: str, name: str, thread_id: int) -> Track:
        """The track of a rank's thread.

        Args:
            rank: Global rank.
            stream: `default` for the unnamed one.
            name: Name of the thread.
            thread_id: Tells threads of one name apart.

        Returns:
            The track.
        """
        known = self._of_threads.get((rank, stream, name, thread_id))
        if known is None:
            known = self.track(self.process(rank, stream), name, thread_id)
            self._of_threads[rank, stream, name, thread_id] = known
        return known

    def track(self, process: int, name: str, thread_id: int = 0) -> Track:
        """A track of a process.

        Args:
            process: Number of the process.
            name: Name of the track.
            thread_id: Tells threads of one name apart.

        Returns:
            The track.
        """
        key = (process, name, thread_id)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(name, process)
        return track

    def thread(self, track: Track, lane: int) -> int:
        """The viewer's thread of a lane.

        Args:
            track: The track.
            lane: Number of the lane, at most one more than there were.

        Returns:
            Its number.
        """
        threads = track.threads
        if lane == len(threads):
            self._threads += 1
            threads.append(self._threads)
            name = track.name if not lane else f"{track.name} ({lane + 1})"
            order = {STEPS_TRACK: 0, DEVICE_TRACK: 1}.get(track.name, 2) * 10_000 + self._threads
            self._tell("thread_name", track.process, self._threads, name=name)
            self._tell("thread_sort_index", track.process, self._threads, sort_index=order)
        return threads[lane]

    def after_news(self, event: str) -> str:
        """Put what the viewer has not been told yet before an event.

        Args:
            event: An event as JSON.

        Returns:
            Events as JSON with commas between them.
        """
        return f"{self.news()[2:]},\n{event}" if self._new else event

    def news(self) -> str:
        """What the viewer has not been told yet.

        Returns:
            Events as JSON, each with a comma before it.
        """
        new, self._new = self._new, []
        return "".join([f",\n{event}" for event in new])

    def _process(self, key: tuple[object, ...], label: str, order: int) -> int:
        number = self._processes.get(key)
        if number is None:
            number = self._processes[key] = self._first_process + len(self._processes)
            self._tell("process_name", number, 0, name=label)
            self._tell("process_sort_index", number, 0, sort_index=order)
        return number

    def _tell(self, what: str, process: int, thread: int, **arguments: Any) -> None:
        event = {"ph": "M", "name": what, "pid": process, "tid": thread, "args": arguments}
        self._new.append(json.dumps(event, ensure_ascii=False))  # Perfetto shows an escaped letter as its escape
