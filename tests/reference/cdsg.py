"""DSG with the check (CDSG): f(x) = Σ_b φ_b(x)ᵀα_b, where a step on one example adds at most one block of features.

With a number γ a step moves one block, as in the papers. Without one ("auto") there is no check: each step adds a block
until there are as many as may be, and moves all n, by a length η from all gradients so far, and a prediction is a
mixture of f and f̂ = Σ_t w_t f_t / Σ_t w_t, w_t = t(t + 1)(t + 2).
"""

import numpy as np

from streamkernel.features.counter_rng import counter_bits, domain_key


class CDSG:
    def __init__(self, phi, loss, most_blocks, outputs, columns=1, gamma=None, curvature=0.25, l2=0.0, seed=0):
        self.phi, self.loss, self.most_blocks, self.l2, self.key = phi, loss, most_blocks, l2, domain_key(seed, "rule")
        self.is_auto, self.gamma, self.curvature = gamma is None, gamma, curvature
        self.noise = loss.bound(columns) ** 2 / outputs  # M²σ²
        self.alpha, self.sum = np.zeros((2, most_blocks, outputs, columns))
        self.beta, self.n, self.t, self.running_loss = np.zeros((most_blocks, columns)), 0, 0, 0.0
        self.norm2, self.gradients2, self.log_odds = 0.0, 0.0, 0.0  # ‖f‖², Σ‖∇‖², and those of the share of f̂

    def scores(self, phi):
        weights = self.t * (self.t + 1) * (self.t + 2) * (self.t + 3) / 4
        return np.einsum("bp,bpc->c", phi, self.alpha), np.einsum("bp,bpc->c", phi, self.sum) / max(weights, 1)

    def predict(self, x):
        f, average = self.scores(self.phi(self.most_blocks, x))
        return f + self.is_auto * (average - f) / (1 + np.exp(-self.log_odds))

    def choose(self, g):
        """Return block and η: the old one with the longest η, if that is above γ or no more fit in; else a new one.

        η is the largest for which 2‖β - ηg‖² + 2η²M²σ² ≤ ‖β‖² + γ²‖g‖², where β of a block is -Σ ηg of its steps.
        """
        beta = self.beta[: self.n]
        a, b, c = 2 * (g @ g + self.noise), -4 * beta @ g, (beta**2).sum(axis=1) - self.gamma**2 * g @ g
        eta = np.where(b**2 >= 4 * a * c, (np.sqrt(np.maximum(b**2 - 4 * a * c, 0)) - b) / (2 * a), 0.0)
        longest = eta.max(initial=0.0)
        if longest > self.gamma:
            return eta.argmax(), self.gamma
        if self.n < self.most_blocks:
            return self.n, self.gamma
        drawn = (int(counter_bits(self.key, np.uint64(self.t))) >> 11) * self.n >> 53
        return (eta.argmax(), longest) if longest > 0 else (drawn, self.gamma)

    def learn(self, x, y):
        """α_b ← (1 - ηλ)α_b, and α_k ← α_k - ηφ_k gᵀ of the chosen block, or α_b ← α_b - (η/n)φ_b gᵀ of all; g = ℓ'."""
        phi = self.phi(self.most_blocks, x)
        f, average = self.scores(phi)
        g, loss = self.loss.gradient(f, y), self.loss.value(f, y)
        if self.running_loss > 0:
            gain = (loss - self.loss.value(average, y)) / self.running_loss
            self.log_odds = np.clip((1 - 1 / 50) * self.log_odds + gain, -40, 40)
        if self.is_auto:  # η = ‖f‖√(2/Σ‖∇‖²), at most what moves f by its error, |g|/ℓ''_most, at least a part of that
            self.gradients2 += g @ g + 2 * self.l2 * f @ g + self.l2**2 * self.norm2
            most = 1 / self.curvature
            eta = min(most, max(np.sqrt(2 * self.norm2 / self.gradients2), most / np.sqrt(self.t + 1), most / 32))
            shrunk = 1 - eta * self.l2
            self.norm2 = max(shrunk**2 * self.norm2 - 2 * eta * shrunk * f @ g + eta**2 * g @ g, 0)
            self.n = min(self.n + 1, self.most_blocks)
            moved = eta / self.n * (np.arange(self.most_blocks) < self.n)
        else:
            k, eta = self.choose(g)
            self.n, moved = max(self.n, k + 1), eta * (np.arange(self.most_blocks) == k)
            self.beta *= 1 - eta * self.l2
            self.beta[k] -= eta * g
        self.alpha = (1 - eta * self.l2) * self.alpha - np.einsum("b,bp,c->bpc", moved, phi, g)
        self.t += 1
        self.sum += self.t * (self.t + 1) * (self.t + 2) * self.alpha
        self.running_loss += (loss - self.running_loss) / min(self.t, 1000)
