"""Metrics of several tasks with no arguments: accuracy of nearest neighbours on digits, beside other distances.

scikit-learn's digits, 64 standardised pixels, 5 tasks, 40 examples of each task to learn from, the rest to test on.
Tasks are two digits each (0 and 1, 2 and 3, ...), random pairs, or all ten digits, dealt out. The peers are the
Euclidean distance, and scikit-learn's neighbourhood components analysis of each task alone. The seeds begin at 100,
which no default was chosen on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.common import arguments, seconds, show
from streamkernel.solvers import MultiTaskLMNN

TASKS, PER_TASK, NEIGHBOURS, FIRST_SEED = 5, 40, 3, 100
DEALT: dict[str, Callable[[Any, Any], Any]] = {
    "two digits each": lambda y, rng: y // 2,
    "random pairs": lambda y, rng: rng.permutation(10)[y] // 2,
    "all digits each": lambda y, rng: rng.integers(0, TASKS, len(y)),
}


class OneByOne:
    """A model for each task alone."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def fit(self, X: Any, y: Any, task: Any) -> None:
        """Fit them all."""
        self._models = {j: self._make().fit(X[task == j], y[task == j]) for j in np.unique(task)}

    def score(self, X: Any, y: Any, task: Any) -> float:
        """Return the share of right answers."""
        right = [model.predict(X[task == j]) == y[task == j] for j, model in self._models.items()]
        return float(np.concatenate(right).mean())


def methods(seed: int) -> dict[str, Any]:
    """Return the compared methods."""
    components = NeighborhoodComponentsAnalysis(random_state=seed)
    return {
        "Euclidean": OneByOne(lambda: KNeighborsClassifier(NEIGHBOURS)),
        "NCA, one a task": OneByOne(lambda: make_pipeline(components, KNeighborsClassifier(NEIGHBOURS))),
        "MultiTaskLMNN()": MultiTaskLMNN(),
    }


def main() -> None:
    """Print a table for each way to deal digits out."""
    options = arguments(__doc__, seeds=5)
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    MultiTaskLMNN().fit(X[:60], y[:60])  # compiles
    for title, deal in DEALT.items():
        scores: dict[str, list[float]] = {}
        times: dict[str, list[float]] = {}
        for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
            rng = np.random.default_rng(seed)
            task = deal(y, rng)
            train = np.concatenate([rng.permutation(np.flatnonzero(task == j))[:PER_TASK] for j in range(TASKS)])
            test = np.setdiff1d(np.arange(len(y)), train)
            for name, model in methods(seed).items():
                with threadpool_limits(1):
                    took = seconds(partial(model.fit, X[train], y[train], task[train]))
                times.setdefault(name, []).append(took)
                scores.setdefault(name, []).append(100.0 * model.score(X[test], y[test], task[test]))
        rows = []
        for name, found in scores.items():
            above = sum(a > b for a, b in zip(found, scores["Euclidean"], strict=True))
            cells = [f"{statistics.mean(found):.2f} %", f"{min(found):.2f}", f"{max(found):.2f}"]
            rows.append([name, *cells, f"{above} of {len(found)}", f"{statistics.median(times[name]):.2f} s"])
        columns = [f"{TASKS} tasks, {title}", "accuracy", "least", "most", "above Euclidean", "time to fit"]
        show(f"{NEIGHBOURS} nearest neighbours, {PER_TASK} examples a task", columns, rows)


if __name__ == "__main__":
    main()
