"""OpenTelemetry: the metrics of a run for a collector, and spans of the records whose trace is sampled."""
