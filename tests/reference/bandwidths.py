"""Functions of several bandwidths and their mixture, in plain NumPy: a matrix instead of its factor, and no scales."""

from __future__ import annotations

import numpy as np

MEMORY, PULL, FLATTEST, LEAST = 0.9995, 10.0, 1e-3, 1.0 / 32.0


def clipped(g, most):
    """Return g with a norm of `most` at most, where that is known."""
    norm = np.linalg.norm(g)
    return g * most / norm if 0.0 < most < norm else g


class Mixed:
    """Functions f_m of the blocks b ≡ m, their averages, and the weights of all; `loss` has value, slope and bend."""

    def __init__(self, bandwidths, columns, height, curvature, derivatives, l2=0.0):
        self.count, self.height, self.curvature = bandwidths, height, curvature
        self.derivatives, self.l2 = derivatives, l2
        self.now, self.sums = np.zeros((0, columns)), np.zeros((0, columns))
        self.norm2, self.gradients2 = np.zeros(bandwidths), np.zeros(bandwidths)
        self.u = np.full(2 * bandwidths, 0.5 / bandwidths)
        self.v, self.A = self.u.copy(), np.zeros((len(self.u), len(self.u)))
        self.size, self.largest, self.bound, self.total, self.t = 0.0, 0.0, 0.0, 0.0, 0

    def members(self, z):
        """Return F_m and F̂_m at the features of one example, shape (2 × bandwidths, columns), and what f_m is not."""
        m = np.arange(len(z)) // self.height % self.count
        of = [z * (m == i) for i in range(self.count)]
        averages = np.array([one @ self.sums / max(self.total, 1) for one in of])
        before = self.v[self.count :].sum() / (self.v.sum() or 1.0) * (averages.cumsum(axis=0) - averages)
        return np.concatenate([np.array([one @ self.now for one in of]) + before, averages + before]), before

    def grow(self, rows):
        """Add coefficients of 0."""
        more = np.zeros((rows - len(self.now), self.now.shape[1]))
        self.now, self.sums = np.concatenate([self.now, more]), np.concatenate([self.sums, more])

    def score(self, z):
        """Return f."""
        return self.v @ self.members(z)[0]

    def learn(self, z, target, w, is_number):
        """Take the step after the blocks have grown."""
        F, before = self.members(z)
        norm = np.linalg.norm(self.derivatives(self.v @ F, target)[0])
        self.bound = norm if self.bound == 0.0 else max(self.bound, min(2 * self.bound, norm))
        most = self.bound if is_number else 0.0
        self._weigh(F, target, w, is_number, most)
        m = np.arange(len(z)) // self.height % self.count
        for i in range(self.count):
            n = len(np.unique(np.arange(len(z))[m == i] // self.height))
            if not n:
                continue
            g = clipped(self.derivatives(F[i], target)[0], most)
            longest = np.linalg.norm(g) / self.curvature / (np.linalg.norm(w * g) or np.inf)
            square, along = w * w * g @ g, w * (F[i] - before[i]) @ g
            self.gradients2[i] += max(0.0, square + 2 * self.l2 * along + self.l2**2 * self.norm2[i])
            eta = longest * max(LEAST, 1 / np.sqrt(self.t + 1.0))
            eta = min(longest, max(eta, np.sqrt(2.0 * self.norm2[i] / (self.gradients2[i] or np.inf))))
            shrink = 1 - eta * self.l2
            self.norm2[i] = max(0.0, shrink**2 * self.norm2[i] + eta * (eta * square - 2 * shrink * along))
            self.now[m == i] = shrink * self.now[m == i] - eta / n * np.outer(z[m == i], w * g)
        self.t += 1
        weight = self.t * (self.t + 1.0) * (self.t + 2.0) / 6.0
        self.total += weight
        self.sums += weight * self.now

    def _weigh(self, F, target, w, is_number, most):
        g, h = self.derivatives(self.u @ F, target)
        g = clipped(g, most)
        size = 1.0
        if is_number:
            self.size += (target**2 - self.size) / min(self.t + 1, 1000)
            size = self.size
        self.A += PULL * max(0.0, size - self.largest) * np.eye(len(self.A))
        self.largest = max(self.largest, size)
        if self.largest == 0.0:
            return
        self.A += w * (F * np.maximum(h, FLATTEST)) @ F.T
        if self.t % len(self.A) == 0:
            kept = MEMORY ** len(self.A)
            self.A = kept * self.A + (1 - kept) * PULL * size * np.eye(len(self.A))
        self.u = self.u - np.linalg.solve(self.A, w * F @ g)
        for k in range(len(self.v)):
            self.v[k] = max(0.0, self.v[k] - self.A[k] @ (self.v - self.u) / self.A[k, k])
