"""Models that learn beside the champion of a run, for comparison, and may replace it."""
