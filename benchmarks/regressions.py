"""A small set that continuous integration compares with the last release: accuracy of six streams, and speed as ratios.

The figures of the last release are in ``regressions.json``; ``--write`` replaces them. A score of a whole stream, of
those that ship with River and scikit-learn or that River generates, fails if it is lower by more than 0.005. Speed is
the processor time of ours over that of a NumPy loop in the same run, because machines differ; a ratio fails if it is
1.5 times that of the release. The command takes about two minutes.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks import prequential, store
from benchmarks.common import arguments, interleaved, ratio, show
from benchmarks.hot_path import FourierSgd, learner, stream
from benchmarks.scenarios import CLASSES, SCENARIOS
from benchmarks.second_order import LeastSquares
from streamkernel import KernelClassifier, KernelRegressor

BASELINE = Path(__file__).with_name("regressions.json")
STREAMS = ["phishing", "bananas", "image_segments", "diabetes", "rbf_abrupt", "friedman_abrupt"]
LEARNERS = ["newton", "dsg"]
INPUTS, FEATURES = 10, 1024
WORSE, SLOWER = 0.005, 1.5
"""The tolerances: a score fails if it is lower by more than the first, a ratio if it is larger by the second factor."""

Figures = dict[str, dict[str, float]]


def score(name: str, kind: str) -> float:
    """Return accuracy or R² of a stream, the mean over its orders."""
    scenario = SCENARIOS[name]
    make = partial(KernelClassifier if scenario.task == CLASSES else KernelRegressor, learner=kind)
    orders = [scenario.events(Path(), order) for order in range(scenario.orders)]
    return statistics.fmean(
        prequential.stream(make, scenario, events, math.inf, lambda n: None).score for events in orders
    )


def accuracy() -> dict[str, float]:
    """Return the scores of all streams, by stream and learner."""
    return {f"{name}, {kind}": round(score(name, kind), 4) for name in STREAMS for kind in LEARNERS}


def processor_seconds(job: Callable[[], Any]) -> float:
    """Return the processor time of a job."""
    began = time.process_time()
    job()
    return time.process_time() - began


def events(model: Any, data: list[tuple[dict[str, float], bool]]) -> float:
    """Return the processor time of predict_one and learn_one."""

    def job() -> None:
        for x, y in data:
            model.predict_one(x)
            model.learn_one(x, y)

    return processor_seconds(job) / len(data)


def times_of_rows(data: list[tuple[dict[str, float], bool]]) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return jobs that time predictions of many rows: ours, and cosines and sines of a product of matrices."""
    model, X = learner(FEATURES), pd.DataFrame([x for x, _ in data])
    model.learn_many(X[:256], pd.Series([y for _, y in data[:256]]))
    generator = np.random.default_rng(0)
    directions = generator.normal(size=(INPUTS, FEATURES)).astype(np.float32)
    weights = generator.normal(size=2 * FEATURES).astype(np.float32)

    def plain() -> None:
        angles = X.to_numpy(np.float32) @ directions
        (np.hstack([np.cos(angles), np.sin(angles)]) @ weights > 0.0).sum()

    return lambda: processor_seconds(lambda: model.predict_many(X)), lambda: processor_seconds(plain)


def speed(runs: int) -> dict[str, float]:
    """Return the processor time of ours over that of the peer, the median of pairs."""
    data = stream(INPUTS, 3072)
    first, loop = learner(FEATURES), FourierSgd(INPUTS, 2 * FEATURES, pairs=True)
    second, squares = KernelClassifier(max_features=FEATURES), LeastSquares(INPUTS, 2 * FEATURES, 4)
    for model in (first, second):  # Newton steps have their full length from 2,048 events on
        events(model, data)
    pairs = {
        "first order, an event, over NumPy's SGD": (partial(events, first, data), partial(events, loop, data[:500])),
        "second order, an event, over NumPy's least squares": (
            partial(events, second, data[:1000]),
            partial(events, squares, data[:60]),
        ),
        "first order, predict_many, over NumPy": times_of_rows(data),
    }
    found = {}
    for name, (ours, peer) in pairs.items():
        ours(), peer()
        found[name] = round(ratio(*interleaved(runs, ours, peer)), 4)
    return found


def compared(old: Figures, new: Figures) -> Iterator[tuple[str, float, float | None, float, bool]]:
    """Yield name, figure of the release, figure now, limit, and whether it is within the limit.

    Figures that only one side has are left out if they are new, and fail if they are missing.
    """
    for kind, figures in old.items():
        for name, before in figures.items():
            now = new.get(kind, {}).get(name)
            limit = before - WORSE if kind == "accuracy" else before * SLOWER
            if now is None or math.isnan(now):
                yield name, before, now, limit, False
            else:
                yield name, before, now, limit, now >= limit if kind == "accuracy" else now <= limit


def main() -> None:
    """Print the figures beside those of the release; fail if one is beyond its limit, or write them."""
    options = arguments(__doc__, runs=7, write=False, baseline=BASELINE)
    with threadpool_limits(1):
        new: Figures = {"speed": speed(options.runs), "accuracy": accuracy()}
    if options.write:
        text = json.dumps({"version": store.path().stem} | new, indent=1, ensure_ascii=False)
        options.baseline.write_text(text + "\n")
    old = json.loads(options.baseline.read_text())
    version = old.pop("version")
    found = list(compared(old, new))
    rows = [
        [name, f"{before:.4f}", "missing" if now is None else f"{now:.4f}", f"{limit:.4f}", "" if good else "worse"]
        for name, before, now, limit, good in found
    ]
    show("Regressions", ["accuracy or R²; time over the peer's", version, "now", "limit", ""], rows)
    if not all(good for *_, good in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
