"""Figure 1 of Yu, Lin and Yang: how far the objective is from the optimum against time, on factorised data.

The settings, methods and rules are those of `benchmarks.factorised`: all take one row at a time and never form A. The
optimum is that of a run to a hundredth of the gap. The paper has no numbers, only curves, and says that DSPDC is
significantly faster than both in all six panels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from benchmarks import race
from benchmarks.common import arguments, show
from benchmarks.factorised import CASES, data, methods
from streamkernel.solvers.saddle_point import Measurement, minimise

COLORS = {"DSPDC": "#0b6e99", "SPDC": "#b4532a", "SDCA": "#4c8c4a"}


def curves(A: Any, b: Any, case: Any, patience: float) -> tuple[dict[str, list[Measurement]], float]:
    """Return the measurements of each method, and the least objective."""
    run = methods(A, b, case, case.tol, 1)
    found = {"DSPDC": run["DSPDC"](600.0)}
    for name in ("SPDC", "SDCA"):
        found[name] = run[name](patience * found["DSPDC"][-1].seconds)
    best = minimise(A, b, "smooth_hinge", l1=case.l1, l2=case.l2, tol=0.01 * case.tol, max_epochs=1e6)
    return found, best.objective


def draw(axis: Any, found: dict[str, list[Measurement]], optimum: float, title: str) -> list[str]:
    """Draw one panel that ends where the first curve has ended three times; return the title and where curves end."""
    for name, history in found.items():
        axis.semilogy(
            [at.seconds for at in history],
            [max(at.objective - optimum, 1e-12) for at in history],
            label=name,
            color=COLORS[name],
        )
    axis.set(title=title, xlabel="seconds", ylabel="P(x) - P*", xlim=(0, 3 * found["DSPDC"][-1].seconds))
    axis.grid(alpha=0.3)
    return [title, *(f"{h[-1].seconds:.2f} s, {max(h[-1].objective - optimum, 0.0):.0e}" for h in found.values())]


def finish(figure: Figure, rows: list[list[str]], output: Path) -> None:
    """Print where the curves of all panels end, and write the figure."""
    figure.axes[0].legend(frameon=False)
    show("Where the curves end: seconds, P(x) - P*", ["", *COLORS], rows)
    race.save(figure, output)


def main() -> None:
    """Print where each curve ends, and draw the six panels."""
    options = arguments(__doc__, patience=5.0, output=Path("figures/dspdc_figure1.png"))
    figure = Figure(figsize=(13, 7), layout="constrained")
    rows = []
    with threadpool_limits(1):
        for axis, case in zip(figure.subplots(2, 3).ravel(), CASES, strict=True):
            A, b = data(case._replace(n=300), 0)
            curves(A, b, case._replace(tol=1.0), 1.0)  # compiles
            found, optimum = curves(*data(case, 1), case, options.patience)
            title = f"n, p, q, d = {case.n:,}, {case.p}, {case.q}, {case.d}; l1, l2 = {case.l1:g}, {case.l2:g}"
            rows.append(draw(axis, found, optimum, title))
            axis.title.set_size(9)
    finish(figure, rows, options.output)


if __name__ == "__main__":
    main()
