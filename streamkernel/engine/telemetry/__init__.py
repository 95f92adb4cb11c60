"""What a run shows: metrics, quality, history, logs, the terminal and the data of the live page."""
