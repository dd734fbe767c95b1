"""POWER_THROTTLED: power or heat held a device's clocks down.

*Fires*, as a warning, when that was so in 10 % of the readings, one a second, or more.
*Why*: a device at its power limit, or too hot, lowers its clocks, and steps take longer.
*Next*: see the limit and the cooling; a little less power often costs little time, so the limit may be meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_share

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import TrainingEnergy

WARN_SHARE = 0.10


def check(facts: TrainingEnergy) -> Issue | None:
    """Judge the device that was held down most."""
    held = [(device.throttled_share, device) for device in facts.devices if device.throttled_share is not None]
    if not held:
        return None
    share, device = max(held, key=lambda pair: (pair[0], pair[1].hw_id))
    if not reaches(share, WARN_SHARE):
        return None
    return Issue(
        kind="POWER_THROTTLED",
        status="POWER THROTTLED",
        severity="warn",
        summary=f"Power or heat held the clocks of {device.hw_id} down {format_share(share)} of the time.",
        action="See its power limit and its cooling; if the limit is meant, nothing.",
        metric="throttled_share",
        score=share,
        share=share,
        ranks=device.ranks,
        evidence={"hw_id": device.hw_id},
    )


RULE = Rule(("POWER_THROTTLED",), check, __doc__, {"warn": WARN_SHARE})
