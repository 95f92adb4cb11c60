"""Features and time that CDSG needs for the held-out objective that DSG reaches in one pass: a9a, Elec2, kin40k.

DSG, CDSG as published, and CDSG whose steps on old blocks are γ at most (as the estimators have it) take first-order
steps with the same kernel (a Gaussian of --multiple times the median distance), batches of 64, blocks of 32, λ = 1/(100
n) and steps γ/(1 + 0.005 t)^½, each with its own best γ of 0.5, 1.5, 3, 5, 15; DSG and CDSG with steps of automatic
size too, which have none; the loss is then that of their predictions, which mix the last iterate and an average, and
the penalty that of the last iterate. The objective is the regularised loss over 2,000 events that are not learned: the
hinge on a9a, the logistic loss on Elec2 (in random order, so that there is one optimum), the squared loss of
standardised targets on kin40k. It is measured every 512 events, and averaged over five moments in a row, so that a
lucky one does not count. What DSG reaches is what it has at the end of its pass with its best γ (the median over
seeds); a run gets there at the first moment at which its average is as low. Inputs but a9a's indicators are
standardised. Figures are medians over seeds of the features, in which a run that does not get there counts as infinite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.progress import Progress

from benchmarks import adult, race
from benchmarks.common import arguments, show
from benchmarks.scenarios import SCENARIOS
from streamkernel import InputError, kernels, losses, rules, step_sizes
from streamkernel.estimators.parameters import default_gamma
from streamkernel.features.frames import table_rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners.scoring import LAST, MIXTURE

PART, TESTED, PER_BLOCK = 8 * adult.BATCH, 2000, 32
GAMMAS, WINDOW = (0.5, 1.5, 3.0, 5.0, 15.0), 5
LOSSES = {"a9a": "hinge", "elec2": "logistic", "kin40k": "square"}
RULES: dict[str, rules.Rule] = {
    "DSG": rules.DSG(),
    "CDSG": rules.CDSG(math.inf),
    "CDSG, steps of γ at most": rules.CDSG(),
    "DSG, untuned": rules.DSG(),
    "CDSG, untuned": rules.CDSG(),
}


class Data(NamedTuple):
    """The examples to learn, and those held out."""

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray
    loss: str
    sigma: float


def data(name: str, folder: Path, multiple: float) -> Data:
    """Return one of the data sets, with its bandwidth."""
    events = SCENARIOS[name].events(folder)
    X, y = pd.DataFrame([x for x, _ in events]), np.array([float(y) for _, y in events])
    if name == "elec2":
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X.iloc[order], y[order]
    learnt = slice(0, len(y) - max(TESTED, SCENARIOS[name].held_back))
    if name != "a9a":
        X = (X - X[learnt].mean()) / X[learnt].std()
    if name == "kin40k":
        y = (y - y[learnt].mean()) / y[learnt].std()
    distances = np.linalg.norm(X.to_numpy()[:256, None] - X.to_numpy()[None, :256], axis=2)
    sigma = multiple * float(np.median(distances[distances > 0.0]))
    return Data(X[learnt], y[learnt], X[-TESTED:], y[-TESTED:], LOSSES[name], sigma)


class Learner:
    """A function that learns slices of the data."""

    def __init__(self, data: Data, rule: str, gamma: float, seed: int) -> None:
        self._data = data
        self.f = FirstOrderLearner(
            kernels.Gaussian(data.sigma),
            losses.resolve_loss(data.loss, data.loss != "square"),
            RULES[rule],
            step_sizes.Constant(default_gamma(losses.resolve_loss(data.loss, data.loss != "square")))
            if rule.endswith("untuned")
            else adult.step(gamma),
            average=MIXTURE if rule.endswith("untuned") else LAST,
            automatic=rule.endswith("untuned"),
            block_size=PER_BLOCK,
            max_features=None,
            batch_size=adult.BATCH,
            l2=1.0 / (100 * len(data.y)),
            seed=seed,
        )
        self._rows, self._test = (table_rows(self.f.directions, X)[0] for X in (data.X, data.X_test))

    @property
    def size(self) -> str:
        """The number of features."""
        return str(PER_BLOCK * self.f.n_blocks)

    def learn(self, part: slice) -> None:
        """Learn these rows."""
        self.f.learn(self._rows.part(part.start, part.stop), self._data.y[part].astype(np.float64))

    def objective(self) -> float:
        """Return the regularised loss over what is held out."""
        scores = self.f.scores(self._test)[:, 0]
        signed = np.where(self._data.y_test > 0.0, 1.0, -1.0)
        loss = {
            "hinge": np.maximum(0.0, 1.0 - signed * scores),
            "logistic": np.logaddexp(0.0, -signed * scores),
            "square": 0.5 * (scores - self._data.y_test) ** 2,
        }[self._data.loss]
        return float(loss.mean()) + self.f.penalty


def run(data: Data, rule: str, gamma: float, seed: int) -> list[race.Mark]:
    """Return the moments of one pass, with the mean objective of the last few; none if the steps diverge."""
    parts = [slice(i, min(i + PART, len(data.y))) for i in range(0, len(data.y), PART)]
    try:
        marks, _ = race.run(Learner(data, rule, gamma, seed), parts, range(len(parts)), Learner.objective)
    except InputError:
        return []
    return [
        mark._replace(error=statistics.mean(one.error for one in marks[i + 1 - WINDOW : i + 1]))
        for i, mark in enumerate(marks)
        if i + 1 >= WINDOW
    ]


def reached(marks: Sequence[race.Mark], objective: float) -> race.Mark | None:
    """Return the first moment at which the objective is as low."""
    return next((mark for mark in marks if mark.error <= objective), None)


class Best(NamedTuple):
    """Where a rule is when it gets there, with its best γ, and with how many seeds it gets there."""

    seconds: float
    features: float
    events: float
    gamma: float
    last: float
    there: int


def best(runs: dict[float, list[list[race.Mark]]], goal: float) -> Best:
    """Return the medians over seeds of the γ that reaches the goal in the least time; who never does counts as ∞.

    Parameters
    ----------
    runs
        For each γ, the moments of each seed.
    goal
        The objective to reach.
    """
    found = []
    for gamma, seeds in runs.items():
        marks = [reached(run, goal) for run in seeds]
        places = [(m.seconds, int(m.size), m.rows) if m else (np.inf,) * 3 for m in marks]
        medians = (float(statistics.median_low(column)) for column in zip(*places, strict=True))
        found.append(Best(*medians, gamma, last(seeds), sum(mark is not None for mark in marks)))
    return min(found)


def last(seeds: list[list[race.Mark]]) -> float:
    """Return the median objective at the end of the pass, which half of the runs reach; who diverges counts as ∞."""
    return statistics.median_high(run[-1].error if run else np.inf for run in seeds)


def main() -> None:
    """Print features and time of each rule, and their shares of DSG's."""
    options = arguments(__doc__, data=True, seeds=3, multiple=1.0, sets=",".join(LOSSES))
    for name in options.sets.split(","):
        given = data(name, options.data, options.multiple)
        runs: dict[str, dict[float, list[list[race.Mark]]]] = {}
        run(given._replace(X=given.X[:PART], y=given.y[:PART]), "CDSG", GAMMAS[0], 0)  # compiles
        with Progress(transient=True) as progress:
            task = progress.add_task(name, total=(3 * len(GAMMAS) + 2) * options.seeds)
            for rule in RULES:
                for gamma in GAMMAS[:1] if rule.endswith("untuned") else GAMMAS:
                    for seed in range(options.seeds):
                        runs.setdefault(rule, {}).setdefault(gamma, []).append(run(given, rule, gamma, seed))
                        progress.advance(task)
        goal = min(last(seeds) for seeds in runs["DSG"].values())
        found = {rule: best(runs[rule], goal) for rule in RULES}
        dsg = found["DSG"]
        rows = [
            [
                rule,
                f"{one.there} of {options.seeds}",
                "" if rule.endswith("untuned") else f"{one.gamma:g}",
                f"{one.events:,.0f}",
                f"{one.features:,.0f}",
                f"{one.features / dsg.features:.2f}",
                f"{one.seconds:.3f} s",
                f"{one.seconds / dsg.seconds:.2f}",
                f"{min(last(seeds) for seeds in runs[rule].values()):.4f}",
            ]
            for rule, one in found.items()
        ]
        title = f"{name}, {given.loss}, {len(given.y):,} events, objective {goal:.4f}"
        show(title, ["rule", "reached", "γ", "events", "features", "/ DSG", "time", "/ DSG", "best after a pass"], rows)


if __name__ == "__main__":
    main()
