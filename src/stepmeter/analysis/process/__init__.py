"""Training processes: facts and findings."""
