"""Accelerate's loaders: they fetch one batch ahead and copy it to the device, all of which is one fetch to the loop.

The iterator under theirs would show two fetches in the first step, and none in the last.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import Any, Final

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.explicit import TimedIterator
from stepmeter.instrumentation.instrumentor import installed
from stepmeter.instrumentation.patch import Patch
from stepmeter.instrumentation.undecided import new_loader

_LOADERS: Final = ("DataLoaderShard", "DataLoaderDispatcher", "SkipDataLoader")


def switches(module: Any, recorder: Recorder) -> list[Patch]:
    """The changes to Accelerate's loaders.

    Args:
        module: `accelerate.data_loader`.
        recorder: Where a failure is reported.

    Returns:
        One for each kind of loader that this version has.
    """
    timed = functools.partial(_timed, recorder)
    return [Patch(getattr(module, name), "__iter__", timed) for name in _LOADERS if hasattr(module, name)]


def _timed(recorder: Recorder, original: Any) -> Any:
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        iterator = original(self)
        try:
            installation = installed()
            if installation is None or installation.boundaries.owner != get_ident():
                return iterator
            if self not in numbers:
                numbers[self] = new_loader()
            return TimedIterator(iterator, numbers[self], 0)
        except Exception as error:
            recorder.fault("iter", error)
            return iterator

    return __iter__
