"""HIGH_GPU_TEMPERATURE: a GPU became so hot that it may slow itself down.

*Fires*, critical, when the highest reading of a device is 85 degrees Celsius or more.
*Why*: at its limit a device lowers its clocks, and the ranks that wait for it slow down with it.
*Next*: look at fans, airflow and neighbours; compare its clocks with those of the other devices.

Source: the threshold of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

CRIT_C = 85.0
METRIC = "gpu_temperature_peak_c"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the hottest GPU."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], CRIT_C):
        return None
    node, peak_c = worst
    device = facts.rows[node].devices[METRIC]
    return Issue(
        kind="HIGH_GPU_TEMPERATURE",
        status="HIGH GPU TEMPERATURE",
        severity="crit",
        summary=f"GPU {device} of node {node} reached {peak_c:.0f} degrees Celsius.",
        action="Check fans, airflow and neighbours, and whether its clocks fall behind those of the other devices.",
        metric=METRIC,
        evidence={"node_rank": node, "hw_id": device, METRIC: peak_c},
    )


RULE = Rule(("HIGH_GPU_TEMPERATURE",), check, __doc__, {"crit_c": CRIT_C})
