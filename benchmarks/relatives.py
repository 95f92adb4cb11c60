"""First-order learning with no arguments beside published online kernel learners in their best form.

"ours" is `KernelRegressor(learner="dsg")` or `KernelClassifier(learner="dsg")`, without a scaler. The others are:

    FOGD, NOGD     random Fourier features, or Nystrom's, and gradient steps (Lu et al. 2016)
    NORMA          functional gradient steps, truncated to the last terms (Kivinen, Smola and Williamson 2004)
    POLK-B         functional gradient steps, compressed by matching pursuit (Koppel et al. 2019), with a budget
    BPA-S          passive-aggressive steps that drop one vector (Wang and Vucetic 2010); classes only
    Projectron++   a perceptron that projects on its vectors (Orabona, Keshet and Caputo 2009); classes only
    Raker          FOGD of several bandwidths, weights by exponentiated losses (Shen, Chen and Giannakis 2019)
    AdaRaker       Rakers that restart at multiples of 16, 32, 64, ... events, weights by exponentiated regrets

They have prequential scalers of inputs and targets in front, and their settings are the best ones in hindsight: a
bandwidth of `FACTORS` times the median distance of the first 256 inputs (the Rakers have all); a step size, C or
threshold of five; and for classes, where they follow gradients, the better one of the hinge and the logistic loss.
Several classes are one-vs-rest. All have the same number of vectors, or of random frequencies with a cosine and a sine
for each; ours has up to 4,096 of these. Long streams are thinned evenly, so that their drifts remain. Scores begin
with the second event.

    python -m benchmarks.relatives [--events 5000] [--size 1024] [--streams friedman,arm]
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, vectorize
from threadpoolctl import threadpool_limits

from benchmarks import common
from benchmarks.prequential import predicted, whole_score
from benchmarks.scenarios import CLASSES, HELD_OUT, NUMBERS, SCENARIOS, Event, Scenario, filled, rows
from streamkernel import KernelClassifier, KernelRegressor

FACTORS = 0.125, 0.25, 0.5, 1.0
FIRST = 256  # inputs whose distances give the median
STEPS = 0.12, 0.25, 0.5, 1.0, 2.0
AGGRESSIVENESS = 0.03, 0.1, 0.3, 1.0, 3.0  # C of BPA-S
THRESHOLDS = 0.1, 0.2, 0.4, 0.6, 0.8  # of Projectron++
SHORTEST = 16  # events of AdaRaker's shortest instances
ERROR, DEPENDENT = 0.01, 1e-4  # of POLK-B: bound on the error of a step of 1; squared distance from other vectors
CLOSE = 0.002
SQUARE, HINGE, LOGISTIC = range(3)
LOSSES = {NUMBERS: (SQUARE,), CLASSES: (HINGE, LOGISTIC)}
METHODS = "ours", "FOGD", "NOGD", "NORMA", "POLK-B", "BPA-S", "Projectron++", "Raker", "AdaRaker"
NAMES = "phishing,bananas,image_segments,sea_abrupt,hyperplane,friedman,friedman_abrupt,diabetes,planes_2d,mv,arm"


def arm(folder: Path) -> Iterator[Event]:
    """Yield the angles of eight joints of an arm in a plane, and how far it reaches: a synthetic kin8nm."""
    generator = np.random.default_rng(0)
    angles = generator.uniform(-math.pi / 2, math.pi / 2, (5000, 8))
    reach = np.abs(np.exp(1j * np.cumsum(angles, axis=1)).sum(axis=1))
    return rows(angles, reach + 0.1 * generator.normal(size=len(angles)))


STREAMS = {**SCENARIOS, "arm": Scenario(HELD_OUT, NUMBERS, arm)}


@vectorize
def gradient(loss, f, y):  # type: ignore[no-untyped-def]
    """Return the derivative of a loss by f."""
    if loss == SQUARE:
        return f - y
    if loss == HINGE:
        return -y if y * f < 1.0 else 0.0
    return -y / (1.0 + math.exp(min(y * f, 500.0)))


@vectorize
def value(loss, f, y):  # type: ignore[no-untyped-def]
    """Return a loss."""
    if loss == SQUARE:
        return 0.5 * (f - y) ** 2
    if loss == HINGE:
        return max(0.0, 1.0 - y * f)
    return max(0.0, -y * f) + math.log1p(math.exp(-abs(y * f)))


@njit(cache=True)
def sgd(Z, Y, loss, step):  # type: ignore[no-untyped-def]
    """θ ← θ - η ℓ'(θᵀz, y) z: FOGD and NOGD, by their features z."""
    F, theta = np.zeros(Y.shape), np.zeros((Y.shape[1], Z.shape[1]), np.float32)
    for i in range(len(Y)):
        F[i] = theta @ Z[i]
        moves = -step * gradient(loss, F[i], Y[i])
        for c in range(len(moves)):
            theta[c] += np.float32(moves[c]) * Z[i]
    return F


