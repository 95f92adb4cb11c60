"""r-Pegasos: stochastic gradient descent on a fixed set of random features (Shalev-Shwartz, Singer and Srebro 2007).

One step on the batch x_1..x_B (the paper's Figure 1, where ℓ is the hinge and η = 1/(λt)):

    w ← (1 - ηλ) w - (η/B) Σ_i ℓ'(wᵀφ(x_i), y_i) φ(x_i),    then    w ← min(1, λ^-½/‖w‖) w

The ball holds the optimum for the hinge, and for the square loss if E[y²] ≤ 1. For a fair comparison it has the same
batches as ours, float32 products in BLAS, and keeps the features of the first pass for later ones. The step size is a
parameter: 1/(λt) would begin with steps of 1/λ, a million and more in the figures, and one pass is too short to
recover.
"""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.parts import F32, F64, FixedFeatures, batches, derivative
from streamkernel.step_sizes import Step


class Pegasos:
    """f(x) = wᵀφ(x)."""

    def __init__(self, features: FixedFeatures, y: F64, *, loss: str, step: Step, l2: float, batch: int) -> None:
        self._features, self._y = features, y
        self._loss, self._step, self._l2, self._batch = loss, step, l2, batch
        self.w, self._t = np.zeros(2 * features.count, np.float32), 0

    @property
    def size(self) -> str:
        """The stored state."""
        return f"{self._features.count:,} features"

    def learn(self, part: slice) -> None:
        """Take a step for each batch of these rows."""
        for rows in batches(part, self._batch):
            self._t += 1
            eta = self._step(float(self._t))
            phi = self._features.rows(rows)
            g = derivative(self._loss, phi @ self.w, self._y[rows])
            self.w *= np.float32(1.0 - eta * self._l2)
            self.w -= (eta / len(g) * g).astype(np.float32) @ phi
            norm = float(np.linalg.norm(self.w))
            if norm * self._l2**0.5 > 1.0:
                self.w *= np.float32(self._l2**-0.5 / norm)

    def scores(self, X: F32) -> F64:
        """Return f at each row of X."""
        return np.asarray(self._features(X) @ self.w, np.float64)
