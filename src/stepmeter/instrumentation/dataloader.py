"""Waiting for input: the iterators of `torch.utils.data.DataLoader`."""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import Any, Final

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.batch import sizes_of
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.patch import Patch
from stepmeter.instrumentation.undecided import Undecided, new_loader

_TENSOR: Final = torch.Tensor
_INPUT_WAIT: Final = Undecided.INPUT_WAIT

MADE = "_stepmeter_made"
"""Attribute of an iterator: (number of its loader, ns that making it took and no fetch has been charged with)."""


def patches(boundaries: Boundaries) -> list[Patch]:
    """The patches on the data loader.

    Args:
        boundaries: Where fetches are told.

    Returns:
        One on the making of iterators, which starts workers, and one on their `__next__`.
    """
    return [
        Patch(DataLoader, "__iter__", functools.partial(_timed_iter, boundaries)),
        Patch(_BaseDataLoaderIter, "__next__", functools.partial(timed_next, boundaries)),
    ]


def _timed_iter(boundaries: Boundaries, original: Any) -> Any:
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        if get_ident() != boundaries.owner:
            return original(self)
        start_ns = monotonic_ns()
        iterator = original(self)
        try:
            number = numbers.get(self)
            if number is None:
                number = numbers[self] = new_loader()
            setattr(iterator, MADE, (number, monotonic_ns() - start_ns))
        except Exception as error:
            boundaries.fault("iter", error)
        return iterator

    return __iter__


def timed_next(boundaries: Boundaries, original: Any) -> Any:
    """Make a timed `__next__`.

    Args:
        boundaries: Where fetches are told.
        original: The `__next__` of an iterator with a `__dict__`.

    Returns:
        What takes its place.
    """
    log, fetched = boundaries.log, boundaries.fetched
    is_grad_enabled = torch.is_grad_enabled

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        if boundaries.fetching or get_ident() != boundaries.owner:  # a dataset may read another loader
            return original(self)
        start_ns, loader, no_grad = monotonic_ns(), 0, False
        try:
            attributes = self.__dict__
            made = attributes.get(MADE)
            if made is None:  # it was made before us
                made = attributes[MADE] = (new_loader(), 0)
            loader, making_ns = made
            if making_ns:
                attributes[MADE] = (loader, 0)
                start_ns -= making_ns
            no_grad = not is_grad_enabled()
            if no_grad or not boundaries.updates or not boundaries.publish_plain(loader, start_ns):
                boundaries.fetch_begins(loader, start_ns, no_grad)
            if boundaries.stale:
                boundaries.before_fetch()
                start_ns = monotonic_ns() - making_ns
        except Exception as error:
            boundaries.fault("fetch", error)
        timer = boundaries.timer
        mark = None if timer is None else timer.mark()
        try:  # Ctrl-C may come at any place
            boundaries.fetching = True
            batch = original(self)
            end_ns = monotonic_ns()
            first: Any = batch[0] if type(batch) is list and batch else None
            if type(first) is _TENSOR and first.dim():  # what most loaders give, without a call of ours
                fetched.append(((loader, first.size(0), None), no_grad))
            else:
                fetched.append(((loader, *_sizes_of(boundaries, batch)), no_grad))
            pending = None if timer is None or mark is None else timer.pair(mark)
            log.append((_INPUT_WAIT, start_ns, end_ns, pending))
            boundaries.fetching = False  # last: another thread may ask whether this one trains
        except BaseException as error:
            boundaries.fetching = False
            if isinstance(error, StopIteration):
                _ended(boundaries, loader, start_ns)
            raise
        return batch

    return __next__


def _sizes_of(boundaries: Boundaries, batch: Any) -> tuple[int | None, int | None]:
    try:
        return sizes_of(batch)
    except Exception as error:
        boundaries.fault("fetch", error)
        return None, None


def _ended(boundaries: Boundaries, loader: int, start_ns: int) -> None:
    try:
        boundaries.loader_ended(loader, start_ns)
    except Exception as error:
        boundaries.fault("fetch", error)
