"""Checkpoints in an object store: copied there while the run learns, and read back where the disk is lost."""
