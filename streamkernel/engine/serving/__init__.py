"""Serving in separate processes, which follow the checkpoints of runs and answer requests."""
