"""Which GPU belongs to this process; without torch."""
