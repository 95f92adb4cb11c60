"""The exact posterior of f on random features, by recursion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel.features.rows import F64, Rows
from streamkernel.learners import span
from streamkernel.learners.span import bound_all
from streamkernel.posterior.bayesian_linear import BayesianLinear, dots
from streamkernel.posterior.feature_matrix import FeatureMap
from streamkernel.posterior.posteriors import join, pieces, read_count


class Recursive:
    """Bayesian linear regression on a fixed number of random features, exact at any time.

    Parameters
    ----------
    phi
        The features.
    noise
        σ², for f of covariance k and mean 0; ``None`` for f of covariance (σ²/ratio)·k around an unknown constant,
        where σ² is the most likely one.
    ratio
        The noise in units of the prior variance of f.
    """

    def __init__(self, phi: FeatureMap, noise: float | None, ratio: float) -> None:
        self._phi, self._noise = phi, noise
        self.linear = BayesianLinear(phi.n_outputs + (noise is None), ratio)

    @property
    def examples(self) -> int:
        """Examples that have been learned."""
        return self.linear.examples

    @property
    def noise(self) -> float:
        """σ²; the targets' own mean takes one degree of freedom."""
        if self._noise is not None:
            return self._noise
        squares, examples = self.linear.totals.tolist()
        return float(squares / (examples - 1.0)) if examples > 1.0 else 1.0

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not extend the range in full."""
        return span.counts(self.linear.span)

    def features(self, rows: Rows) -> F64:
        """Return the features, with a constant one where the mean of the targets is unknown."""
        phi = self._phi(rows)
        return phi if self._noise is not None else np.column_stack([phi, np.ones(len(phi))])

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; the noise of one of weight w has the variance σ²/w."""
        for part, piece in pieces(rows):
            self.linear.learn(self.features(piece), y[part], piece.weights)

    def mean(self, rows: Rows) -> F64:
        """Return the mean of f(x) for each row, in the range of the targets and of the prior mean."""
        solved = self.linear.solved()
        means = join(dots(self.features(piece), solved.w) for _, piece in pieces(rows))
        bound_all(solved.span, means)
        return means

    def variance(self, rows: Rows) -> F64:
        """Return the variance of f(x) for each row."""
        return self.noise * join(self.linear.spread(self.features(piece)) for _, piece in pieces(rows))

    def tensors(self) -> dict[str, Any]:
        """Return the learned state."""
        return self.linear.tensors() | {"count": np.array([self.examples], np.int64)}

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Restore the result of `tensors`; raises a ValueError if it does not fit."""
        self.linear.restore(tensors, read_count(tensors))
