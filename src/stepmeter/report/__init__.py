"""What a reader sees: pure projections of an analysis."""
