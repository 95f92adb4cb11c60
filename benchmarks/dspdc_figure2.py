"""Figure 2 of Yu, Lin and Yang: the same on real data, reduced to d = 20 random features (`--d`).

A = XGᵀG with the rows of G normal with variance 1/d, the smooth hinge loss, and l1 = 10⁻⁴ and l2 = 10⁻² as in the
paper, which has Covtype, RCV1 and Real-sim. Here it is Adult (a9a), and beside that penalty the weaker one of figure 1.
All take one row at a time, and DSPDC a third of the columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

from benchmarks.common import arguments
from benchmarks.dspdc_figure1 import curves, draw, finish
from benchmarks.factorised import Case
from streamkernel.solvers.saddle_point import Factorised

P = 123


def adult(path: Path, d: int) -> tuple[Factorised, Any]:
    """Return A, reduced to d random features, and the labels."""
    X, y = load_svmlight_file(str(path), n_features=P)
    G = np.random.default_rng(0).standard_normal((d, P)) / np.sqrt(d)
    return Factorised(X @ G.T, G), np.where(y > 0.0, 1.0, -1.0)


def main() -> None:
    """Print where each curve ends, and draw the panels."""
    options = arguments(__doc__, data=True, d=20, patience=5.0, output=Path("figures/dspdc_figure2.png"))
    A, b = adult(options.data / "a9a.svm.gz", options.d)
    figure = Figure(figsize=(9, 4), layout="constrained")
    rows = []
    with threadpool_limits(1):
        for axis, (l1, l2, tol) in zip(figure.subplots(1, 2), ((1e-4, 1e-2, 1e-6), (1e-6, 1e-5, 1e-4)), strict=True):
            case = Case(len(b), P, 41, options.d, l1, l2, tol)
            few = np.random.default_rng(1).permutation(len(b))[:300]
            curves(Factorised(A.U[few], A.V), b[few], case._replace(tol=1.0), 1.0)  # compiles
            found, optimum = curves(A, b, case, options.patience)
            title = f"a9a, d = {options.d}, q = {case.q}; l1, l2 = {l1:g}, {l2:g}"
            rows.append(draw(axis, found, optimum, title))
    finish(figure, rows, options.output)


if __name__ == "__main__":
    main()
