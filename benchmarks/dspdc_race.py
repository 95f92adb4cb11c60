"""Common parts of the figures of matrix problems: DSPDC, SPDC and SDCA for one problem, to one gap, and pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from rich.progress import track
from threadpoolctl import threadpool_limits

from benchmarks import race
from benchmarks.common import ratio, show
from benchmarks.rivals.matrix_sdca import MatrixSdca, TriedMatrixSdca
from streamkernel.solvers.matrix_blocks import MatrixProblem
from streamkernel.solvers.matrix_risk import MatrixSolution, Search

METHODS: dict[str, type[Search]] = {
    "DSPDC": Search,
    "SPDC": Search,
    "SDCA": MatrixSdca,
    "SDCA, tried steps": TriedMatrixSdca,
}
COLORS = {"DSPDC": "#0b6e99", "SPDC": "#b4532a", "SDCA": "#4c8c4a", "SDCA, tried steps": "#8a5fa8"}

Runs = dict[str, list[MatrixSolution]]


class Sampling(NamedTuple):
    """m dual numbers and q matrices a step."""

    m: int
    q: int


def solved(problem: MatrixProblem, sampling: Sampling, name: str, tol: float, budget: int, seed: int) -> MatrixSolution:
    """Solve to a gap, or until the eigendecompositions are `budget` times the matrices; all but DSPDC take all."""
    q = sampling.q if name == "DSPDC" else problem.data.p
    steps = budget * problem.data.p // q
    search = METHODS[name](problem, sampling.m, q, tol=tol, max_steps=steps, seed=seed)
    search.run(lambda done, text: None)
    return search.solution()


def runs(
    make: Callable[[int], MatrixProblem], samplings: Sequence[Sampling], seeds: int, tol: float, budget: int
) -> dict[Sampling, Runs]:
    """Return the result of each method for each sampling and seed, computed one after the other in one thread."""
    found: dict[Sampling, Runs] = {sampling: {name: [] for name in METHODS} for sampling in samplings}
    with threadpool_limits(1):
        small = Sampling(1, 1)
        for seed in track(range(seeds), "solving", transient=True):
            problem = make(seed)
            for name in METHODS if seed == 0 else ():
                solved(problem, small, name, 1.0, 1, seed)  # compiles
            for sampling in samplings:
                for name in METHODS:
                    found[sampling][name].append(solved(problem, sampling, name, tol, budget, seed))
    return found


def tables(title: str, found: Mapping[Sampling, Runs], tol: float) -> None:
    """Print the medians of times and eigendecompositions, and of their ratios to DSPDC's, run by run."""
    for sampling, of in found.items():
        ours, rows = of["DSPDC"], []
        for name, theirs in of.items():
            seconds, work = ([run.history[-1].seconds for run in many] for many in (theirs, ours))
            reached = sum(run.converged for run in theirs)
            rows.append(
                [
                    name,
                    f"{reached} of {len(theirs)}",
                    f"{statistics.median(seconds):.2f} s",
                    f"{ratio(seconds, work):.2f}",
                    f"{statistics.median(run.decompositions for run in theirs):,.0f}",
                    f"{ratio([run.decompositions for run in theirs], [run.decompositions for run in ours]):.2f}",
                    f"{statistics.median(run.objective for run in theirs):.4e}",
                ]
            )
        show(
            f"{title}, (m, q) = ({sampling.m}, {sampling.q}), to a gap of {tol:.0e}",
            ["method", "reached", "time", "time / ours", "eigendecompositions", "/ ours", "objective"],
            rows,
        )


def draw(rows: Mapping[str, Mapping[Sampling, Runs]], path: Path) -> None:
    """Draw the gap against the time of the first run: a row of panels for each problem, one a sampling."""
    columns = max(len(found) for found in rows.values())
    figure = Figure(figsize=(4.3 * columns, 3.6 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, (title, found) in zip(axes, rows.items(), strict=True):
        for axis, (sampling, of) in zip(line, found.items(), strict=True):
            for name, many in of.items():
                marks = many[0].history
                axis.semilogy(
                    [mark.seconds for mark in marks],
                    [max(mark.gap, 1e-16) for mark in marks],
                    label=name,
                    color=COLORS[name],
                    marker=".",
                )
            axis.set(title=f"{title}\n(m, q) = ({sampling.m}, {sampling.q})", xlabel="seconds", ylabel="gap P - D")
            axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=9, frameon=False)
    race.save(figure, path)
