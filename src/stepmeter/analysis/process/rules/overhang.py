"""GPU_MEMORY_RESERVED_OVERHANG: a rank's allocator reserves far more than its tensors ever hold.

*Fires*, as a warning, when the greatest reserve is twice the greatest allocation or more, and 30 % of the device's
memory or more.
*Why*: memory is fragmented, or was needed once, as in validation, and never given back.
*Next*: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; call torch.cuda.empty_cache() after phases that need
much.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_bytes, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

MIN_RATIO = 2.0
MIN_SHARE = 0.30


def check(facts: SectionFacts) -> Issue | None:
    """Judge the rank with the greatest ratio."""
    reserved = facts.values("gpu_memory_reserved_bytes")
    allocated = facts.values("gpu_memory_allocated_bytes")
    shares = facts.values("gpu_memory_reserved_share")
    ratios = {
        rank: reserved[rank] / allocated[rank]
        for rank in shares
        if allocated.get(rank, 0.0) > 0 and reaches(shares[rank], MIN_SHARE)
    }
    rank = max(ratios, key=lambda number: (ratios[number], -number), default=None)
    if rank is None or not reaches(ratios[rank], MIN_RATIO):
        return None
    return Issue(
        kind="GPU_MEMORY_RESERVED_OVERHANG",
        status="GPU MEMORY RESERVED OVERHANG",
        severity="warn",
        summary=(
            f"The allocator of rank {rank} reserved {format_bytes(reserved[rank])} "
            f"({format_share(shares[rank])} of the GPU) for tensors of {format_bytes(allocated[rank])} at most."
        ),
        action=(
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or call torch.cuda.empty_cache() after validation "
            "and other phases that need much."
        ),
        metric="gpu_memory_reserved_bytes",
        share=shares[rank],
        ranks=(rank,),
        evidence={"rank": rank, "ratio": ratios[rank], "gpu_memory_reserved_share": shares[rank]},
    )


RULE = Rule(("GPU_MEMORY_RESERVED_OVERHANG",), check, __doc__, {"min_ratio": MIN_RATIO, "min_share": MIN_SHARE})
