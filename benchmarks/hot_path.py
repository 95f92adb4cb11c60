"""The first-order path: events, predictions, batches, regenerated directions beside their peers, and a second thread.

A feature of ours is a pair of outputs, a cosine and a sine. The peers have as many outputs:

* *NumPy*: :class:`FourierSgd`, the loop that one writes in a notebook, cos(ωᵀx + b), float32, the features of a
  prediction kept to learn from. *NumPy, pairs*: the same on pairs as ours, which halves the projections.
* *roofline*: :func:`panels`, the multiply-adds and the cosines and sines of one row alone, over panels of directions
  in float32; it reads no dictionary, checks nothing, and its coefficients are float32, where ours are float64.
* scikit-learn: ``RBFSampler`` and ``SGDClassifier.partial_fit`` on the same data frames, the better of three alphas.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numba import njit
from river import base, linear_model, preprocessing
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from benchmarks.adult import ROWS, table
from benchmarks.common import arguments, interleaved, processor_seconds, ratio, seconds, show
from streamkernel import KernelClassifier, kernels, learners, set_num_threads
from streamkernel.features.counter_rng import cos_sin_turns

SIZES = [(10, 512), (10, 1024), (10, 4096), (108, 512), (108, 1024)]
EVENTS = 2000
UNIT = kernels.Gaussian(1.0)
BATCH, LENGTH = 256, 3.0


class FourierSgd:
    """Random Fourier features and logistic SGD in NumPy, for examples whose names stand in one order."""

    def __init__(self, d: int, outputs: int, pairs: bool) -> None:
        generator = np.random.default_rng(0)
        n = outputs // (1 + pairs)
        self._directions = generator.normal(size=(n, d)).astype(np.float32)
        self._shift = generator.uniform(0.0, 2.0 * np.pi, n).astype(np.float32)
        self._scale, self._pairs = np.float32((2.0 / outputs) ** 0.5), pairs
        self._weights, self._last = np.zeros(outputs, np.float32), None

    def _evaluate(self, x: Mapping[Any, float]) -> float:
        if x is not self._last:
            angles = self._directions @ np.fromiter(x.values(), np.float32, len(x))
            waves = np.concatenate([np.cos(angles), np.sin(angles)]) if self._pairs else np.cos(angles + self._shift)
            self._phi, self._last = self._scale * waves, x
            self._score = float(self._phi @ self._weights)
        return self._score

    def predict_one(self, x: Mapping[Any, float]) -> bool:
        """Return the sign of the score."""
        return self._evaluate(x) > 0.0

    def learn_one(self, x: Mapping[Any, float], y: bool) -> None:
        """Take a step of 1."""
        sign = 1.0 if y else -1.0
        self._weights += np.float32(sign / (1.0 + math.exp(sign * self._evaluate(x)))) * self._phi
        self._last = None


@njit(cache=True)
def panels(directions, weights, x):  # type: ignore[no-untyped-def]
    """Return Σ cos and sin of the projections of `x` times weights; directions are (panels, entries, 512)."""
    s, total = np.empty(directions.shape[2], np.float32), np.zeros(directions.shape[2], np.float32)
    for p in range(len(directions)):
        s[:] = np.float32(0.0)
        for j in range(0, len(x), 4):
            u, v, w, z = directions[p, j], directions[p, j + 1], directions[p, j + 2], directions[p, j + 3]
            a, b, c, d = x[j], x[j + 1], x[j + 2], x[j + 3]
            for f in range(len(s)):
                s[f] += a * u[f] + b * v[f] + c * w[f] + d * z[f]
        a, b = weights[p, 0], weights[p, 1]
        for f in range(len(s)):
            cos, sin = cos_sin_turns(s[f])
            total[f] += cos * a[f] + sin * b[f]
    return total.sum()


def learner(
    features: int, kernel: kernels.Kernel = UNIT, cache_bytes: int = 1 << 26, **options: Any
) -> KernelClassifier:
    """Return the model of all these measurements."""
    learner = learners.DSG(**{"step_size": 1.0, **options})
    return KernelClassifier(kernel, learner=learner, max_features=features, cache_bytes=cache_bytes)


def stream(d: int, n: int) -> list[tuple[dict[str, float], bool]]:
    """Return `n` examples of `d` normal inputs."""
    X = np.random.default_rng(1).normal(size=(n, d)) / d**0.5
    names = [str(i) for i in range(d)]  # the same objects in all examples, as a reader of files or a scaler gives them
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] > 0.0
    return [(dict(zip(names, row, strict=True)), bool(label)) for row, label in zip(X.tolist(), y, strict=True)]


def learnt(model: base.Classifier | FourierSgd, data: list[tuple[dict[str, float], bool]]) -> float:
    """Return the seconds of processor time that an event takes."""

    def job() -> None:
        for x, y in data:
            model.predict_one(x)
            model.learn_one(x, y)

    return processor_seconds(job) / len(data)


def events(runs: int) -> None:
    """Print events a second of predict_one and learn_one."""
    rows = []
    for d, features in SIZES:
        data = stream(d, EVENTS)
        loops = FourierSgd(d, 2 * features, pairs=False), FourierSgd(d, 2 * features, pairs=True)
        models = learner(features), *loops, linear_model.LogisticRegression()
        for model in models:
            learnt(model, data)
        times = interleaved(runs, *(partial(learnt, model, data) for model in models))
        medians = [f"{1.0 / statistics.median(took):,.0f}" for took in times]
        ratios = [f"{ratio(took, times[0]):.2f}" for took in times[1:]]
        rows.append([f"{d} inputs, {features:,} features", *medians, *ratios])
    peers = ["NumPy", "NumPy, pairs", "River, linear"]
    columns = ["predict_one + learn_one, events/s", "ours", *peers, *(f"ours / {peer}" for peer in peers)]
    show("one event", columns, rows)


def as_they_come(runs: int) -> None:
    """Print events a second without arguments, on names that are the same objects in all events, or new strings."""
    rows, data = [], stream(10, EVENTS)
    parsed = [(json.loads(json.dumps(x)), y) for x, y in data]
    for names, examples in (("the same objects", data), ("new strings, as of json.loads", parsed)):
        models = (
            KernelClassifier(learner="dsg"),
            FourierSgd(10, 2048, pairs=False),
            preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        )
        for model in models:
            learnt(model, examples)
        times = interleaved(runs, *(partial(learnt, model, examples) for model in models))
        medians = [f"{1.0 / statistics.median(took):,.0f}" for took in times]
        rows.append([names, *medians, *(f"{ratio(took, times[0]):.2f}" for took in times[1:])])
    peers = ["NumPy", "StandardScaler | LogisticRegression"]
    columns = ["names", "ours, scales its inputs", *peers, *(f"ours / {peer}" for peer in peers)]
    show('KernelClassifier(learner="dsg"), 10 inputs, predict_one + learn_one, events/s', columns, rows)


def roofline(runs: int) -> None:
    """Print what a prediction takes over the multiply-adds and cosines alone."""
    d, features = 100, 16_384
    data = stream(d, 200)
    model = learner(features)
    for x, y in data:
        model.learn_one(x, y)
    X = pd.DataFrame([x for x, _ in data])
    values = X.to_numpy(np.float32)
    generator = np.random.default_rng(2)
    directions = generator.normal(size=(features // 512, d, 512)).astype(np.float32)
    weights = generator.normal(size=(features // 512, 2, 512)).astype(np.float32)
    jobs: dict[str, Callable[[], Any]] = {
        "roofline, a row": lambda: [panels(directions, weights, row) for row in values],
        "predict_one": lambda: [model.predict_one(x) for x, _ in data],
        "predict_many": lambda: model.predict_many(X),
    }
    for job in jobs.values():
        job()
    times = interleaved(runs, *(lambda job=job: seconds(job) / len(data) for job in jobs.values()))
    rows = [
        [name, f"{1e6 * statistics.median(took):.1f} µs", f"{100 * ratio(times[0], took):.0f} %"]
        for name, took in zip(jobs, times, strict=True)
    ]
    show("a prediction, 16,384 features of 100 inputs, cached", ["", "a row", "speed over the roofline's"], rows)


def threads(runs: int) -> None:
    """Print what a second thread does for the predictions of many rows."""
    rows = []
    for name, d, model in [
        ("1,024 features", 10, learner(1024)),
        ("16,384 features", 100, learner(16_384)),
        ("1,024 features, regenerated", 100, learner(1024, cache_bytes=0)),
        ("no arguments, second order", 10, KernelClassifier()),
    ]:
        data = stream(d, 2000)
        X = pd.DataFrame([x for x, _ in data])
        model.learn_many(X[:300], pd.Series([y for _, y in data[:300]]))

        def job(n: int, model: KernelClassifier = model, X: pd.DataFrame = X) -> float:
            set_num_threads(n)
            return seconds(lambda: model.predict_many(X)) / len(X)

        job(1)
        one, two = interleaved(runs, lambda job=job: job(1), lambda job=job: job(2))
        rows.append([f"{d} inputs, {name}", f"{1e6 * statistics.median(one):.1f} µs", f"{ratio(one, two):.2f}"])
    set_num_threads(1)
    show("predict_many, 2,000 rows, two threads", ["", "a row, one thread", "speed of two over one"], rows)


def uncached(runs: int) -> None:
    """Print what regenerating all directions costs, and that it changes nothing."""
    rows = []
    for d, features in [(10, 1024), (100, 1024), (100, 16_384)]:
        data = stream(d, 64)

        models = [learner(features), learner(features, cache_bytes=0)]
        for model in models:
            learnt(model, data)
        times = interleaved(runs, *(partial(learnt, model, data) for model in models))
        scores = [[model.predict_proba_one(x) for x, _ in data] for model in models]
        held = [model._raw_memory_usage for model in models]
        rows.append(
            [
                f"{d} inputs, {features:,} features",
                *(f"{1e6 * statistics.median(took):,.1f} µs" for took in times),
                f"{ratio(times[1], times[0]):.1f}",
                "yes" if scores[0] == scores[1] else "no",
                *(f"{size / 1e6:.2f} MB" for size in held),
            ]
        )
    columns = ["predict_one + learn_one", "cached", "cache_bytes=0", "times slower", "same bits", "memory", "uncached"]
    show("directions regenerated at every use", columns, rows)


def batches(folder: Path, runs: int) -> None:
    """Print the time and the error of one pass over a9a in batches."""
    X, y = table(folder / "a9a.svm.gz", np.random.default_rng(0).permutation(ROWS))
    X_test, y_test = table(folder / "a9a.test.svm.gz")
    classes = np.unique(y)

    def measured(learn: Callable[[Any, Any], Any], predict: Callable[[Any], Any]) -> tuple[float, float, float]:
        def learn_all() -> None:
            for first in range(0, ROWS, BATCH):
                learn(X[first : first + BATCH], y[first : first + BATCH])

        def predict_all() -> None:
            for first in range(0, len(X_test), BATCH):
                found.append(np.asarray(predict(X_test[first : first + BATCH])))

        found: list[Any] = []
        took = seconds(learn_all), seconds(predict_all)
        return *took, 100 * float(np.mean(np.concatenate(found) != y_test.to_numpy()))

    def ours(features: int, **given: Any) -> tuple[float, float, float]:
        model = learner(features, kernels.Gaussian(LENGTH), batch_size=BATCH, **given)
        return measured(model.learn_many, model.predict_many)

    def theirs(outputs: int, alpha: float) -> tuple[float, float, float]:
        sampler = RBFSampler(gamma=0.5 / LENGTH**2, n_components=outputs, random_state=0).fit(X[:1])
        model = SGDClassifier(loss="log_loss", alpha=alpha, random_state=0)
        return measured(
            lambda rows, labels: model.partial_fit(sampler.transform(rows), labels, classes=classes),
            lambda rows: model.predict(sampler.transform(rows)),
        )

    rows = []
    for features, outputs in [(512, 1024), (1024, 1024), (1024, 2048)]:
        alpha = min((1e-3, 1e-4, 1e-5), key=lambda alpha, outputs=outputs: theirs(outputs, alpha)[2])
        jobs = {
            f"ours, {features:,} features, steps of 16": partial(ours, features, step_size=16.0),
            f"ours, {features:,} features, preconditioned": partial(
                ours, features, features_per_seed=64, preconditioner=0.01
            ),
            f"RBFSampler({outputs:,}), alpha={alpha:g}": partial(theirs, outputs, alpha),
        }
        found = interleaved(min(runs, 5), *jobs.values())
        took = [[learning + predicting for learning, predicting, _ in one] for one in found]
        for name, one, total in zip(jobs, found, took, strict=True):
            learning, predicting, wrong = (statistics.median(column) for column in zip(*one, strict=True))
            faster = f"{ratio(took[-1], total):.1f}"
            rows.append([name, f"{learning:.2f} s", f"{predicting:.2f} s", faster, f"{wrong:.2f} %"])
    columns = ["", "learn 32,560 rows", "predict 16,281", "speed over theirs", "test error"]
    show("a9a, one pass, data frames of 256 rows", columns, rows)


def main() -> None:
    """Print all tables."""
    options = arguments(__doc__, data=True, runs=9)
    with threadpool_limits(1):
        events(options.runs)
        as_they_come(options.runs)
        roofline(options.runs)
        threads(options.runs)
        uncached(min(options.runs, 5))
        batches(options.data, options.runs)


if __name__ == "__main__":
    main()
