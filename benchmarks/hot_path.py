"""The first-order path in one thread: events, predictions, batches and regenerated directions, beside their peers.

A feature of ours is a pair of outputs, a cosine and a sine. The peers have as many outputs:

* *NumPy*: :class:`FourierSgd`, the loop that one writes in a notebook, on the same pairs (the form of random Fourier
  features that costs least), float32, the features of a prediction kept to learn from.
* *roofline*: :func:`panels`, the multiply-adds and the cosines and sines of one row alone, over panels of directions
  in float32; it reads no dictionary, checks nothing, and its coefficients are float32, where ours are float64.
* scikit-learn: ``RBFSampler`` (as many outputs as ours) and ``SGDClassifier.partial_fit``, in batches of 256.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numba import njit
from river import base, linear_model
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from benchmarks.adult import ROWS, table
from benchmarks.common import arguments, interleaved, ratio, seconds, show
from streamkernel import KernelClassifier, kernels, rules, steps
from streamkernel.generator import cos_sin_turns

SIZES = [(10, 512), (10, 1024), (10, 4096), (108, 512), (108, 1024)]
EVENTS = 2000
BATCH = 256


class FourierSgd:
    """Random Fourier features and logistic SGD in NumPy."""

    def __init__(self, d: int, n: int, step: float) -> None:
        generator = np.random.default_rng(0)
        self._directions = generator.normal(size=(n, d)).astype(np.float32)
        self._weights, self._phi = np.zeros(2 * n, np.float32), np.empty(2 * n, np.float32)
        self._n, self._d, self._step = n, d, step
        self._scale, self._last, self._score = np.float32(n**-0.5), None, 0.0

    def _evaluate(self, x: Mapping[Any, float]) -> float:
        if x is not self._last:
            turns = self._directions @ np.fromiter(x.values(), np.float32, self._d)
            np.cos(turns, out=self._phi[: self._n])
            np.sin(turns, out=self._phi[self._n :])
            self._phi *= self._scale
            self._last = x
        self._score = float(self._phi @ self._weights)
        return self._score

    def predict_one(self, x: Mapping[Any, float]) -> bool:
        return self._evaluate(x) > 0.0

    def learn_one(self, x: Mapping[Any, float], y: bool) -> None:
        score = self._score if x is self._last else self._evaluate(x)
        sign = 1.0 if y else -1.0
        self._weights += np.float32(self._step * sign / (1.0 + np.exp(sign * score))) * self._phi
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


def learner(features: int, **options: Any) -> KernelClassifier:
    """Return the model of all these measurements."""
    given = {"step": steps.Constant(1.0), "rule": rules.CDSG(longest=1.0)} | options
    return KernelClassifier(kernels.Gaussian(1.0), max_features=features, **given)


def stream(d: int, n: int) -> list[tuple[dict[str, float], bool]]:
    """Return `n` examples of `d` normal inputs."""
    X = np.random.default_rng(1).normal(size=(n, d)) / d**0.5
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] > 0.0
    return [(dict(zip(map(str, range(d)), row, strict=True)), bool(label)) for row, label in zip(X.tolist(), y, strict=True)]


def events(runs: int) -> None:
    """Print events a second of predict_one and learn_one."""
    rows = []
    for d, features in SIZES:
        data = stream(d, EVENTS)

        def rate(model: base.Classifier | FourierSgd, data: list[tuple[dict[str, float], bool]] = data) -> float:
            def job() -> None:
                for x, y in data:
                    model.predict_one(x)
                    model.learn_one(x, y)

            return len(data) / seconds(job)

        models = learner(features), FourierSgd(d, features, 1.0), linear_model.LogisticRegression()
        for model in models:
            rate(model)
        rates = interleaved(runs, *(lambda model=model: rate(model) for model in models))
        medians = [f"{statistics.median(found):,.0f}" for found in rates]
        ratios = [f"{ratio(rates[0], found):.2f}" for found in rates[1:]]
        rows.append([f"{d} inputs, {features:,} features, {2 * features:,} outputs", *medians, *ratios])
    columns = ["predict_one + learn_one, events/s", "ours", "NumPy", "River, linear", "ours / NumPy", "ours / linear"]
    show("one event", columns, rows)


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


def uncached(runs: int) -> None:
    """Print what regenerating all directions costs, and that it changes nothing."""
    rows = []
    for d, features in [(10, 1024), (100, 1024), (100, 16_384)]:
        data = stream(d, 64)

        def job(model: KernelClassifier, data: list[tuple[dict[str, float], bool]] = data) -> None:
            for x, y in data:
                model.predict_one(x)
                model.learn_one(x, y)

        models = [learner(features), learner(features, cache_bytes=0)]
        for model in models:
            job(model)
        times = interleaved(runs, *(lambda model=model: seconds(lambda: job(model)) / len(data) for model in models))
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


def batches(options: Any) -> None:
    """Print seconds and errors of one pass over a9a in batches."""
    X, y = table(options.data / "a9a.svm.gz", np.random.default_rng(0).permutation(ROWS))
    X_test, y_test = table(options.data / "a9a.test.svm.gz")
    parts = [slice(i, i + BATCH) for i in range(0, ROWS, BATCH)]

    def error(predicted: Any) -> float:
        return 100 * float(np.mean(np.asarray(predicted) != y_test.to_numpy()))

    def ours(features: int) -> list[float]:
        model = learner(features, batch_size=BATCH)

        def learn() -> None:
            for part in parts:
                model.learn_many(X[part], y[part])

        took, found = seconds(learn), []
        predicting = seconds(lambda: found.append(error(model.predict_many(X_test))))
        return [took, predicting, found[0]]

    def theirs(outputs: int) -> list[float]:
        sampler = RBFSampler(gamma=1 / (2 * LENGTH**2), n_components=outputs, random_state=0).fit(X)
        model = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0)

        def learn() -> None:
            for part in parts:
                model.partial_fit(sampler.transform(X[part]), y[part], classes=[-1, 1])

        took, found = seconds(learn), []
        predicting = seconds(lambda: found.append(error(model.predict(sampler.transform(X_test)))))
        return [took, predicting, found[0]]


def main() -> None:
    """Print all tables."""
    options = arguments(__doc__, data=True, runs=9)
    with threadpool_limits(1):
        events(options.runs)
        roofline(options.runs)
        uncached(min(options.runs, 5))


if __name__ == "__main__":
    main()
