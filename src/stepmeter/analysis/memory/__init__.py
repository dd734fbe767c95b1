"""Peak memory of steps: facts and findings."""
