"""AsyDSSKL: sparse models of random features by doubly stochastic coordinate steps."""
