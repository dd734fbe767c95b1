"""What happened in this process, as plain data."""
