"""Second-order learning in one thread: events a second beside recursive least squares, and what forgetting buys.

A feature of ours is a pair of outputs, a cosine and a sine. The peer is :class:`LeastSquares`, the loop that one writes
in a notebook: the covariance form with rank-one updates, NumPy, float64, as many outputs in as many groups. It learns
each example at once, where ours takes Newton steps of up to 128 examples, and it neither scales inputs nor mixes.
Models are timed after thousands of examples, when ours has its longest steps. ARF and neighbours are there for
orientation.

The drifting streams are those of ``benchmarks.accuracy``, predicted and then learned. It takes about three minutes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from river import forest, neighbors
from threadpoolctl import threadpool_limits

from benchmarks import prequential
from benchmarks.common import arguments, interleaved, ratio, seconds, show
from benchmarks.hot_path import stream
from benchmarks.scenarios import CLASSES, SCENARIOS
from streamkernel import KernelClassifier, KernelRegressor, learners

INPUTS, BEFORE = 10, 3072
SIZES = [(False, 1024), (False, 512), (True, 2048), (True, 1024), (True, 512)]
STREAMS = ["rbf_abrupt", "rbf_moving", "sea_abrupt", "hyperplane", "friedman_abrupt"]
WAYS: dict[str, dict[str, Any]] = {
    "no arguments": {},
    "forgetting=0.9999": {"learner": learners.Newton(forgetting=0.9999)},
    "forgetting=0.999": {"learner": learners.Newton(forgetting=0.999)},
    'learner="dsg"': {"learner": "dsg"},
}


class LeastSquares:
    """Recursive least squares on ±1 in each group of random Fourier features, and the mean of the groups."""

    def __init__(self, d: int, outputs: int, groups: int) -> None:
        generator, n = np.random.default_rng(0), outputs // groups
        self._directions, self._scale = generator.normal(size=(outputs // 2, d)), (2.0 / n) ** 0.5
        self._covariance = np.stack([np.eye(n) / 0.06] * groups)
        self._weights, self._last = np.zeros((groups, n)), None

    def predict_one(self, x: Mapping[Any, float]) -> bool:
        """Return the sign of the mean score, and keep the features for learning."""
        angles = self._directions @ np.fromiter(x.values(), float, len(x))
        waves = self._scale * np.concatenate([np.cos(angles), np.sin(angles)])
        self._phi = waves.reshape(2, len(self._weights), -1).swapaxes(0, 1).reshape(self._weights.shape)
        self._scores = np.einsum("gn,gn->g", self._phi, self._weights)
        return bool(self._scores.mean() > 0.0)

    def learn_one(self, x: Mapping[Any, float], y: bool) -> None:
        """Update w ← w + k(y - φᵀw), P ← P - kφᵀP with k = Pφ/(1 + φᵀPφ) for the example just predicted."""
        for covariance, weights, phi, score in zip(
            self._covariance, self._weights, self._phi, self._scores, strict=True
        ):
            along = covariance @ phi
            gain = along / (1.0 + phi @ along)
            weights += gain * ((1.0 if y else -1.0) - score)
            covariance -= np.outer(gain, along)


def rate(model: Any, data: list[tuple[dict[str, float], bool]]) -> float:
    """Return the seconds that an event takes."""

    def job() -> None:
        for x, y in data:
            model.predict_one(x)
            model.learn_one(x, y)

    return seconds(job) / len(data)


def events(runs: int) -> None:
    """Print events a second of predict_one and learn_one."""
    data = stream(INPUTS, BEFORE)
    rows = []
    for joint, features in SIZES:
        model = KernelClassifier(learner=learners.Newton(joint=joint), max_features=features)
        peer = LeastSquares(INPUTS, 2 * features, 1 if joint else 4)
        rate(model, data)
        rate(peer, data[:20])
        times = interleaved(runs, partial(rate, model, data[:512]), partial(rate, peer, data[:50]))
        medians = [f"{1.0 / statistics.median(took):,.0f}" for took in times]
        held = f"{model._learner.groups.flat.factor.nbytes / 1e6:.1f} MB"
        rows.append(
            [
                f"{'one group' if joint else 'blocks'}, {features:,} features",
                *medians,
                f"{ratio(times[1], times[0]):.1f}",
                held,
            ]
        )
    show(
        f"predict_one + learn_one, {INPUTS} inputs, events/s",
        ["Newton steps", "ours", "NumPy least squares", "ours / theirs", "our factors"],
        rows,
    )
    others = {
        "KernelClassifier(max_features=1024)": KernelClassifier(max_features=1024),
        "KernelClassifier()": KernelClassifier(),
        'KernelClassifier(learner="dsg", max_features=1024)': KernelClassifier(learner="dsg", max_features=1024),
        "KNNClassifier": neighbors.KNNClassifier(),
        "ARFClassifier(10)": forest.ARFClassifier(10, seed=1),
    }
    for model in others.values():
        rate(model, data)
    times = interleaved(min(runs, 5), *(partial(rate, model, data[:512]) for model in others.values()))
    rows = [
        [name, f"{1.0 / statistics.median(took):,.0f}", f"{ratio(took, times[0]):.2f}"]
        for name, took in zip(others, times, strict=True)
    ]
    show("for orientation, the same stream", ["model", "events/s", "speed of the first over it"], rows)


def early(runs: int) -> None:
    """Print the events a second of new default models after their first thousands of events, before they grow."""
    data = stream(INPUTS, BEFORE + 512)
    took = []
    for _ in range(runs):
        model = KernelClassifier()
        rate(model, data[:BEFORE])
        took.append(rate(model, data[BEFORE:]))
    print(f"KernelClassifier(), events {BEFORE:,} to {len(data):,}: {1.0 / statistics.median(took):,.0f} events/s")


def drift() -> None:
    """Print prequential scores on streams that drift, for what is forgotten."""
    rows = []
    for name in STREAMS:
        scenario = SCENARIOS[name]
        drifting = scenario.events(Path())
        make = KernelClassifier if scenario.task == CLASSES else KernelRegressor
        scores = [
            prequential.stream(partial(make, **way), scenario, drifting, math.inf, lambda n: None).score
            for way in WAYS.values()
        ]
        rows.append([name, scenario.measure, *(f"{score:.4f}" for score in scores)])
    show("streams that drift, 20,000 events", ["stream", "measure", *WAYS], rows)


def main() -> None:
    """Print all tables."""
    options = arguments(__doc__, runs=9)
    with threadpool_limits(1):
        events(options.runs)
        early(options.runs)
        drift()


if __name__ == "__main__":
    main()
