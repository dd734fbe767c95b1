"""Background readings of the host, the process and the device into a capture channel; no torch."""
