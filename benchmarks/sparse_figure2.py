"""Figure 2 of Gu et al. 2018: the objective against time with one thread and with more, and the speed-up.

256 features of `sparse_data.py`, L1 price of 0.01 of the largest, both forms. The paper has up to 16 cores; the threads
of this figure should have an idle core each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks import race
from benchmarks.common import arguments, interleaved, ratio, show
from benchmarks.sparse import features
from streamkernel.losses import Logistic
from streamkernel.solvers.sparse import largest_l1, minimise_sparse

COLORS = {"minibatch": "#0b6e99", "paper": "#b4532a"}
STYLES = ("-", "--", ":", "-.", (0, (1, 3)))


def main() -> None:
    """Print the speed-ups and draw the two panels."""
    output = Path("figures/sparse_figure2.png")
    options = arguments(__doc__, rows=50_000, epochs=8, repeats=3, output=output)
    Z, y = features(options.rows)
    l1 = 0.01 * largest_l1(Z, y, Logistic())
    numbers = [n for n in (1, 2, 4, 8, 16) if n <= (os.cpu_count() or 1)]
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = []
    for form, color in COLORS.items():
        given: dict[str, Any] = {"l1": l1, "form": form, "max_epochs": options.epochs, "tol": 1e-9}
        jobs: Any = (lambda n=n, given=given: minimise_sparse(Z, y, Logistic(), threads=n, **given) for n in numbers)
        runs: Any = interleaved(options.repeats + 1, *jobs)
        times = [[run.history[-1].seconds for run in of_one[1:]] for of_one in runs]  # the first round compiles
        gains = [ratio(times[0], one) for one in times]
        for n, of_one, style in zip(numbers, runs, STYLES, strict=False):
            marks = of_one[-1].history
            label = f"{form}, {n} thread{'s' * (n > 1)}"
            left.plot(
                [m.seconds for m in marks], [m.objective for m in marks], color=color, linestyle=style, label=label
            )
        right.plot(numbers, gains, color=color, marker=".", label=form)
        rows += [[form, str(n), f"{gain:.2f} ×", f"{of_one[-1].objective:.5f}"]
                 for n, gain, of_one in zip(numbers, gains, runs, strict=True)]  # fmt: skip
    show(f"{options.epochs} passes, {options.rows:,} × {Z.shape[1]}", ["form", "threads", "faster", "objective"], rows)
    right.plot(numbers, numbers, "k:", label="as many times as threads")
    left.set(xlabel="seconds", ylabel="objective")
    right.set(xlabel="threads", ylabel="times faster than one")
    for axis in (left, right):
        axis.legend(fontsize=8, frameon=False)
        axis.grid(alpha=0.3)
    race.save(figure, options.output)


if __name__ == "__main__":
    main()
