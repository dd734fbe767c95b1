"""Backward: `torch.autograd.backward`, which `Tensor.backward` looks up on each call."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.closing import BACKWARD_INDEX
from stepmeter.instrumentation.patch import Patch


def patches(boundaries: Boundaries) -> list[Patch]:
    """The patch on backward.

    Args:
        boundaries: Where backward calls are told.

    Returns:
        The one patch.
    """
    return [Patch(torch.autograd, "backward", functools.partial(_timed, boundaries))]


def _timed(boundaries: Boundaries, original: Any) -> Any:
    log = boundaries.log
    compiler: Any = torch.compiler

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if boundaries.in_backward or compiler._is_compiling_flag:  # noqa: SLF001 - a call costs more
            return original(*args, **kwargs)
        if get_ident() != boundaries.owner and not taken_over():
            return original(*args, **kwargs)
        try:  # Ctrl-C may come at any place
            boundaries.in_backward = True
            timer = boundaries.timer
            mark = None if timer is None else timer.mark()
            start_ns = monotonic_ns()
            result = original(*args, **kwargs)
            end_ns = monotonic_ns()
            pending = None if timer is None or mark is None else timer.pair(mark)
            log.append((BACKWARD_INDEX, start_ns, end_ns, pending))
            boundaries.in_backward = False  # last: another thread may ask whether this one trains
        except BaseException:
            boundaries.failed()
            raise
        return result

    def taken_over() -> bool:
        try:
            return boundaries.takes_over()
        except Exception as error:
            boundaries.fault("backward", error)
            return False

    return backward