@njit(cache=True)
def norma(K, Y, loss, step, decay, size):  # type: ignore[no-untyped-def]
    """f ← (1 - ηλ) f - η ℓ'(f(x), y) k(x, ·), of which the last terms are kept; `decay` is ηλ."""
    F, a, scale = np.zeros(Y.shape), np.zeros(Y.shape, np.float32), 1.0
    for i in range(len(Y)):
        first = max(0, i - size)
        if i:
            F[i] = scale * (K[i, first:i] @ a[first:i])
        scale *= 1.0 - decay
        a[i] = -step / scale * gradient(loss, F[i], Y[i])
    return F


@njit(cache=True)
def bpa_s(K, y, C, size):  # type: ignore[no-untyped-def]
    """f ← f + τ y k(x, ·), τ = min(C, ℓ); a budget that is full loses the vector r of least α_r² (1 - k(x_r, x)²).

    Of all changes to the coefficients of r and of the new vector this one has the least ½‖f_new - f‖² + C ℓ(f_new); it
    gives α_r k(x_r, x) to the new vector.
    """
    f, kept, a, m = np.zeros(len(y)), np.zeros(size, np.int64), np.zeros(size, np.float32), 0
    for i in range(len(y)):
        k = K[i][kept[:m]]
        f[i] = k @ a[:m] if m else 0.0
        if y[i] * f[i] < 1.0:
            r, a_new = m, y[i] * min(C, 1.0 - y[i] * f[i])
            if m == size:
                r = np.argmin(a**2 * (1.0 - k**2))
                a_new += a[r] * k[r]
            kept[r], a[r], m = i, a_new, min(m + 1, size)
    return f


@njit(cache=True)
def values_at(row, kept, m):  # type: ignore[no-untyped-def]
    """Return k(x_j, x) of the m vectors, then zeros."""
    k = np.zeros(len(kept))
    k[:m] = row[kept[:m]]
    return k


@njit(cache=True, fastmath=True)
def put(inverse, v, delta, r):  # type: ignore[no-untyped-def]
    """Put a vector in the place r of K⁻¹; v are the coefficients of its projection, delta its squared distance.

    Return what each vector gets, times -1, for a coefficient of 1 of the vector that was there.
    """
    u = inverse[r] + v * (v[r] / delta)
    pivot, u[r], added = u[r] if u[r] > 0.0 else 1.0, -v[r] / delta, v.copy()
    added[r], inverse[r], inverse[:, r] = -1.0, 0.0, 0.0
    for a in range(len(u)):
        plus, minus = added[a] / delta, u[a] / pivot
        for b in range(len(u)):
            inverse[a, b] += plus * added[b] - minus * u[b]
    return u / pivot


@njit(cache=True)
def polk(K, Y, loss, step, size):  # type: ignore[no-untyped-def]
    """f ← f - η ℓ'(f(x), y) k(x, ·), less the vector r that others replace best, by the error |w_r|² / (K⁻¹)_rr.

    It is replaced if its error is within a bound, or if the budget is full.
    """
    bound, m, F, w = (ERROR * step) ** 2, 0, np.zeros(Y.shape), np.zeros((size, Y.shape[1]))
    inverse, kept = np.zeros((size, size)), np.zeros(size, np.int64)
    for i in range(len(Y)):
        k = values_at(K[i], kept, m)
        F[i] = k @ w
        w_new = -step * gradient(loss, F[i], Y[i])
        if not w_new.any():
            continue
        v = inverse @ k
        delta = 1.0 - k @ v
        r, least = m, (w_new**2).sum() * delta
        if delta > DEPENDENT and m:
            errors = (w[:m] ** 2).sum(axis=1) / (np.diag(inverse)[:m] + v[:m] ** 2 / delta)
            if errors.min() < least:
                r, least = np.argmin(errors), errors.min()
        if least > bound and m < size:
            r = m
        elif r == m:
            w += np.outer(v, w_new)
            continue
        w_old = w[r].copy()
        w[r], kept[r], m = w_new, i, max(m, r + 1)
        w -= np.outer(put(inverse, v, delta, r), w_old)
    return F


