"""NORMA: stochastic gradient descent with the exact kernel (Kivinen, Smola and Williamson 2004).

One step on the batch x_1..x_B, the paper's with the mean of B gradients instead of one:

    f ← (1 - ηλ) f - (η/B) Σ_i ℓ'(f(x_i), y_i) k(x_i, ·)

An example without a gradient (beyond the margin) is not kept. With `most` the oldest terms are dropped, which is their
truncation; it forgets little only where steps and λ are large enough for old terms to have shrunk. Fair: the same
batches and the same kind of steps as ours, one lazy scale for the shrinking, float32 products in BLAS. In its favour:
exact kernels, for which it keeps the examples themselves.
"""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.parts import F32, F64, KernelSum, batches, derivative
from streamkernel.step_sizes import Step


class Norma:
    """f = scale · Σ_j a_j k(x_j, ·), a term for every example with a gradient."""

    def __init__(
        self,
        X: F32,
        y: F64,
        *,
        sigma: float,
        loss: str,
        step: Step,
        l2: float,
        batch: int,
        most: int | None = None,
    ) -> None:
        self._X, self._y = X, y
        self._loss, self._step, self._l2, self._batch = loss, step, l2, batch
        self._sum, self._scale, self._t = KernelSum(X.shape[1], sigma, most), 1.0, 0

    @property
    def size(self) -> str:
        """The stored state."""
        return f"{self._sum.size:,} vectors"

    def learn(self, part: slice) -> None:
        """Take a step for each batch of these rows."""
        for rows in batches(part, self._batch):
            self._t += 1
            eta = self._step(float(self._t))
            g = derivative(self._loss, self.scores(self._X[rows]), self._y[rows])
            self._scale *= 1.0 - eta * self._l2
            kept = np.flatnonzero(g)
            self._sum.append(self._X[rows][kept], -eta / self._scale / len(g) * g[kept])

    def scores(self, X: F32) -> F64:
        """Return f at each row of X."""
        return self._scale * self._sum(X)
