from __future__ import annotations

import time

from stepmeter.capture.clock import ClockAnchor, boot_id, monotonic_ns, read_anchor


def test_anchor_places_moments():
    """A moment lies as far from the anchor on the wall axis as on the monotonic one, before it as well."""
    anchor = ClockAnchor(unix_ns=1_000_000, monotonic_ns=500)
    assert anchor.unix_ns_of(700) == 1_000_200
    assert anchor.unix_ns_of(400) == 999_900


def test_anchor_lies_between_readings():
    """An anchor is a moment between two readings around it on both clocks."""
    monotonic, unix = monotonic_ns(), time.time_ns()
    anchor = read_anchor()
    assert monotonic <= anchor.monotonic_ns <= monotonic_ns()
    assert unix <= anchor.unix_ns <= time.time_ns()


def test_boot_id_is_stable():
    """The boot has one name, or none."""
    assert boot_id() == boot_id()
