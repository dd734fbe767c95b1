"""Keeping torch.compile's frame evaluator away from our code."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch


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
