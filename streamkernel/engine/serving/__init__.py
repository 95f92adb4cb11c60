"""Predictions apart from learning: processes that follow the checkpoints of runs and answer requests."""
