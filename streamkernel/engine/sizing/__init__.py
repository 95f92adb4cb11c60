"""What a run needs on the machine at hand: events per second, memory, checkpoints, and the lag at a rate."""
