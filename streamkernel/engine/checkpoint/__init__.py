"""Checkpoints: the state directory, what may be in it, and how objects become JSON values and tensors."""
