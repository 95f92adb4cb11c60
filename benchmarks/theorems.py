"""The rates of the papers' theorems, beside the measured ones of the printed algorithms of `streamkernel.research`.

DSG, UDSG, CDSG: γ_t = θ/t with θλ of 1 and 1.5, one seed and one example a step. E|f_t(x) - f*(x)|² falls as 1/t (Dai
et al., Theorem 4; Li and Póczos, Theorems 3 and 4), a slope of -1. f* is kernel ridge regression on 40 points in closed
form. The loss is Huber's with δ = 1, because the theorems assume a bounded derivative; all residuals of f* are below 1,
so that f* is its minimum too.

CDSG has no proof in its paper, and nothing limits its line search: a step above 2/λ makes all coefficients larger. The
second table counts the seeds that diverge so, with batches of B, by B² of (9) as printed and by B as derived.

DSPDC: the expected squared distance of Theorem 1 falls by 1 - 1/K in a step, a slope of -1 per K steps. The solution is
ridge regression in closed form.

AsyDSSKL, one thread: the expected excess objective of Theorem 1 falls in an outer iteration by the factor
1/(1 + mγℓ/(n(ℓγ + L_max))), for the largest γ that (10) allows, and for two that users would take. ℓ is the least
eigenvalue of the Hessian of the square loss.

It takes one to two minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks import race
from benchmarks.common import arguments, show
from benchmarks.rivals.parts import F64
from streamkernel import kernels, losses, research, step_sizes
from streamkernel.solvers.sparse import minimise_sparse

POINTS, SIGMA, NOISE, L2 = 40, 0.8, 0.3, 0.2
CLASSES: dict[str, Any] = {"DSG": research.DSG, "UDSG": research.UDSG, "CDSG": research.CDSG}
DIVERGED = 1e3
"""A mean squared error above this, of functions below 1, is counted as divergence."""
CHECKS = ((1, "printed"), (8, "printed"), (8, "derived"))
"""Batch sizes B, for which (9) has B² or B."""
BLOCKS = ((1, 1), (1, 10), (50, 1), (10, 2))
"""m and q of DSPDC, for 50 rows and 10 columns: one of each, SPDC, all rows, a fifth of each."""
GAMMAS = (0.0, 0.03, 0.3)
"""γ of AsyDSSKL; 0 stands for the largest that (10) allows."""


class Curve(NamedTuple):
    """Numbers of steps, in the unit of the theorem, and the mean error there of all runs."""

    t: F64
    error: F64

    @property
    def slope(self) -> float:
        """The slope of the logarithm of the error against the logarithm of t."""
        return float(np.polyfit(np.log(self.t), np.log(self.error), 1)[0])

    @property
    def rate(self) -> float:
        """The slope of the logarithm of the error against t, while the error is well above rounding."""
        above = self.error > 1e-10 * self.error[0]
        return float(np.polyfit(self.t[above], np.log(self.error[above]), 1)[0])


def kernel_ridge() -> tuple[F64, F64, F64]:
    """Return points, the targets without noise, and f* there."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (POINTS, 2))
    target = 0.6 * np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=-1) / (2 * SIGMA**2))
    best = K @ np.linalg.solve(K + L2 * POINTS * np.eye(POINTS), target)
    if np.abs(best - target).max() + NOISE > 1.0:
        raise AssertionError("a residual is beyond the bend of the loss")
    return X, target, best


@np.errstate(all="ignore")
def errors(name: str, product: float, marks: list[int], seed: int, **options: Any) -> tuple[list[float], int]:
    """Return the mean squared error after each of `marks` steps with θλ = `product`, and the steps on old seeds."""
    X, target, best = kernel_ridge()
    draws, step = np.random.default_rng([1, seed]), step_sizes.InverseTime(product / L2)
    f = CLASSES[name](kernels.Gaussian(SIGMA), losses.Huber(1.0), step_size=step, l2=L2, seed=seed, **options)
    at_marks = []
    for t, last in zip([0, *marks], marks, strict=False):
        i = draws.integers(0, POINTS, (last - t) * f.batch_size)
        f.partial_fit(X[i], target[i] + NOISE * draws.uniform(-1, 1, len(i)))
        at_marks.append(float(np.mean((f.predict(X) - best) ** 2)))
    return at_marks, f.n_reused


