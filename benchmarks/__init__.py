"""Benchmarks: one command a claim, ours beside the peer's from the same run."""
