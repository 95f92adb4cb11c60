"""DSG, UDSG and CDSG as the papers print them, in plain NumPy and float64.

Nothing is clever here: a list of blocks, all coefficients shrunk at every step, every iterate kept for the average,
and the sum of all iterates with their weights for the late one.
Only the random directions and the draws of old blocks come from the library, so that both learn the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache

import numpy as np

from streamkernel.features.counter_rng import counter_bits, domain_key, hash64
from streamkernel.features.distributions import NORMAL, SECH, draw

HORIZON = 1000


def signs(y, columns):
    """Return ±1: the label in its one column, or each class against the rest."""
    return np.array([1.0 if y > 0 else -1.0]) if columns == 1 else np.where(np.arange(columns) == int(y), 1.0, -1.0)


class Logistic:
    def value(self, f, y):
        return np.log(1.0 + np.exp(-signs(y, 1) * f))[0]

    def gradient(self, f, y):
        t = signs(y, 1)
        return -t / (1.0 + np.exp(t * f))

    def bound(self, columns):
        return 1.0


class Softmax:
    def value(self, f, y):
        return np.log(np.exp(f).sum()) - f[int(y)]

    def gradient(self, f, y):
        return np.exp(f) / np.exp(f).sum() - (np.arange(len(f)) == int(y))

    def bound(self, columns):
        return 2.0**0.5


class Hinge:
    def value(self, f, y):
        return np.maximum(0.0, 1.0 - signs(y, len(f)) * f).sum()

    def gradient(self, f, y):
        t = signs(y, len(f))
        return np.where(t * f < 1.0, -t, 0.0)

    def bound(self, columns):
        return columns**0.5


class SquaredHinge:
    def value(self, f, y):
        return (np.maximum(0.0, 1.0 - signs(y, len(f)) * f) ** 2).sum()

    def gradient(self, f, y):
        t = signs(y, len(f))
        return -2.0 * t * np.maximum(0.0, 1.0 - t * f)

    def bound(self, columns):
        return None


class SmoothHinge:
    def value(self, f, y):
        m = signs(y, len(f)) * f
        return np.select([m >= 1.0, m <= 0.0], [0.0, 0.5 - m], 0.5 * (1.0 - m) ** 2).sum()

    def gradient(self, f, y):
        t = signs(y, len(f))
        return t * np.select([t * f >= 1.0, t * f <= 0.0], [0.0, -1.0], t * f - 1.0)

    def bound(self, columns):
        return columns**0.5


class Sigmoid:
    def value(self, f, y):
        return (1.0 / (1.0 + np.exp(signs(y, len(f)) * f))).sum()

    def gradient(self, f, y):
        t = signs(y, len(f))
        return -t * np.exp(t * f) / (1.0 + np.exp(t * f)) ** 2

    def bound(self, columns):
        return 0.25 * columns**0.5


class Square:
    def value(self, f, y):
        return 0.5 * ((f - y) ** 2).sum()

    def gradient(self, f, y):
        return f - y

    def bound(self, columns):
        return None


class Huber:
    def __init__(self, delta):
        self.delta = delta

    def value(self, f, y):
        r = np.abs(f - y)[0]
        return 0.5 * r * r if r <= self.delta else self.delta * (r - 0.5 * self.delta)

    def gradient(self, f, y):
        return np.clip(f - y, -self.delta, self.delta)

    def bound(self, columns):
        return self.delta


class EpsilonInsensitive:
    def __init__(self, epsilon):
        self.epsilon = epsilon

    def value(self, f, y):
        return np.maximum(0.0, np.abs(f - y) - self.epsilon)[0]

    def gradient(self, f, y):
        return np.where(np.abs(f - y) > self.epsilon, np.sign(f - y), 0.0)

    def bound(self, columns):
        return 1.0


class Quantile:
    def __init__(self, tau):
        self.tau = tau

    def value(self, f, y):
        return np.maximum(self.tau * (y - f), (1.0 - self.tau) * (f - y))[0]

    def gradient(self, f, y):
        return np.where(f < y, -self.tau, 1.0 - self.tau)

    def bound(self, columns):
        return max(self.tau, 1.0 - self.tau)


class Correntropy:
    def __init__(self, sigma):
        self.sigma = sigma

    def value(self, f, y):
        return 0.5 * self.sigma**2 * (1.0 - np.exp(-((f - y) ** 2) / self.sigma**2))[0]

    def gradient(self, f, y):
        return (f - y) * np.exp(-((f - y) ** 2) / self.sigma**2)

    def bound(self, columns):
        return self.sigma / (2.0 * np.e) ** 0.5


def dsg(model, gradient, gamma, noise, room):
    """Always a new block."""
    return (model.n_blocks, gamma) if room else (model.drawn_block(), gamma)


def udsg(grow, reuse):
    """New blocks for `grow` steps, then `reuse` steps on old ones drawn uniformly."""

    def rule(model, gradient, gamma, noise, room):
        grows = model.t % (grow + reuse) < grow
        return (model.n_blocks, gamma) if room and grows else (model.drawn_block(), gamma)

    return rule


def cdsg(longest):
    """The old block of the longest checked step, if that is longer than γ; else a new one."""

    def rule(model, gradient, gamma, noise, room):
        steps = [checked_step(beta, gradient, gamma, noise) for beta in model.beta]
        best = int(np.argmax([*steps, 0.0]))
        eta = max(steps, default=0.0)
        model.margins.append(_margin(model.beta, steps, gamma, room))
        if eta > gamma:
            return best, min(eta, longest * gamma)
        if room:
            return model.n_blocks, gamma
        return (best, eta) if eta > 0.0 else (model.drawn_block(), gamma)

    return rule


def by_root(model, gradient, gamma, noise, room):
    """CDSG with steps of automatic size: a new block at every step; without a cap, 128√t features after t steps."""
    grows = room and (model.most_blocks < np.inf or model.n_blocks * model.block_size < 128 * (model.t + 1) ** 0.5)
    return (model.n_blocks if grows else model.drawn_block()), gamma


def checked_step(beta, g, gamma, noise):
    """Return the largest η with 2‖β - ηg‖² + 2η²·noise ≤ ‖β‖² + γ²‖g‖², 0 if there is none."""
    a = 2.0 * (g @ g) + 2.0 * noise
    b = -4.0 * (beta @ g)
    c = beta @ beta - gamma**2 * (g @ g)
    if a == 0.0 or b * b < 4.0 * a * c:
        return 0.0
    return max(0.0, (-b + np.sqrt(b * b - 4.0 * a * c)) / (2.0 * a))


def _margin(beta, steps, gamma, room):
    """Return how far the choice is from a tie, relative to γ; blocks of β = 0 are alike, and the first is taken."""
    alike = [step for b, step in zip(beta, steps, strict=True) if not b.any()]
    others = [step for b, step in zip(beta, steps, strict=True) if b.any()]
    first, second, *_ = [*sorted(others + alike[:1], reverse=True), 0.0, 0.0]
    takes_first = first > gamma or (not room and first > 0.0)
    return min(abs(first - gamma), first - second if takes_first else np.inf) / gamma


def clip(g, most):
    """Return the share of each number that remains: it is at most the largest so far, `most`, which at most doubles."""
    size, known = np.abs(g), most > 0.0
    share = np.where(known & (size > most), most / np.where(size > 0.0, size, 1.0), 1.0)
    most[:] = np.where(known, np.clip(size, most, 2.0 * most), size)
    return share


@cache
def directions(measure, names: tuple[Hashable, ...], block_size: int, seed: int, part: int, block: int):
    """Return ω of the features of a block for the columns `names`, shape (names, F), of one part of a kernel."""
    omega = np.empty((len(names), block_size), np.float32)
    for name, row in zip(names, omega, strict=True):
        key = domain_key(seed, f"features/{part}" if part else "features")
        draw(measure, 0.0, key, block, np.uint64(hash64(name)), row)
    omega.flags.writeable = False  # each caller gets the same array
    return omega


def features(z):
    """Return φ from the complex features z of a kernel's terms, shape (terms, rows, F): real parts, then imaginary."""
    return np.concatenate([part for term in z for part in (term.real, term.imag)], axis=1) / np.sqrt(z.shape[2])


