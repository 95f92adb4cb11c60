"""First-order learning: a step of stochastic gradient descent adds a block of features or changes one."""
