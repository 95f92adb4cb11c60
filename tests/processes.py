"""Gaussian processes that cover all options of learning, and a small stream for them."""

from __future__ import annotations

from streams import examples, targets

from streamkernel import GaussianProcessRegressor, step_sizes
from streamkernel.kernels import Gaussian
from streamkernel.research import StochasticGaussianProcessRegressor

XS, _ = examples(300)
YS = targets(XS)
SMALL = {"n_features": 12, "features_per_seed": 4, "batch_size": 5}
MODELS = {
    "default": {"n_features": 16},
    "noise given": {"noise": 0.3, "kernel": Gaussian(1.5), "n_features": 16},
    "noise given, median": {"noise": 0.3, "n_features": 16, "cache_bytes": 0},
    "kernel given": {"kernel": Gaussian(1.5), "n_features": 16, "seed": 3},
    "operator": {"variance": "operator", "noise": 0.3, "kernel": Gaussian(1.5), **SMALL},
    "operator, median": {"variance": "operator", "noise": 0.3, "step_size": step_sizes.PowerDecay(0.8, c=0.1), **SMALL},
    "points": {"variance": "points", "points": XS[:3], "noise": 0.3, "kernel": Gaussian(1.5), **SMALL},
    "points, median": {"variance": "points", "points": XS[:3], "noise": 0.3, **SMALL, "cache_bytes": 100},
}


def gp(**options):
    return (StochasticGaussianProcessRegressor if "variance" in options else GaussianProcessRegressor)(**options)


def predictions(model):
    """Return the distributions at the first inputs, which are the points given beforehand where there are any."""
    found = [model.predict_one(x, with_dist=True) for x in XS[:3]]
    return [(d.mu, d.sigma) for d in found] + [model.predict_one(x) for x in XS]
