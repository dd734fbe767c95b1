"""How a training process is put together: entry points, start and stop."""
