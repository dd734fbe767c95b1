"""Step time: rows, aligned window, analysis."""
