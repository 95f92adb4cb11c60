"""The posterior of a Gaussian process: exact on random features, or by stochastic gradients."""
