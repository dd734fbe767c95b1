"""How the interpreter of a collector process shares its time: who waits for an answer goes first."""

from __future__ import annotations

import gc
import sys
from typing import Final

_SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread may keep the interpreter: building segments must not hold acknowledgements up for 5 ms each."""

_COLLECT_AFTER: Final = (50_000, 20, 100)
"""Of some 100,000 rows that wait for their segment none is part of a cycle; looking through them took a third of the
time that they took."""


def begin() -> None:
    """Switch threads often, and look for no cycles: while all is being imported, a full look takes 0.03 to 0.1 s."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.disable()


def settle() -> None:
    """What is there by now stays: look for cycles again, seldom, and only in what is new."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()
