"""Second-order learning as `streamkernel.mixing` prints it, in plain NumPy and float64.

Nothing is factored: every A is a matrix, and a step solves a system. The functions are a list.
"""

from __future__ import annotations

import math

import numpy as np
from reference import algorithms as plain

FLATTEST, MEMORY, PULL, PRIOR, HORIZON = 1e-3, 0.9995, 10.0, 0.03, 1000


class Logistic(plain.Logistic):
    def curvature(self, f, y):
        p = 1.0 / (1.0 + np.exp(-f))
        return np.maximum(p * (1.0 - p), self.gradient(f, y) ** 2 / 4.0)


class Softmax(plain.Softmax):
    def curvature(self, f, y):
        p = np.exp(f) / np.exp(f).sum()
        return np.maximum(p * (1.0 - p), self.gradient(f, y) ** 2 / 4.0)


class SquaredHinge(plain.SquaredHinge):
    def curvature(self, f, y):
        return np.where(plain.signs(y, len(f)) * f < 1.0, 2.0, 0.0)


class SmoothHinge(plain.SmoothHinge):
    def curvature(self, f, y):
        m = plain.signs(y, len(f)) * f
        return np.where(m < 1.0, 1.0 / np.maximum(1.0, 1.0 - m), 0.0)


class Square(plain.Square):
    def curvature(self, f, y):
        return np.ones(1)


class Huber(plain.Huber):
    def curvature(self, f, y):
        return self.delta / np.maximum(self.delta, np.abs(f - y))


class Bound:
    """The largest norm seen of a derivative, which at most doubles; a loss that has a bound needs none."""

    def __init__(self, loss):
        self.largest, self.needed = 0.0, loss.bound(1) is None

    def clipped(self, g):
        norm = np.linalg.norm(g)
        if not self.needed or norm <= self.largest or self.largest == 0.0:
            self.largest = max(self.largest, norm)
            return g
        g = g * self.largest / norm
        self.largest = min(2.0 * self.largest, norm)
        return g


class Function:
    """φᵀw of one group, by Newton steps and by constant steps."""

    def __init__(self, loss, n, columns, gamma, own, forgetting, l2):
        self.loss, self.own, self.gamma, self.forgetting, self.l2 = loss, own, gamma, forgetting, l2
        self.A = PRIOR * own * np.eye(n)
        self.newton, self.steady = np.zeros((n, columns)), np.zeros((n, columns))
        self.bounds = Bound(loss), Bound(loss)
        self.waiting = []  # φ, ℓ' and ℓ'' of examples

    def scores(self, phi):
        return phi @ self.newton, phi @ self.steady

    def see(self, phi, y):
        """Take the constant step, and keep what the Newton step is made of."""
        f, steady = self.scores(phi)
        weight = max(FLATTEST, self.loss.curvature(f, y).max())
        self.waiting.append((phi, self.bounds[0].clipped(self.loss.gradient(f, y)), weight))
        self.steady -= self.gamma / self.own * np.outer(phi, self.bounds[1].clipped(self.loss.gradient(steady, y)))

    def step(self, seen):
        n, batch = len(self.A), len(self.waiting)
        gradient = batch * self.l2 * self.newton
        if self.forgetting < 1.0 or self.l2:
            turn = max(batch, min(n, int(0.5 / max(1.0 - self.forgetting, 1e-9))))
            if seen == batch or seen // turn > (seen - batch) // turn:
                kept = self.forgetting**turn
                faded = (1.0 - kept) * PRIOR * self.own
                self.A = kept * self.A + (faded + turn * self.l2) * np.eye(n)
                gradient += faded * self.newton
        for phi, g, weight in self.waiting:
            self.A += weight * np.outer(phi, phi)
            gradient += np.outer(phi, g)
        self.newton -= np.linalg.solve(self.A, gradient)
        self.waiting = []


class Mixture:
    """Σ_k v_k f_k over the functions of all groups.

    Parameters
    ----------
    phi
        Gives the features of a block for rows, shape (rows, outputs), with k(x, x) = 1.
    loss
        One of the losses above.
    blocks, groups, outputs
        How many blocks there are, in how many groups, and the outputs of a block.
    """

    def __init__(self, phi, loss, *, blocks, groups, outputs, columns, gamma, batch, forgetting, l2, intercept):
        self.phi, self.loss, self.blocks, self.groups, self.batch = phi, loss, blocks, groups, batch
        self.intercept, self.columns = intercept, columns
        own = blocks // groups
        self.functions = [Function(loss, own * outputs, columns, gamma, own, forgetting, l2) for _ in range(groups)]
        self.v = np.full(2 * groups, 0.5 / groups)
        self.A, self.bound = None, Bound(loss)
        self.seen, self.mean, self.size = 0, 0.0, 0.0 if intercept else 1.0

    def features(self, x, blocks):
        """Return φ of each group; a block that is not there yet counts as 0."""
        parts = [self.phi(b, x[None])[0] * (b < blocks) for b in range(self.blocks)]
        return np.concatenate(parts).reshape(self.groups, -1)

    def all_scores(self, phi):
        """Return the scores of all functions, shape (2 groups, columns): first those of Newton steps."""
        pairs = [function.scores(part) for function, part in zip(self.functions, phi, strict=True)]
        return np.array([newton for newton, _ in pairs] + [steady for _, steady in pairs])

    def scores(self, x):
        return self.v @ self.all_scores(self.features(x, max(1, min(self.seen, self.blocks)))) + self.mean

    def learn(self, x, y):
        phi = self.features(x, min(self.seen + 1, self.blocks))
        furthest = max(10.0, math.sqrt(min(self.seen, HORIZON))) * math.sqrt(self.size) or math.inf
        self.seen += 1
        if self.intercept:
            self.mean += np.clip(y - self.mean, -furthest, furthest) / self.seen
            y = y - self.mean
            self.size += (min(abs(y), furthest) ** 2 - self.size) / min(self.seen, HORIZON)
        self.weigh(self.all_scores(phi), y)
        for function, part in zip(self.functions, phi, strict=True):
            function.see(part, y)
        memory = int(0.1 / max(1.0 - self.functions[0].forgetting, 1e-9))
        due = self.batch if self.batch > 1 else max(min(self.seen // 256 * 8, 64, memory) // 8 * 8, 8)
        if len(self.functions[0].waiting) >= due:
            for function in self.functions:
                function.step(self.seen)

    def weigh(self, f, y):
        """Take a Newton step of v."""
        if self.size == 0.0:
            return
        count, out = len(f), self.v @ f
        if self.A is None:
            self.A = PULL * self.size * np.eye(count)
        for c, curvature in enumerate(self.loss.curvature(out, y)):
            self.A += max(curvature, FLATTEST) * np.outer(f[:, c], f[:, c])
        if (self.seen - 1) % count == 0:
            self.A = MEMORY**count * self.A + (1.0 - MEMORY**count) * PULL * self.size * np.eye(count)
        self.v = self.v - np.linalg.solve(self.A, f @ self.bound.clipped(self.loss.gradient(out, y)))