@njit(cache=True)
def projectron(K, y, threshold, size):  # type: ignore[no-untyped-def]
    """f ← f + y τ Pk, where P projects on the vectors and |k - Pk| = δ, and η is the threshold.

    On a mistake τ = 1, with k for Pk if δ > η and the budget is not full. Within the margin τ is
    min(1, ℓ / |Pk|², 2 (ℓ - δ / η) / |Pk|²), if this is positive.
    """
    f, m, w = np.zeros(len(y)), 0, np.zeros(size)
    inverse, kept = np.zeros((size, size)), np.zeros(size, np.int64)
    for i in range(len(y)):
        k = values_at(K[i], kept, m)
        f[i] = k @ w
        loss, tau = 1.0 - y[i] * f[i], 1.0
        if loss <= 0.0:
            continue
        v = inverse @ k
        length2 = k @ v
        delta = math.sqrt(max(0.0, 1.0 - length2))
        if loss < 1.0:
            tau = min(1.0, loss / length2, 2.0 * (loss - delta / threshold) / length2)
        elif delta > threshold and m < size:
            put(inverse, v, delta**2, m)
            kept[m], w[m], m = i, y[i], m + 1
            continue
        w += max(0.0, tau) * y[i] * v
    return f


def mixture(logs: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the mean over the first axis, with weights of these logarithms."""
    weights = np.exp(logs - logs.max(axis=0))
    return (weights * members).sum(axis=0) / weights.sum(axis=0)


def raker(members: np.ndarray, Y: np.ndarray, loss: int, step: float) -> np.ndarray:
    """Return Σ_p w_p f_p with w_p ∝ exp(-η Σ ℓ(f_p)) by the losses before; a member f_p is FOGD of one bandwidth."""
    losses = value(loss, members, Y)
    return mixture(step * (losses - np.cumsum(losses, axis=1)), members)


def ada_raker(Z: np.ndarray, Y: np.ndarray, loss: int, step: float) -> np.ndarray:
    """Mix Rakers by h ← h exp(η (ℓ(mixture) - ℓ)), each with its own η: min(1/2, η √(n / length)), or η if it is more.

    All members are rows of one matrix of coefficients for each bandwidth. The longest one never restarts.
    """
    n, columns = Y.shape
    lengths = SHORTEST * 2 ** np.arange(math.ceil(math.log2(max(1, n / SHORTEST))) + 1)
    eta = np.maximum(step, np.minimum(0.5, step * np.sqrt(n / lengths)))[:, None]
    theta = np.zeros((len(Z), len(lengths), columns, Z.shape[2]), np.float32)
    logs, h, F = np.zeros(theta.shape[:3]), np.zeros((len(lengths), columns)), np.zeros(Y.shape)
    for i in range(n):
        begins = i % lengths == 0
        theta[:, begins], logs[:, begins], h[begins] = 0.0, 0.0, np.log(eta[begins])
        f = (theta.reshape(len(Z), -1, Z.shape[2]) @ Z[:, i, :, None]).reshape(logs.shape).astype(float)
        parts = mixture(logs, f)
        F[i] = mixture(h, parts)
        h += eta * (value(loss, F[i], Y[i]) - value(loss, parts, Y[i]))
        logs -= eta * value(loss, f, Y[i])
        theta -= (eta * gradient(loss, f, Y[i])).astype(np.float32)[..., None] * Z[:, None, None, i]
    return F


def standardised(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows scaled by the means and standard deviations of the rows up to each, and these."""
    shifted, counts = table - table[0], np.arange(1.0, len(table) + 1.0)[:, None]
    means = np.cumsum(shifted, axis=0) / counts
    variances = np.cumsum(shifted**2, axis=0) / counts - means**2
    scales = np.sqrt(np.where(variances > 1e-12, variances, 1.0))
    return (shifted - means) / scales, means + table[0], scales


class Table:
    """A stream as peers see it: scaled inputs and targets, a column per class if there are more than two."""

    def __init__(self, task: str, events: list[Event]) -> None:
        self.task, self.events = task, events
        self.X = standardised(np.array([[x[name] for name in events[0][0]] for x, _ in events]))[0]
        targets = np.array([y for _, y in events])
        if task == NUMBERS:
            self.Y, self._means, self._scales = standardised(targets[:, None])
            return
        self._classes = np.unique(targets)
        signs = np.where(targets[:, None] == self._classes, 1.0, -1.0)
        self.Y = signs[:, 1:].copy() if len(self._classes) == 2 else signs

    def score(self, F: np.ndarray) -> float:
        """Return accuracy or R² of a function's values; targets are scaled back as known before each event."""
        if not np.isfinite(F).all():
            return -math.inf
        if self.task == NUMBERS:
            return whole_score(self.task, self.events[1:], (self._means[:-1] + self._scales[:-1] * F[1:])[:, 0])
        codes = F.argmax(axis=1) if F.shape[1] > 1 else (F[:, 0] > 0.0).astype(int)
        return whole_score(self.task, self.events[1:], self._classes[codes][1:])

    def of_columns(self, method: Any, *arguments: Any) -> np.ndarray:
        """Return the values of a method's functions for each class."""
        return np.column_stack([method(arguments[0], y, *arguments[1:]) for y in self.Y.T.copy()])

    def functions(self, size: int) -> Iterator[tuple[str, Any, np.ndarray]]:
        """Yield method, setting and function of all peers."""
        lengths2 = np.square(self.X).sum(axis=1)
        distances2 = np.maximum(0.0, lengths2[:, None] + lengths2 - 2.0 * self.X @ self.X.T)
        median2 = np.median(distances2[:FIRST, :FIRST][np.triu_indices(min(FIRST, len(self.X)), 1)])
        directions = np.random.default_rng(1).normal(size=(self.X.shape[1], size))
        fourier, members, by_gradient = [], defaultdict(list), [*itertools.product(LOSSES[self.task], STEPS)]
        for factor in FACTORS:
            sigma = factor * math.sqrt(median2)
            K = np.exp(-0.5 / sigma**2 * distances2).astype(np.float32)
            angles = self.X @ directions / sigma
            fourier.append((np.hstack([np.cos(angles), np.sin(angles)]) / math.sqrt(size)).astype(np.float32))
            eigenvalues, V = np.linalg.eigh(K[:size, :size].astype(float))
            usable = eigenvalues > 1e-6 * eigenvalues[-1]
            nystrom = (K[:, :size] @ (V[:, usable] / np.sqrt(eigenvalues[usable]))).astype(np.float32)
            for loss, step in by_gradient:
                members[loss, step].append(sgd(fourier[-1], self.Y, loss, step))
                yield "FOGD", (factor, loss, step), members[loss, step][-1]
                yield "NOGD", (factor, loss, step), sgd(nystrom, self.Y, loss, step)
                for decay in (0.0, 1.0 / size):
                    yield "NORMA", (factor, loss, step, decay), norma(K, self.Y, loss, step, decay, size)
                yield "POLK-B", (factor, loss, step), polk(K, self.Y, loss, step, size)
            for aggressiveness, threshold in zip(AGGRESSIVENESS, THRESHOLDS, strict=True):
                if self.task == CLASSES:
                    yield "BPA-S", (factor, aggressiveness), self.of_columns(bpa_s, K, aggressiveness, size)
                    yield "Projectron++", (factor, threshold), self.of_columns(projectron, K, threshold, size)
        for loss, step in by_gradient:
            yield "Raker", (loss, step), raker(np.array(members[loss, step]), self.Y, loss, step)
            yield "AdaRaker", (loss, step), ada_raker(np.array(fourier), self.Y, loss, step)


def compared(name: str, n: int, size: int) -> dict[str, float]:
    """Return the score of each method with its best setting, the mean over the orders of a stream."""
    scenario, scores = STREAMS[name], defaultdict[tuple[str, Any], list[float]](list)
    for order in range(scenario.orders):
        events = scenario.events(Path(), order)
        events = filled([events[i] for i in np.linspace(0, len(events) - 1, min(n, len(events))).astype(int)])
        ours = (KernelClassifier if scenario.task == CLASSES else KernelRegressor)(learner="dsg")
        scores["ours", None].append(whole_score(scenario.task, events[1:], predicted(ours, events)[1:]))
        table = Table(scenario.task, events)
        for method, setting, function in table.functions(size):
            scores[method, setting].append(table.score(function))
    best: dict[str, float] = {}
    for (method, _), of_orders in scores.items():
        best[method] = max(best.get(method, -math.inf), float(np.mean(of_orders)))
    return best


def main() -> None:
    """Print the table."""
    options = common.arguments(__doc__, events=5000, size=1024, streams=NAMES)
    table, close = [], dict.fromkeys(METHODS, 0)
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):  # steps that are too large
        for name in options.streams.split(","):
            best = compared(name, options.events, options.size)
            first = max(best.values())
            for method, score in best.items():
                close[method] += score >= first - CLOSE
            cells = {method: f"{score:.3f}{'*' * (score == first)}" for method, score in best.items()}
            table.append([f"{name}, {STREAMS[name].measure}", *(cells.get(method, "") for method in METHODS)])
    table.append([f"first or within {CLOSE} of it", *map(str, close.values())])
    common.show("*: first", ["stream", *METHODS], table)


if __name__ == "__main__":
    main()
