"""The updates for the posterior of a Gaussian process as Dai et al. 2014 print them, in plain NumPy and float64.

`printed_operator` is section 4 and appendix D to the letter: one scalar feature a step, one example. `Operator` and
`Functions` write the same for blocks of features and batches of examples, one block and one example after the other.
"""

from __future__ import annotations

import numpy as np


def printed_operator(phis, phis2, gammas, nu):
    """Return θ after each step t, where ``phis[t][i]`` is φ_ωi(x_t), and ``phis2`` the same of ω'."""
    theta, history = {}, []
    for t, gamma in enumerate(gammas):
        phi, phi2 = phis[t], phis2[t]
        column = {i: -gamma * sum(theta[i, j] * phi2[j] * phi2[t] for j in range(i, t)) for i in range(t)}
        column[t] = gamma * phi[t] * phi2[t]
        theta = {place: (1.0 - nu * gamma) * value for place, value in theta.items()}
        theta |= {(i, t): value for i, value in column.items()}
        matrix = np.zeros((len(gammas), len(gammas)))
        for (i, j), value in theta.items():
            matrix[i, j] = value
        history.append(matrix)
    return history


class Operator:
    """A = Σ θ_ij φ_i(·) ⊗ φ'_j(·) with blocks θ_ij in a dictionary."""

    def __init__(self, width):
        self.width, self.blocks, self.theta = width, 0, {}

    def part(self, phi, i):
        return phi[i * self.width : (i + 1) * self.width]

    def at(self, phi, phi2):
        return sum(self.part(phi, i) @ block @ self.part(phi2, j) for (i, j), block in self.theta.items())

    def step(self, batch, batch2, t, gamma, nu):
        """Move block t on the features of a batch: a row an example."""
        is_new = t == self.blocks
        self.blocks += is_new
        change = {i: np.zeros((self.width, self.width)) for i in range(self.blocks)}
        for phi, phi2 in zip(batch, batch2, strict=True):
            for i in range(self.blocks):
                a = np.zeros(self.width)
                for (row, j), block in self.theta.items():
                    if row == i:
                        a += block @ self.part(phi2, j)
                if is_new:
                    wanted = self.part(phi, i) if i == t else np.zeros(self.width)
                else:
                    wanted = self.part(phi, i) / self.blocks
                change[i] += np.outer(wanted - a, self.part(phi2, t)) / len(batch)
        self.theta = {place: (1.0 - gamma * nu) * block for place, block in self.theta.items()}
        for i in range(self.blocks):
            self.theta[i, t] = self.theta.get((i, t), 0.0) + gamma * change[i]


class Functions:
    """f_i(·) = Σ_b φ_b(·)ᵀ α_b for several targets: kernel ridge regression, one function after the other."""

    def __init__(self, width, columns):
        self.width, self.alpha = width, [[] for _ in range(columns)]

    def at(self, phi, i):
        parts = np.split(phi[: self.width * len(self.alpha[i])], max(1, len(self.alpha[i])))
        return sum(part @ a for part, a in zip(parts, self.alpha[i], strict=False))

    def step(self, batch, targets, t, gamma, nu):
        """Move block t of each function; `targets` has a row an example."""
        for i, blocks in enumerate(self.alpha):
            change = np.zeros(self.width)
            for phi, y in zip(batch, targets, strict=True):
                change += (self.at(phi, i) - y[i]) * phi[t * self.width : (t + 1) * self.width] / len(batch)
            for j in range(len(blocks)):
                blocks[j] = (1.0 - gamma * nu) * blocks[j]
            if t == len(blocks):
                blocks.append(np.zeros(self.width))
            blocks[t] = blocks[t] - gamma * change
