"""Functions of the nearest neighbours of x among the last examples."""
