"""Novelty detection and density ratios as Dai et al. 2014, section 4, print them, in plain NumPy and float64.

Only the random directions and the draws of old blocks come from the library: see `reference.algorithms`.
"""

from __future__ import annotations

import numpy as np
from reference.algorithms import Reference


class Novelty(Reference):
    """The one-class SVM: α_i = 0 and τ up by γν where f ≥ τ, α_i = γφ and τ down by γ(1 - ν) below.

    Parameters
    ----------
    nu
        The fraction ν; the other parameters are those of `Reference`.
    """

    def __init__(self, *args, nu: float, **kwargs):
        super().__init__(*args, **kwargs)
        self.nu, self.tau = nu, 0.0

    def scores(self, X):
        return self.tau - self.function(X)[:, 0]

    def learn(self, x):
        """Take one step on one event, by DSG."""
        gamma, f = self.step(self.t + 1), self.function(x[None])[0, 0]
        k = self.n_blocks if self.n_blocks < self.most_blocks else self.drawn_block()
        phi = self.phi(k, x[None])[0]
        if k == self.n_blocks:
            self._add_block(len(phi))
        self.alpha = (1.0 - gamma * self.nu) * self.alpha
        if f >= self.tau:
            self.tau += gamma * self.nu
        else:
            self.alpha[k, :, 0] += gamma * phi
            self.tau -= gamma * (1.0 - self.nu)
        self.t += 1


class Ratio:
    """Events of q weigh -w(1 + f), those of p w exp(f): the target is w for one of q, -w for one of p.

    With `rho`, the dual of r(t) = max(0, ρ - log t) takes the place of that of -log t.
    """

    def __init__(self, rho=None):
        self.rho = rho

    def value(self, f, y):
        return abs(y) * (self.dual(-np.exp(f[0])) if y > 0 else np.exp(f[0]))

    def gradient(self, f, y):
        if y < 0:
            return -y * np.exp(f)
        return -y * (np.exp(f + self.rho) if self.rho is not None and f[0] <= -self.rho else np.ones(1))

    def bound(self, columns):
        return None

    def dual(self, chi):
        """Return sup over t of χt - r(t), from a fine grid of t with the kink of r on it."""
        t = np.exp((self.rho or 0.0) + np.linspace(-12.0, 12.0, 200_001))
        r = -np.log(t) if self.rho is None else np.maximum(0.0, self.rho - np.log(t))
        return (chi * t - r).max()
