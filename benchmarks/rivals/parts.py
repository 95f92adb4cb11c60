"""Common parts of the rivals: the losses' derivatives, sums of exact kernels, and a fixed set of random features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

PANEL = 1 << 17
"""Entries of a kernel matrix that are computed at once: half a megabyte, which fits into the processor's cache."""


def derivative(loss: str, f: F64, y: F64) -> F64:
    """Return ∂ℓ/∂f of the hinge max(0, 1 - y f), or of the square ½(f - y)²."""
    return np.where(y * f < 1.0, -y, 0.0) if loss == "hinge" else f - y


def batches(part: slice, batch: int) -> Iterator[slice]:
    """Cut `part` into slices of `batch` rows; the last may be shorter."""
    for first in range(part.start, part.stop, batch):
        yield slice(first, min(first + batch, part.stop))


class KernelSum:
    """Σ_j a_j k(x_j, ·) with the exact Gaussian kernel k(x, x') = exp(-‖x - x'‖²/2σ²).

    A row x is stored as v = (x/σ, 1, -‖x‖²/2σ²), and evaluated as u = (x/σ, -‖x‖²/2σ², 1), so that one product u·v is
    the exponent. Beyond `most` terms, the newest one replaces the oldest.
    """

    def __init__(self, dimensions: int, sigma: float, most: int | None = None) -> None:
        self.sigma, self.most, self.added = sigma, most, 0
        self._v = np.empty((0, dimensions + 2), np.float32)
        self.a = np.empty(0, np.float32)
        self._panel = np.empty(PANEL, np.float32)

    @property
    def size(self) -> int:
        """Terms of the sum."""
        return self.added if self.most is None else min(self.added, self.most)

    def __call__(self, X: F32, a: F32 | None = None) -> F64:
        """Return the sum at each row of X, with the coefficients `a` if they are given."""
        u, out = _lift(X, self.sigma), np.zeros(len(X))
        a = self.a if a is None else a
        height = max(1, min(len(X), 1024))
        width = PANEL // height
        for i in range(0, len(X), height):
            for j in range(0, self.size, width):
                last = min(j + width, self.size)
                out[i : i + height] += _exp(u[i : i + height], self._v[j:last], self._panel) @ a[j:last]
        return out

    def matrix(self, X: F32) -> F32:
        """Return k between the rows of X."""
        u = _lift(X, self.sigma)
        return _exp(u, _as_term(u), np.empty(len(u) ** 2, np.float32))

    def append(self, X: F32, a: F64) -> None:
        """Add a term for each row of X."""
        room = self.added + len(X) if self.most is None else min(self.added + len(X), self.most)
        if room > len(self.a):
            room = max(room, min(2 * len(self.a), self.most or 2 * len(self.a)))
            self._v = np.concatenate([self._v, np.empty((room - len(self.a), self._v.shape[1]), np.float32)])
            self.a = np.concatenate([self.a, np.empty(room - len(self.a), np.float32)])
        places = (self.added + np.arange(len(X))) % (self.most or room)
        self._v[places], self.a[places] = _as_term(_lift(X, self.sigma)), a
        self.added += len(X)


class FixedFeatures:
    """`count` random Fourier features drawn once, φ(x) = count^-½ [cos ωᵀx, sin ωᵀx] with ω ~ N(0, I/σ²).

    Features of the training rows X are kept from the first pass on, so that later passes do not compute them again.
    """

    def __init__(self, X: F32, sigma: float, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.count = count
        self._omega = (rng.standard_normal((X.shape[1], count)) / sigma).astype(np.float32)
        self._X, self._done = X, 0
        self._kept = np.empty((len(X), 2 * count), np.float32)

    def __call__(self, X: F32) -> F32:
        """Return φ of each row of X, shape (rows, 2 count)."""
        return self._fill(X, np.empty((len(X), 2 * self.count), np.float32))

    def rows(self, part: slice) -> F32:
        """Return φ of these rows of the training data."""
        if part.stop > self._done:
            self._fill(self._X[part], self._kept[part])
            self._done = part.stop
        return self._kept[part]

    def _fill(self, X: F32, out: F32) -> F32:
        angle = X @ self._omega
        np.cos(angle, out=out[:, : self.count])
        np.sin(angle, out=out[:, self.count :])
        out *= np.float32(self.count**-0.5)
        return out


def _lift(X: F32, sigma: float) -> F32:
    """Return u of each row."""
    u = np.ones((len(X), X.shape[1] + 2), np.float32)
    u[:, :-2] = X / np.float32(sigma)
    u[:, -2] = -0.5 * np.einsum("ij,ij->i", u[:, :-2], u[:, :-2])
    return u


def _as_term(u: F32) -> F32:
    """Return v of rows whose u is given: the same with the last two entries exchanged."""
    return np.concatenate([u[:, :-2], u[:, -1:], u[:, -2:-1]], axis=1)


def _exp(u: F32, v: F32, room: F32) -> F32:
    """Return exp(u·v) for all pairs, in `room`; smaller values become 10⁻²⁶, because denormal numbers are slow."""
    K = room[: len(u) * len(v)].reshape(len(u), len(v))
    np.matmul(u, v.T, out=K)
    np.maximum(K, np.float32(-60.0), out=K)
    return np.exp(K, out=K)
