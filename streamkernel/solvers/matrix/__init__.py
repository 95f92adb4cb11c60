"""Saddle-point problems over matrices."""
