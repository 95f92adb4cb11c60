"""The needs of a run, measured on this machine: events per second, memory, checkpoints, and the lag at a rate."""