def doubly_stochastic(name: str, product: float, steps: int, seeds: int) -> tuple[Curve, float]:
    """Return the mean error of all runs from a tenth of the steps on, and their mean number of steps on old seeds."""
    marks = race.geometric(steps // 10, steps, 12)
    runs = [errors(name, product, marks, seed) for seed in range(seeds)]
    mean, reused = np.mean([run[0] for run in runs], axis=0), np.mean([run[1] for run in runs])
    return Curve(np.array(marks, float), mean), float(reused)


def diverging(product: float, batch: int, check: str, seeds: int) -> tuple[float, float]:
    """Return the shares of seeds of CDSG that diverge within 200 steps, and of steps on old seeds."""
    runs = [errors("CDSG", product, [200], seed, batch_size=batch, check=check) for seed in range(seeds)]
    return float(np.mean([not run[0][0] < DIVERGED for run in runs])), float(np.mean([run[1] for run in runs])) / 200


def primal_dual(m: int, q: int, multiples: int, seeds: int) -> tuple[Curve, float]:
    """Return the distance of Theorem 1 after each K steps, and the largest share of its bound."""
    rng = np.random.default_rng(0)
    n, p, l2 = 50, 10, 0.05
    A = rng.standard_normal((n, p))
    b = A @ rng.standard_normal(p) + rng.standard_normal(n)
    x = np.linalg.solve(A.T @ A / n + l2 * np.eye(p), A.T @ b / n)
    y = A @ x - b
    distances = []
    for seed in range(seeds):
        solver = research.DSPDC(A, b, l2=l2, m=m, q=q, seed=seed)
        k, of_x = round(1.0 / (1.0 - solver.rate)), p / (2 * q * solver.tau) + p * l2 / q
        of_y, of_y_first = (n / (part * m * solver.sigma) + 1.0 / m for part in (4, 2))
        distances.append([])
        for at in range(multiples + 1):
            solver.run(k if at else 0)
            distances[-1].append(of_x * ((solver.x - x) ** 2).sum() + of_y * ((solver.y - y) ** 2).sum())
    mean, t = np.mean(distances, axis=0), np.arange(multiples + 1.0)
    bounds = (of_x * (x @ x) + of_y_first * (y @ y)) * solver.rate ** (k * t)
    return Curve(t, mean), float((mean / bounds).max())


def sparse(gamma: float, outer: int, seeds: int) -> tuple[Curve, float, float]:
    """Return the excess objective after each outer iteration, γ, and the theorem's logarithm of its factor.

    With one thread τ = 0, so that (10) is 1 - Λ_nor γ - 2 Λ_nor θ₂ γ/√n ≥ 0, with Λ_nor = L_nor/L_max and
    θ₂ = √ρ + ... + √ρᵐ⁻¹, about m - 1 for ρ near 1.
    """
    rng = np.random.default_rng(0)
    rows, n, l1 = 200, 20, 0.05
    Z = rng.standard_normal((rows, n)).astype(np.float32)
    y = Z @ (rng.standard_normal(n) * (np.arange(n) < 8)) + rng.standard_normal(rows)
    exact = Z.astype(float)
    least = float(np.linalg.eigvalsh(exact.T @ exact / rows)[0])
    largest, normal = float((exact**2).max()), float((exact**2).sum(axis=1).max())
    gamma = gamma or largest / normal / (1.0 + 2.0 * (rows - 1) / np.sqrt(n))
    best = minimise_sparse(Z, y, losses.Square(), l1=l1, tol=1e-10).objective
    excess = []
    for seed in range(seeds):
        model = research.AsyDSSKL(kernels.Gaussian(1.0), losses.Square(), l1=l1, gamma=gamma, outer=outer)
        model.solve(Z, y, np.zeros(n), np.random.default_rng(seed))
        excess.append(np.array(model.objectives) - best)
    promised = -np.log1p(rows * gamma * least / (n * (least * gamma + largest)))
    return Curve(np.arange(float(outer)), np.mean(excess, axis=0)), gamma, float(promised)


def main() -> None:
    """Print the rates and draw the errors."""
    output = Path("figures/theorems.png")
    options = arguments(__doc__, steps=4000, seeds=8, output=output)
    figure = Figure(figsize=(13, 4), layout="constrained")
    one, two, three = figure.subplots(1, 3)
    ends = np.array([options.steps // 10, options.steps])
    rows = []
    for name in CLASSES:
        for product in (1.0, 1.5):
            curve, reused = doubly_stochastic(name, product, options.steps, options.seeds)
            cells = [f"{curve.slope:.2f}", "-1", f"{curve.error[0]:.1e}", f"{curve.error[-1]:.1e}", f"{reused:.0f}"]
            rows.append([name, f"{product:g}", *cells])
            one.loglog(curve.t, curve.error, label=f"{name}, θλ = {product:g}", marker=".", markersize=4)
    columns = ["algorithm", "θλ", "slope", "theorem", *(f"at t = {t:,}" for t in ends), "steps on old seeds"]
    show(f"E|f_t - f*|² against t, mean of {options.seeds} seeds", columns, rows)
    rows = []
    for product in (1.0, 1.5):
        for batch, check in CHECKS:
            share, old = diverging(product, batch, check, 10 * options.seeds)
            term = "B²" if check == "printed" else "B"
            rows.append([f"θλ = {product:g}, B = {batch}", term, f"{share:.0%}", f"{old:.0%}"])
    columns = ["CDSG", "in (9)", "seeds that diverge", "steps on old seeds"]
    show(f"CDSG as printed, 200 steps, {10 * options.seeds} seeds", columns, rows)
    rows = []
    for m, q in BLOCKS:
        curve, share = primal_dual(m, q, 10, options.seeds)
        rows.append([f"m = {m}, q = {q}", f"{curve.rate:.2f}", "-1", f"{share:.2f}"])
        two.semilogy(curve.t, curve.error / curve.error[0], label=f"m = {m}, q = {q}", marker=".", markersize=4)
    columns = ["block", "rate", "theorem", "largest share of the bound"]
    show("DSPDC: logarithm of the squared distance, per K steps", columns, rows)
    rows = []
    for wanted in GAMMAS:
        curve, gamma, promised = sparse(wanted, 400 if wanted else 2000, options.seeds)
        label = f"γ = {gamma:.2g}"
        rows.append([label, f"{curve.rate:.2g}", f"{promised:.2g}", f"{curve.rate / promised:.1f}"])
        three.semilogy(curve.t, np.maximum(curve.error / curve.error[0], 1e-16), label=label)
    columns = ["step", "rate", "theorem", "times as fast"]
    show("AsyDSSKL: logarithm of P - P*, per outer iteration; (10) allows the first γ", columns, rows)
    one.loglog(ends, 3e-3 * ends[0] / ends, "k:", label="1/t")
    two.semilogy(np.arange(11.0), np.exp(-np.arange(11.0)), "k:", label="theorem")
    one.set(title="(1) DSG, UDSG, CDSG", xlabel="step t", ylabel="mean squared error")
    two.set(title="(2) DSPDC", xlabel="steps, in units of K", ylabel="squared distance")
    three.set(title="(3) AsyDSSKL", xlabel="outer iterations", ylabel="excess objective", xlim=(0, 400))
    for axis in (one, two, three):
        axis.legend(fontsize=8, frameon=False)
        axis.grid(alpha=0.3)
    race.save(figure, options.output)


if __name__ == "__main__":
    main()
