"""Monitoring of a run: statistics of inputs and predictions, further metrics, calibration and drift."""
