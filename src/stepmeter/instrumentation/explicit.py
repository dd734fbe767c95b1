"""What a program may say itself: where a step is, and which iterable gives its input.

Without an installation, in forked children and where stepmeter is switched off all of it does nothing; none of it
imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.ending import end_step
from stepmeter.capture.step import StepCapture
from stepmeter.capture.step_context import StepSpan, enter_step, leave_step
from stepmeter.instrumentation.instrumentor import Installation, installed
from stepmeter.instrumentation.undecided import new_loader

Item = TypeVar("Item")

_tracing: list[Installation] = []
"""The installation in which a step is open; a `trace_step` inside another counts once, the outer."""


class TracedStep:
    """The block of one step; an exception through it discards the step and passes unchanged.

    Args:
        model: The module whose calls are forwards, where no optimizer tells; None = those that are found.
    """

    __slots__ = ("_capture", "_installation", "_model", "_span", "_start_ns")

    def __init__(self, model: Any = None) -> None:
        self._model = model
        self._capture: StepCapture | None = None
        self._installation: Installation | None = None
        self._span: StepSpan | None = None
        self._start_ns = 0

    @property
    def capture(self) -> StepCapture | None:
        """The step; None outside the block, and where the block counts for nothing."""
        return self._capture

    def __enter__(self) -> None:
        installation = installed()
        if installation is None or installation in _tracing or not installation.recorder.recording:
            return
        boundaries = installation.boundaries
        try:
            if self._model is not None:
                installation.roots.watch(self._model)
            self._start_ns = monotonic_ns()
            self._capture = boundaries.step_begins(self._start_ns)
            self._span = enter_step(installation.recorder)
        except Exception as error:
            self._capture = None
            boundaries.fault("trace_step", error)
            return
        self._installation = installation
        _tracing[:] = [installation]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        installation, capture = self._installation, self._capture
        if installation is None or capture is None:
            return
        self._installation = self._capture = None
        _tracing.clear()
        leave_step(self._span)
        end_step(installation.recorder, capture, completed=kind is None, start_ns=self._start_ns)


def is_tracing() -> bool:
    """Whether a step is open that the program marks.

    Returns:
        True inside a `trace_step`.
    """
    return installed() in _tracing


def trace_step(model: Any = None) -> TracedStep:
    """Say where a step is; from the first time on the program alone says where its steps are.

    Work seen before the block, such as the fetch of its batch, is the step's too. A block inside another counts once.

    Args:
        model: The module whose calls are forwards; None = the modules above optimized parameters, which are found.

    Returns:
        A context manager around one step.
    """
    return TracedStep(model)


class WrappedLoader(Generic[Item]):
    """An iterable whose batches are input.

    Args:
        iterable: What to read.
    """

    def __init__(self, iterable: Iterable[Item]) -> None:
        self._iterable = iterable
        self._number = new_loader()

    def __iter__(self) -> Iterator[Item]:
        start_ns = monotonic_ns()
        iterator = iter(self._iterable)
        return TimedIterator(iterator, self._number, monotonic_ns() - start_ns)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type] # raises what the program's own iterable raises

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._iterable, name)


class TimedIterator(Generic[Item]):
    """An iterator whose every `__next__` is a fetch.

    Args:
        iterator: What to read.
        loader: The number of its loader, from `new_loader`.
        making_ns: What making the iterator took.
    """

    def __init__(self, iterator: Iterator[Item], loader: int, making_ns: int) -> None:
        self._iterator = iterator
        self._stepmeter_made = (loader, making_ns)
        self._timed: tuple[Installation, Any] | None = None

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        installation = installed()
        if installation is None:
            return next(self._iterator)
        if self._timed is None or self._timed[0] is not installation:
            self._timed = installation, installation.timed_next(TimedIterator._fetch)
        batch: Item = self._timed[1](self)
        return batch

    def _fetch(self) -> Item:
        return next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterator":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._iterator, name)


def wrap_loader(iterable: Iterable[Item]) -> WrappedLoader[Item]:
    """Time the fetches of an iterable that is no torch `DataLoader` as input wait.

    Args:
        iterable: What gives batches; a `DataLoader` may be wrapped too and is counted once.

    Returns:
        An iterable over the same items, with the length and the attributes of the original.
    """
    return WrappedLoader(iterable)