def gaussian(names: Sequence[Hashable], sigma: float, block_size: int, seed: int):
    """Return φ_b(x) of a block and rows: F^-½ (cos ωᵀx for all ω, then sin ωᵀx for all ω), for columns `names`."""
    return lambda block, X: features(
        np.exp(1j * X @ directions(NORMAL, tuple(names), block_size, seed, 0, block) / sigma)[None]
    )


def composite(names: Sequence[Hashable], sigma: float, weight: float, block_size: int, seed: int):
    """Return φ_b(x) of Gaussian(sigma) · ArcCosine(1) + weight · ChiSquared()."""

    def phi(block, X):
        omega, omega1, omega2 = (
            directions(measure, tuple(names), block_size, seed, part, block)
            for part, measure in enumerate((NORMAL, NORMAL, SECH))
        )
        product = np.exp(1j * X @ omega / sigma) * np.sqrt(2.0) * np.maximum(X @ omega1, 0.0)
        logs = np.log(np.where(X > 0.0, X, 1.0))[:, :, None]
        chi = (np.sqrt(X)[:, :, None] * np.sign(omega2) * np.exp(1j * np.abs(omega2) * logs)).sum(axis=1)
        return features(np.stack([product, np.sqrt(weight) * chi]))

    return phi


class Reference:
    """f(x) = Σ_b φ_b(x)ᵀ α_b, learned from a stream.

    Parameters
    ----------
    phi
        Gives φ_b(x), shape (rows, outputs), for the number of a block and rows.
    loss, rule
        One of the losses and one of the rules above.
    step
        γ_t for t = 1, 2, ...
    block_size, most_blocks
        Features F of a block, and the cap on the blocks.
    l2, columns, seed
        λ, the columns of f, and the model's seed.
    epsilon
        ε of the preconditioner, 0 for none.
    intercept
        Whether the running mean of the targets is taken off them, and added to f.
    in_selves
        Whether |z|² is not 1, and γ in units of 1/k(x, x).
    curvature
        The bound on the loss's second derivative for steps of automatic size, which move all blocks; 0 for others.
    """

    def __init__(
        self,
        phi,
        loss,
        rule,
        step: Callable[[int], float],
        *,
        block_size: int,
        most_blocks: float = np.inf,
        l2: float = 0.0,
        columns: int = 1,
        intercept: bool = False,
        epsilon: float = 0.0,
        in_selves: bool = False,
        curvature: float = 0.0,
        seed: int = 0,
    ):
        self.phi, self.loss, self.rule, self.step = phi, loss, rule, step
        self.block_size, self.most_blocks, self.l2, self.columns = block_size, most_blocks, l2, columns
        self.intercept, self.epsilon, self.seed = intercept, epsilon, seed
        self.in_selves, self.powers = in_selves, []  # |z|² of the first block's features, for every example
        self.curvature, self.distance2, self.gradients = curvature, 0.0, []  # ‖f‖², and each ‖∇‖²
        self.alpha, self.beta = np.zeros((0, 0, columns)), np.zeros((0, columns))  # one entry a block
        self.iterates = []  # α after each step
        self.late_sum, self.late_weight = self.alpha, 0  # Σ t(t + 1)(t + 2) α_t, and the sum of these weights
        self.margins = []  # how far the rule's choices were from a tie
        self.t, self.examples, self.mean, self.running_loss = 0, 0, 0.0, 0.0
        self.eta, self.largest, self.weight, self.log_odds = 0.0, np.zeros(1), 0.0, 0.0
        self.targets = []

    @property
    def n_blocks(self):
        return len(self.alpha)

    @property
    def norm2(self):
        """‖f‖² in the space of the kernel that the n blocks make, (1/n) Σ φ_b(x)·φ_b(x')."""
        return self.n_blocks * (self.alpha**2).sum()

    @property
    def objective(self):
        return self.running_loss + 0.5 * self.l2 * self.norm2

    def features(self, X):
        """Return φ_b(x) for each block and row."""
        return np.stack([self.phi(block, X) for block in range(self.n_blocks)])

    def function(self, X):
        """Return Σ_b φ_b(x)ᵀ α_b for each row."""
        if not self.n_blocks:
            return np.zeros((len(X), self.columns))
        return (self.features(X) @ self.alpha).sum(axis=0)

    def scores(self, X, averaged=False):
        """Return the prediction of the last iterate, or of the average of all."""
        if not (averaged and self.iterates):
            return self.in_range(self.function(X) + self.mean)
        phi = self.features(X)
        return self.in_range(np.mean([(phi[: len(a)] @ a).sum(axis=0) for a in self.iterates], axis=0) + self.mean)

    def in_range(self, scores):
        """Return predictions of numbers limited to the range of the targets so far, none of which is an outlier."""
        if not (self.intercept and self.targets):
            return scores
        low = high = self.targets[0]
        below = above = 0.0
        for n, y in enumerate(self.targets, 1):
            kept = 1.0 - 1.0 / min(n, HORIZON)
            below, above = kept * below + max(low - y, 0.0), kept * above + max(y - high, 0.0)
            low, high = min(low, y), max(high, y)
        more = 0.2 * (high - low)
        return np.clip(scores, low - max(more, 2.0 * below), high + max(more, 2.0 * above))

    def late_average(self, X):
        """Return the average of all iterates, f_t with the weight t(t + 1)(t + 2)."""
        if not self.iterates:
            return self.function(X)
        return (self.features(X) @ self.late_sum).sum(axis=0) / self.late_weight

    def mixture(self, X):
        """Return the prediction of the last iterate and the late average together."""
        f = self.function(X)
        return self.in_range(f + (self.late_average(X) - f) / (1.0 + np.exp(-self.log_odds)) + self.mean)

    def learn(self, X, y, w=None):
        """Take one step on one batch, of these weights."""
        batch = len(X)
        w = np.ones(batch) if w is None else w
        f, average = self.function(X), self.late_average(X)
        g = np.zeros_like(f)
        losses = []
        bound = self.loss.bound(self.columns)
        for i in range(batch):
            self.examples, self.weight = self.examples + 1, self.weight + w[i]
            self.targets.append(y[i])
            if self.intercept:
                self.mean += w[i] * (y[i] - self.mean) / self.weight
            losses.append(self.loss.value(f[i], y[i] - self.mean))
            if self.running_loss > 0.0:
                gain = losses[-1] - self.loss.value(average[i], y[i] - self.mean)
                self.log_odds = np.clip(0.98 * self.log_odds + w[i] * gain / self.running_loss, -40.0, 40.0)
            g[i] = self.loss.gradient(f[i], y[i] - self.mean)
            if bound is None:
                g[i] = g[i] * clip(np.linalg.norm(g[i]), self.largest)
        error = np.sqrt((g**2).sum() / batch)
        g = w[:, None] * g
        gradient = g.mean(axis=0)

        M = self.largest[0] if bound is None else bound
        gamma, variance = self.step(self.t + 1), 0.5 / self.block_size  # of a cosine of random phase, over F features
        k_xx = 1.0
        if self.in_selves:
            outputs = self.phi(0, X).reshape(batch, -1, self.block_size)
            self.powers += list(self.block_size * (outputs**2).sum(axis=1))
            k_xx = max(np.mean(self.powers), np.mean(self.powers[-batch:], axis=1).max())
            gamma /= k_xx
            variance *= np.mean(np.square(self.powers)) / np.mean(self.powers) ** 2
        room = self.n_blocks < self.most_blocks
        k, eta = self.rule(self, gradient, gamma, variance * (w.max() * M / batch) ** 2, room)
        phi = self.phi(k, X)
        if k == self.n_blocks:
            self._add_block(phi.shape[1])

        change = phi.T @ g / batch
        if self.epsilon:
            change = np.linalg.solve(phi.T @ phi / batch + self.epsilon * np.eye(phi.shape[1]), change)
            g = np.linalg.solve(phi @ phi.T / batch + self.epsilon * np.eye(batch), g)
        if self.curvature:
            change = np.einsum("kip,ic->kpc", self.features(X), g) / (batch * self.n_blocks)
            eta = self._automatic(change, (f * g).sum() / batch, error / self.curvature, k_xx)
        shrink = 1.0 - eta * self.l2
        self.alpha, self.beta = shrink * self.alpha, shrink * self.beta
        self.alpha[slice(None) if self.curvature else k] -= eta * change
        if not self.curvature:
            self.beta[k] -= eta * gradient
        self.iterates.append(self.alpha)
        weight = (self.t + 1) * (self.t + 2) * (self.t + 3)
        self.late_sum, self.late_weight = self.late_sum + weight * self.alpha, self.late_weight + weight

        self.running_loss += min(1.0, w.sum() / min(self.weight, HORIZON)) * (
            np.average(losses, weights=w) - self.running_loss
        )
        self.eta = eta
        self.t += 1

    def _automatic(self, direction, along, error, k_xx):
        """Return the step in a direction, ∇, with ⟨∇, f⟩ and the error in units of f."""
        square = self.n_blocks * (direction**2).sum()
        self.gradients.append(square + 2.0 * self.l2 * along + self.l2**2 * self.distance2)
        most = error / np.sqrt(square * k_xx) if square else 0.0
        wanted = np.sqrt(2.0 * self.distance2 / sum(self.gradients)) if sum(self.gradients) else 0.0
        eta = min(most, max(wanted, most / np.sqrt(self.t + 1), most / 32.0))
        eta = min(eta, 1.0 / self.l2) if self.l2 else eta
        shrink = 1.0 - eta * self.l2
        self.distance2 = max(0.0, shrink**2 * self.distance2 - 2.0 * eta * shrink * along + eta**2 * square)
        return eta

    def drawn_block(self):
        """Return the old block that is drawn uniformly for this step."""
        bits = int(counter_bits(domain_key(self.seed, "rule"), np.uint64(self.t)))
        return (bits >> 11) * self.n_blocks >> 53

    def _add_block(self, outputs):
        """Add a block of coefficients that are 0."""
        shape = 1, outputs, self.columns
        self.alpha, self.late_sum = (
            np.concatenate([sums.reshape(-1, *shape[1:]), np.zeros(shape)]) for sums in (self.alpha, self.late_sum)
        )
        self.beta = np.concatenate([self.beta, np.zeros((1, self.columns))])
