"""Checkpoints: the state directory, its content, and objects as JSON values and tensors."""
