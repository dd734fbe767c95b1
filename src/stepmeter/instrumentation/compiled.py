"""torch.compile: kept away from our code, and seen when it compiles."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

_CALLBACKS: Final = "torch._dynamo.callback"


def skip_frames(objects: Iterable[Any]) -> None:
    """Mark functions so that dynamo never captures their frames; what they call is evaluated as usual.

    Args:
        objects: Functions, or classes whose methods are meant.
    """
    evaluator = torch._C._dynamo.eval_frame  # noqa: SLF001 - dynamo's own way, without importing dynamo
    for code in _codes(objects):
        if hasattr(evaluator, "set_code_exec_strategy"):
            action, strategy = evaluator._FrameAction, evaluator._FrameExecStrategy  # noqa: SLF001 - likewise
            evaluator.set_code_exec_strategy(code, strategy(action.SKIP, action.DEFAULT))
        elif hasattr(evaluator, "skip_code"):  # until torch 2.7
            evaluator.skip_code(code)


def _codes(objects: Iterable[Any]) -> Iterable[types.CodeType]:
    for item in objects:
        for member in vars(item).values() if isinstance(item, type) else (item,):
            if isinstance(member, types.FunctionType):
                yield member.__code__


class CompileWatch:
    """Tells when dynamo compiles a frame, a backward or a CUDA graph; never imports dynamo itself.

    Args:
        compiling: Called at the beginning of each compilation.
    """

    __slots__ = ("_compiling", "_handler", "_on")

    def __init__(self, compiling: Callable[[], None]) -> None:
        self._compiling = compiling
        self._handler: Any = None
        self._on = False

    def on(self) -> None:
        """Register with dynamo, or wait for it to be imported."""
        self._on = True
        dynamo = sys.modules.get(_CALLBACKS)
        if dynamo is not None:
            self._imported(dynamo)
            return
        import wrapt

        wrapt.register_post_import_hook(self._imported, _CALLBACKS)

    def renew(self) -> None:
        """Register again if the program has reset dynamo, which forgets all callbacks."""
        if self._handler is not None and self._begins not in self._handler.start_callbacks:
            self._handler.register_start_callback(self._begins)

    def off(self) -> None:
        """Leave dynamo alone."""
        self._on = False
        if self._handler is not None and self._begins in self._handler.start_callbacks:
            self._handler.remove_start_callback(self._begins)
        self._handler = None

    def _imported(self, dynamo: Any) -> None:
        handler = getattr(dynamo, "callback_handler", None)
        if self._on and handler is not None and hasattr(handler, "register_start_callback"):
            self._handler = handler
            self.renew()

    def _begins(self, *_: Any) -> None:
        if self._on:
            self._compiling()
