"""Figure 3 of Yu, Lin and Yang: matrix risk minimisation, DSPDC beside SPDC and SDCA, the gap against time.

D_i^j has standard normal entries, b_i is the sign of Σ_j ⟨D_i^j, I⟩ (the paper leaves out the sum), the loss is the
smooth hinge, λ = 0.01, d = p = n = 100, or d = 200. (m, q) = (5, 50), (50, 5) and (20, 20); SPDC and SDCA take the same
m and all p matrices. All are the same implementation, start from the same point and have their steps chosen by the same
kind of trials, whose time counts; the plain SDCA has its usual step.

The default has d = p = n = 60, and m and q in proportion, and takes a few minutes. `--size 100` is the paper's first
row: 1 GB, and five minutes a seed. `--size 100 --d 200` is the second: 5 GB.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import dspdc_race
from benchmarks.common import arguments
from benchmarks.dspdc_race import Sampling
from streamkernel import losses
from streamkernel.solvers.matrix_blocks import MatrixProblem
from streamkernel.solvers.matrix_risk import DenseBlocks

L2 = 0.01


def problem(size: int, d: int, seed: int) -> MatrixProblem:
    """Return the problem of a seed."""
    D = np.random.default_rng(seed).standard_normal((size, size, d, d))
    b = np.where(np.trace(D, axis1=2, axis2=3).sum(axis=1) > 0, 1.0, -1.0)
    return MatrixProblem(DenseBlocks(D), losses.SmoothHinge(), b, np.full(size, L2), np.zeros((size, d, d)))


def main() -> None:
    """Print the tables and draw the figure."""
    options = arguments(__doc__, size=60, d=0, seeds=3, tol=1e-8, budget=400, output=Path("figures/dspdc_figure3.png"))
    size, d = options.size, options.d or options.size
    few, some, half = size // 20, size // 5, size // 2
    samplings = [Sampling(few, half), Sampling(half, few), Sampling(some, some)]
    found = dspdc_race.runs(lambda seed: problem(size, d, seed), samplings, options.seeds, options.tol, options.budget)
    title = f"d = {d}, p = n = {size}"
    dspdc_race.tables(title, found, options.tol)
    dspdc_race.draw({title: found}, options.output)


if __name__ == "__main__":
    main()
