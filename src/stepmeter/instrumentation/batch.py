"""What a batch shows of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_DEPTH = 3
_TENSOR = torch.Tensor


def sizes_of(batch: Any) -> tuple[int | None, int | None]:
    """Count the samples and tokens of a batch without touching a device.

    Args:
        batch: Whatever a loader returned.

    Returns:
        Samples: the leading dimension of its first tensor. Tokens: what `attention_mask` keeps, if it lies in host
        memory, else the elements of `input_ids`. Each is None where the batch does not show it.
    """
    kind = type(batch)
    if kind is _TENSOR:
        return _leading(batch), None
    if kind is list or kind is tuple:  # the abstract classes below cost a microsecond
        first: Any = batch[0] if batch else None
        if type(first) is _TENSOR and first.dim():
            return first.size(0), None
    elif isinstance(batch, Mapping):
        ids = batch.get("input_ids")
        if isinstance(ids, torch.Tensor):
            return _leading(ids), _tokens(ids, batch.get("attention_mask"))
    return _leading(_first_tensor(batch, _DEPTH)), None


def _tokens(ids: torch.Tensor, mask: Any) -> int:
    if isinstance(mask, torch.Tensor) and mask.device.type == "cpu" and mask.shape == ids.shape:
        return int(torch.count_nonzero(mask))
    return int(ids.numel())


def _first_tensor(batch: Any, depth: int) -> torch.Tensor | None:
    if isinstance(batch, torch.Tensor):
        return batch
    if depth == 0 or not batch:
        return None
    if isinstance(batch, Mapping):
        return _first_tensor(next(iter(batch.values())), depth - 1)
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return _first_tensor(batch[0], depth - 1)
    return None


def _leading(tensor: torch.Tensor | None) -> int | None:
    return int(tensor.size(0)) if tensor is not None and tensor.dim() else None
