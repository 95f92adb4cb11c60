"""SDCA: stochastic dual coordinate ascent (Shalev-Shwartz and Zhang 2013), with a kernel and with fixed features.

With f = (1/λn) Σ_i α_i k(x_i, ·), the best change of one α_i, all others as they are (the square is ½(f - y)², theirs
is twice that), is with q = k(x_i, x_i)/(λn),

    hinge    Δ = y_i max(0, min(1, (1 - y_i f(x_i))/q + y_i α_i)) - α_i
    square   Δ = (y_i - f(x_i) - α_i)/(1 + q)

Examples are taken one after the other in one random order, the same in every pass. Fair: no step to tune; the loop over
examples is compiled; the kernel one makes its rows of the kernel matrix a batch at a time in BLAS and only against
examples whose α is not 0, the other keeps its features. In its favour: it keeps α, and with a kernel the examples
themselves. Not fair: coordinates depend on each other, so a batch is no step; it only bounds how much is made at once.

The answer is an average of the iterates at the ends of batches, the paper's theorems being about averages of late ones.
The t-th has the weight t, so that no length has to be known: f̄ ← f̄ + 2/(t + 1) (f - f̄). The last iterate itself
jumps where λn is small, as on Adult, where it is 0.01.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.rivals.parts import F32, F64, FixedFeatures, KernelSum, batches


@njit(inline="always")
def _change(hinge, f, y, alpha, q):  # type: ignore[no-untyped-def]
    if hinge:
        return y * max(0.0, min(1.0, (1.0 - y * f) / q + y * alpha)) - alpha
    return (y - f - alpha) / (1.0 + q)


@njit(cache=True, fastmath=True)
def _feature_pass(hinge, phi, y, alpha, w, scale):  # type: ignore[no-untyped-def]
    """Visit the rows of `phi`; `scale` is 1/λn."""
    for i in range(len(phi)):
        row = phi[i]
        f, norm2 = np.float32(0.0), np.float32(0.0)
        for j in range(len(w)):
            f += row[j] * w[j]
            norm2 += row[j] * row[j]
        change = _change(hinge, f, y[i], alpha[i], scale * norm2)
        alpha[i] += change
        gain = np.float32(scale * change)
        for j in range(len(w)):
            w[j] += gain * row[j]


@njit(cache=True)
def _kernel_pass(hinge, K, f, y, alpha, scale):  # type: ignore[no-untyped-def]
    """Visit the examples of a batch with kernel matrix `K`, where `f` is what all α before it give."""
    for i in range(len(K)):
        change = _change(hinge, f[i], y[i], alpha[i], scale * K[i, i])
        alpha[i] += change
        for j in range(i + 1, len(K)):
            f[j] += scale * change * K[i, j]


class FeatureSdca:
    """r-SDCA: f(x) = wᵀφ(x) with w = (1/λn) Σ_i α_i φ(x_i)."""

    def __init__(self, features: FixedFeatures, y: F64, *, loss: str, l2: float, batch: int) -> None:
        self._features, self._y, self._hinge, self._batch = features, y, loss == "hinge", batch
        self._alpha, self._scale = np.zeros(len(y)), 1.0 / (l2 * len(y))
        self._w, self._t = np.zeros(2 * features.count, np.float32), 0
        self.average = np.zeros(2 * features.count, np.float32)

    @property
    def size(self) -> str:
        """The stored state."""
        return f"{self._features.count:,} features"

    def learn(self, part: slice) -> None:
        """Visit these rows."""
        for rows in batches(part, self._batch):
            phi = self._features.rows(rows)
            _feature_pass(self._hinge, phi, self._y[rows], self._alpha[rows], self._w, self._scale)
            self._t += 1
            self.average += np.float32(2.0 / (self._t + 1)) * (self._w - self.average)

    def scores(self, X: F32) -> F64:
        """Return f at each row of X."""
        return np.asarray(self._features(X) @ self.average, np.float64)


class KernelSdca:
    """k-SDCA: f = (1/λn) Σ_i α_i k(x_i, ·), with rows of the kernel matrix made when they are needed."""

    def __init__(self, X: F32, y: F64, *, sigma: float, loss: str, l2: float, batch: int) -> None:
        self._X, self._y, self._hinge, self._batch = X, y, loss == "hinge", batch
        self._alpha, self._scale = np.zeros(len(y)), 1.0 / (l2 * len(y))
        self._place = np.full(len(y), -1)  # of an example in the sum, once its α has changed
        self._sum, self._t = KernelSum(X.shape[1], sigma), 0
        self._average = np.zeros(len(y), np.float32)  # of the coefficients in the sum

    @property
    def size(self) -> str:
        """The stored state."""
        return f"{self._sum.size:,} vectors"

    def learn(self, part: slice) -> None:
        """Visit these rows."""
        for rows in batches(part, self._batch):
            X, alpha, place = self._X[rows], self._alpha[rows], self._place[rows]
            f = self._scale * self._sum(X)
            _kernel_pass(self._hinge, self._sum.matrix(X), f, self._y[rows], alpha, self._scale)
            old = place >= 0
            self._sum.a[place[old]] = alpha[old]
            new = np.flatnonzero(~old & (alpha != 0.0))
            place[new] = self._sum.added + np.arange(len(new))
            self._sum.append(X[new], alpha[new])
            self._t += 1
            a, average = self._sum.a[: self._sum.size], self._average[: self._sum.size]
            average += np.float32(2.0 / (self._t + 1)) * (a - average)

    def scores(self, X: F32) -> F64:
        """Return f at each row of X."""
        return self._scale * self._sum(X, self._average)
