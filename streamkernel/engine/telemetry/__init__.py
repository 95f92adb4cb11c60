"""Telemetry of a run: metrics, quality, history, logs, the terminal and the data of the live page."""
