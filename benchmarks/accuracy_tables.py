"""The tables of ``benchmarks.accuracy``: every score, mean ranks, and where ours is behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks import store
from benchmarks.common import show
from benchmarks.models import BASELINES, MODELS, OURS
from benchmarks.rivals import moa
from benchmarks.rivals.exact import MACHINES
from benchmarks.scenarios import CLASSES, GROUPS, NUMBERS, SCENARIOS, Scenario
from benchmarks.store import Result

FAR = 0.5


def cell(result: Result | None, scenario: Scenario) -> str:
    """Return a result as text for the table."""
    if result is None:
        return "-"
    score = "overflow" if result.score is None else f"{result.score:.4f}" if result.score > -10.0 else "< -10"
    lines = [score, f"{1e6 * result.seconds / result.events:,.0f} µs"]
    if len(result.orders) > 1:
        lines.insert(1, f"±{np.std(result.orders, ddof=1):.4f}")
    if result.events < result.of:
        lines.insert(1, f"at {result.events:,}")
    if result.tested < scenario.held_back:
        lines.insert(1, f"of {result.tested:,}")
    return "\n".join(lines)


def told(rank: float, there: pd.Series) -> str:
    """Return a mean rank, and over how many scenarios it is if they are not all."""
    return f"{rank:.1f}" + ("" if there.all() else f"\nin {there.sum()} of {len(there)}")


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rank of each model (row) over the scenarios (columns) it has a score on, and how far it was.

    Models with the same score share the mean of their ranks.

    Parameters
    ----------
    scores
        Of models on scenarios, minus infinity for an overflow; NaN where there is no result.
    """
    return pd.DataFrame(
        {"rank": scores.rank(ascending=False).mean(axis=1), "furthest": 100.0 * (scores.max() - scores).max(axis=1)}
    )


def scores(results: store.Results, task: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return the scores of all models (rows) that take part in ranks on scenarios (columns), as `ranks` takes them."""
    known = pd.DataFrame(
        {s: {name: -np.inf if r.score is None else r.score for name, r in results[s].items()} for s in columns}
    )
    return known.loc[[name for name in (*MODELS[task], *moa.LEARNERS[task])
                      if name in known.index.difference(BASELINES[task])]]  # fmt: skip


def of(results: store.Results, wanted: Sequence[str], task: str, group: str | None = None) -> list[str]:
    """Return the scenarios of a task, and perhaps of one group, that have results."""
    return [
        name
        for name in wanted
        if SCENARIOS[name].task == task and group in (None, SCENARIOS[name].group) and results.get(name)
    ]


def table(results: store.Results, group: str, task: str, columns: Sequence[str]) -> None:
    """Print what is known of the scenarios of one group and task."""
    known = scores(results, task, columns)
    order = ranks(known).sort_values("rank", kind="stable")
    ours = [name for name in order.index if name == OURS[task]]
    ranked = [*ours, *order.index.difference(ours, sort=False)]
    there = {name for column in columns for name in results[column]}
    others = [name for name in [*BASELINES[task], *(m for m, _, _ in MACHINES.values())] if name in there]
    rows = [
        [
            name,
            told(order["rank"][name], known.loc[name].notna()) if name in ranked else "",
            min(f"{order['furthest'][name]:.1f}", "> 1000", key=len) if name in ranked else "",
            *(cell(results[s].get(name), SCENARIOS[s]) for s in columns),
        ]
        for name in [*ranked, *dict.fromkeys(others)]
    ]
    heads = [f"{s}\n{SCENARIOS[s].measure}\n{max(r.of for r in results[s].values()):,}" for s in columns]
    show(f"{group}, {task}", ["model", "mean\nrank", "furthest\n(points)", *heads], rows)


def whole(results: store.Results, wanted: Sequence[str]) -> None:
    """Print the mean ranks over all scenarios of both tasks."""
    for task in (CLASSES, NUMBERS):
        if columns := of(results, wanted, task):
            known = scores(results, task, columns)
            behind = 100.0 * (known.max() - known)
            order = ranks(known).sort_values("rank", kind="stable")
            show(
                f"all, {task}: points are behind the best",
                ["model", "mean rank", "scenarios", "first", "points, median", "points, furthest"],
                [
                    [
                        name,
                        f"{order['rank'][name]:.2f}",
                        f"{known.loc[name].notna().sum()} of {len(columns)}",
                        str((behind.loc[name] == 0.0).sum()),
                        f"{behind.loc[name].median():.2f}",
                        min(f"{order['furthest'][name]:.2f}", "> 1000", key=len),
                    ]
                    for name in order.index
                ],
            )


def behind(results: store.Results, wanted: Sequence[str]) -> list[list[str]]:
    """Return where ours is far behind: scenario, ours, the best model and its score, and by how many points."""
    found = []
    for task in (CLASSES, NUMBERS):
        for name in of(results, wanted, task):
            known = scores(results, task, [name])[name]
            if OURS[task] not in known.index:
                continue
            best = known.idxmax()
            points = 100.0 * (known[best] - known[OURS[task]])
            if points > FAR:
                result = results[name][str(best)]
                at = f" at {result.events:,}" if result.events < result.of else ""
                found.append([name, f"{known[OURS[task]]:.4f}", str(best), f"{known[best]:.4f}{at}", f"{points:.2f}"])
    return found


def tables(results: store.Results, wanted: Sequence[str]) -> None:
    """Print what is known of these scenarios."""
    for group in GROUPS:
        for task in (CLASSES, NUMBERS):
            if columns := of(results, wanted, task, group):
                table(results, group, task, columns)
    whole(results, wanted)
    if rows := behind(results, wanted):
        show(f"Ours more than {FAR} points behind", ["scenario", "ours", "best", "its score", "points"], rows)
