"""What the default learner on one screen is given: scaled inputs, random features, losses, and a beginning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from reference.algorithms import gaussian
from scipy.spatial.distance import pdist

from streamkernel.features.counter_rng import hash64
from streamkernel.features.directions import Directions
from streamkernel.features.scaling import Scales
from streamkernel.kernels import Gaussian
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners.schedule import is_due


class Inputs:
    """The inputs of a stream: their scales, and their median distance σ.

    Parameters
    ----------
    names
        The names of all inputs.
    size, seed
        The features of a block, and the model's seed.
    """

    def __init__(self, names, size, seed=0):
        self.names, self.size, self.seed, self.sigma = sorted(names, key=hash64), size, seed, 1.0
        self.directions, self.scales = Directions(KernelProgram(Gaussian(1.0), seed), 1, 0), Scales()

    def read(self, x):
        """Return the scaled inputs t, and s = (1, the standardised inputs), both in the order of names."""
        row = self.directions.row(x)
        known, s = self.scales.in_use(row.hashes) if self.scales.n_names else None, np.zeros(len(row.values))
        if known and known["centre"].any():
            s = (row.values - known["centre"]) / known["unit"]
        return self.scales(row).values, np.r_[1.0, s]

    def observe(self, x):
        """Add an example to the scales."""
        self.scales.observe(self.directions.row(x))
        if is_due(self.scales.n):
            self.scales.use_moments()

    def restart(self, first):
        """Take the scales and σ from the first examples."""
        rows = [self.directions.row(x) for x in first]
        self.scales = self.scales.of_first(type(rows[0]).stack(rows))
        self.sigma = np.median(pdist([self.scales(row).values for row in rows]))

    def features(self, blocks, t, multiple):
        """Return φ(t) of some blocks of features, with the bandwidth σ times a multiple."""
        phi = gaussian(self.names, self.sigma * multiple, self.size, self.seed)
        return np.array([phi(block, t[None])[0] for block in blocks]).ravel()


class Loss(NamedTuple):
    """ℓ: its values, and ℓ' and ℓ'' at scores f, which are at least 1e-3; the bounds on ℓ'' and |ℓ'|, 0 for none."""

    at: object
    curvature: float
    bound: float
    is_square: bool


def _logistic(f, y):
    wrong = 1.0 / (1.0 + np.exp(y * f))
    return np.log1p(np.exp(-y * f)), -y * wrong, np.maximum(np.maximum(wrong * (1.0 - wrong), wrong**2 / 4.0), 1e-3)


SQUARE = Loss(lambda f, y: ((f - y) ** 2 / 2.0, f - y, np.ones_like(f)), 1.0, 0.0, True)
LOGISTIC = Loss(_logistic, 0.25, np.inf, False)
"""For y = ±1."""


class Beginner:
    """A learner whose first 256 examples decide the scales of inputs, the bandwidth and λ of each block of features.

    They do so at the 2nd, 4th, 8th, ..., 256th example: then all so far are learned again, from nothing but v.
    """

    def __init__(self, inputs, multiples):
        self.inputs, self.multiples, self.first = inputs, multiples, []
        self.begin(np.full(len(multiples), 0.03))

    def learn(self, x, y):
        self.see(x, y, is_new=True)
        self.inputs.observe(x)
        self.first.append((x, y))
        if len(self.first) <= 256 and is_due(len(self.first)):
            self.inputs.restart([x for x, _ in self.first])
            T = [self.inputs.read(x)[0] for x, _ in self.first]
            self.begin([self.prior(block, T) for block in range(len(self.multiples))])
            for example in self.first:
                self.see(*example, is_new=False)

    def prior(self, block, T):
        """Return λ = 0.06 (1 - κ)², at least 0.001, where κ is the mean of φ(x)ᵀφ(x') over pairs of examples."""
        n, mean = len(T), np.mean([self.inputs.features([block], t, self.multiples[block]) for t in T], axis=0)
        return max(0.06 * (1.0 - max((n * mean @ mean - 1.0) / (n - 1), 0.0)) ** 2, 0.001)
