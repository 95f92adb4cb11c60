"""Metric learning from triplets."""
