"""Energy of steps and trajectories: what was measured, between which bounds, and what nobody's step used."""
