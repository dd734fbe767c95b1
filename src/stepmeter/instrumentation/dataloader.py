"""Waiting for input: the iterators of `torch.utils.data.DataLoader`."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.batch import sizes_of
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.patch import Patch

_MADE = "_stepmeter_made"
"""Attribute of an iterator: (identity of its loader, ns that making it took and no fetch has been charged with)."""


def patches(boundaries: Boundaries) -> list[Patch]:
    """The patches on the data loader.

    Args:
        boundaries: Where fetches are told.

    Returns:
        One on the making of iterators, which starts workers, and one on their `__next__`.
    """
    return [
        Patch(DataLoader, "__iter__", functools.partial(_timed_iter, boundaries)),
        Patch(_BaseDataLoaderIter, "__next__", functools.partial(_timed_next, boundaries)),
    ]


def _timed_iter(boundaries: Boundaries, original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        if get_ident() != boundaries.owner:
            return original(self)
        start_ns = monotonic_ns()
        iterator = original(self)
        try:
            setattr(iterator, _MADE, (id(self), monotonic_ns() - start_ns))
        except Exception as error:
            boundaries.fault("iter", error)
        return iterator

    return __iter__


def _timed_next(boundaries: Boundaries, original: Any) -> Any:
    fetch = Fetches(boundaries)
    begins, ended, loader_ended = fetch.begins, fetch.ended, fetch.loader_ended

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        if get_ident() != boundaries.owner or fetch.inside:
            return original(self)
        fetch.inside = True
        started = begins(self)
        try:
            batch = original(self)
        except StopIteration:
            loader_ended(started)
            raise
        finally:
            fetch.inside = False
        ended(started, batch)
        return batch

    return __next__


class Fetches:
    """Tells fetches from iterators, and keeps failures of ours from the program.

    Attributes:
        inside: Whether a fetch is going on; a dataset may read another loader.
    """

    __slots__ = ("_boundaries", "inside")

    def __init__(self, boundaries: Boundaries) -> None:
        self._boundaries = boundaries
        self.inside = False

    def begins(self, iterator: Any) -> tuple[int, int, bool] | None:
        """An iterator is asked.

        Args:
            iterator: A loader's iterator.

        Returns:
            (identity of the loader, start in ns, whether gradients are off), or None when telling it failed.
        """
        try:
            start_ns = monotonic_ns()
            attributes = iterator.__dict__
            loader, making_ns = attributes.get(_MADE) or (id(iterator), 0)
            if making_ns:
                attributes[_MADE] = (loader, 0)
                start_ns -= making_ns
            no_grad = not torch.is_grad_enabled()
            self._boundaries.fetch_begins(loader, start_ns, no_grad=no_grad)
            if self._boundaries.before_fetch is not None:
                self._boundaries.before_fetch()
                start_ns = monotonic_ns() - making_ns
        except Exception as error:
            self._boundaries.fault("fetch", error)
            return None
        return loader, start_ns, no_grad

    def ended(self, started: tuple[int, int, bool] | None, batch: Any) -> None:
        """The iterator returned a batch.

        Args:
            started: What `begins` returned.
            batch: The batch.
        """
        if started is None:
            return
        try:
            loader, start_ns, no_grad = started
            end_ns = monotonic_ns()
            self._boundaries.fetch_ended(start_ns, end_ns, (loader, *sizes_of(batch)), no_grad=no_grad)
        except Exception as error:
            self._boundaries.fault("fetch", error)

    def loader_ended(self, started: tuple[int, int, bool] | None) -> None:
        """The iterator had no further batch.

        Args:
            started: What `begins` returned.
        """
        if started is None:
            return
        try:
            self._boundaries.loader_ended(started[0], started[1])
        except Exception as error:
            self._boundaries.fault("fetch", error)
