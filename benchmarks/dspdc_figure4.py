"""Figure 4 of Yu, Lin and Yang: metrics of many tasks (MT-LMNN), DSPDC beside SPDC and SDCA, the gap against time.

The paper's data, ALOI (100 tasks, 1,142,658 triplets, 128 inputs), is not here: scikit-learn's digits stand in for it,
standardised, dealt out to 20 tasks of all ten classes, 80 examples each: 21 matrices of 64 x 64 and 4,800 triplets.
λ_0 = 0.01, λ_j = 0.1 and 3 neighbours are the paper's; q is, as there, a fifth of the matrices or two fifths, m a
twentieth, a tenth or a fifth of the triplets. SPDC and SDCA take the same m and all matrices. It takes a few minutes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from benchmarks import dspdc_race
from benchmarks.common import arguments
from benchmarks.dspdc_race import Sampling
from streamkernel import losses
from streamkernel.solvers.matrix_blocks import MatrixProblem
from streamkernel.solvers.metric_learning import Triplets, large_margin, neighbours

TASKS, PER_TASK, NEIGHBOURS = 20, 80, 3


def problem(seed: int) -> MatrixProblem:
    """Return the problem of a seed."""
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    rows = np.random.default_rng(seed).permutation(len(y))[: TASKS * PER_TASK].reshape(TASKS, PER_TASK)
    found = [[of[part] for part in neighbours(X[of], y[of], NEIGHBOURS)] for of in rows]
    u, v, w = (np.concatenate(parts) for parts in zip(*found, strict=True))
    scale = np.square(X[u] - X[v]).sum(axis=1).mean() ** -0.5
    ends = np.cumsum([len(of) for of, _, _ in found])
    return large_margin(Triplets(scale * (X[u] - X[w]), scale * (X[u] - X[v]), ends), losses.SmoothHinge(), 0.01, 0.1)[
        0
    ]


def main() -> None:
    """Print the tables and draw the figure."""
    options = arguments(__doc__, seeds=3, tol=1e-4, budget=2000, output=Path("figures/dspdc_figure4.png"))
    n, p = problem(0).data.n, TASKS + 1
    samplings = [Sampling(n // 20, p // 5), Sampling(n // 10, p // 5), Sampling(n // 5, 2 * p // 5)]
    found = dspdc_race.runs(problem, samplings, options.seeds, options.tol, options.budget)
    title = f"digits, {TASKS} tasks, {n:,} triplets"
    dspdc_race.tables(title, found, options.tol)
    dspdc_race.draw({title: found}, options.output)


if __name__ == "__main__":
    main()
