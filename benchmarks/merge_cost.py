"""The cost of a merge: seconds and bytes of its parts against features and replicas, and the necessary round length.

A round ends with a summary of each replica, which every worker makes for itself and sends; then one of them merges all,
and pickles the result for the others. Told are medians of: a summary; a merge of so many; pickling and unpickling a
model; the first event after a merge, which draws directions anew; and the sizes of a summary and of a model.

With R replicas on cores of their own a round of L events takes L·t + S + R·M + P, where t is the time of an event
(predict and learn, measured in the same run), and S, M and P those of a summary, of merging one of R, and of sending a
model (pickled once, unpickled, first event). The round at which merging takes a tenth of the time has
L = 9 (S + R·M + P)/t events a worker. Seconds are fitted as a + b·Fᵏ of F features. No network is measured: the sizes
say what goes over one.
"""

from __future__ import annotations

import copy
import pickle
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import curve_fit
from threadpoolctl import threadpool_limits

from benchmarks.common import arguments, seconds, show
from streamkernel import KernelRegressor, kernels, learners, rules
from streamkernel.estimators import model_merging

KERNEL = kernels.Gaussian(2.0)
LEARNERS = {"first": learners.DSG(rule=rules.DSG()), "second": learners.Newton(joint=True)}
SIZES = {"first": [256, 1024, 4096, 16_384], "second": [256, 512, 1024, 2048]}
REPLICAS = [1, 2, 4, 8]
INPUTS, EVENTS = 10, 300


def model_of(order: str, features: int) -> KernelRegressor:
    """Return a model at its cap."""
    learner = replace(LEARNERS[order], features_per_seed=min(256, features // 4))
    model = KernelRegressor(KERNEL, learner=learner, max_features=features)
    for x, y in events():
        model.learn_one(x, y)
    assert model.n_features == features
    return model


def events() -> list[tuple[dict[str, float], float]]:
    """Return events that make and train a model."""
    X = np.random.default_rng(0).normal(size=(EVENTS, INPUTS))
    return [({f"x{i}": v for i, v in enumerate(row)}, float(np.sin(row[0]))) for row in X.tolist()]


def measure(order: str, features: int, runs: int) -> tuple[dict[str, float], dict[int, float], tuple[int, int]]:
    """Return median seconds by what is done, those of merges by replicas, and bytes of a summary and of a model."""
    model, some = model_of(order, features), events()
    root, x, y = model_merging.summarize(model), *some[0]
    replica = copy.deepcopy(model)
    for one in some[:64]:
        replica.learn_one(*one)
    part, told = model_merging.summarize(replica), pickle.dumps(model)

    def event() -> float:
        replica.predict_one(x)
        return seconds(lambda: [(replica.predict_one(a), replica.learn_one(a, b)) for a, b in some[:64]]) / 64

    def first() -> float:
        fresh = pickle.loads(told)
        return seconds(lambda: (fresh.predict_one(x), fresh.learn_one(x, y)))

    def merge(count: int) -> float:
        twin = pickle.loads(told)
        return seconds(lambda: model_merging.merge_into(twin, [part] * count, root))

    def median(job: Any) -> float:
        job()
        return statistics.median(job() for _ in range(runs))

    took = {
        "event": median(event),
        "summary": median(lambda: seconds(lambda: model_merging.summarize(replica))),
        "dumps": median(lambda: seconds(lambda: pickle.dumps(model))),
        "loads": median(lambda: seconds(lambda: pickle.loads(told))),
        "first": median(first),
    }
    sizes = len(pickle.dumps(part)), len(told)
    return took, {count: median(lambda count=count: merge(count)) for count in REPLICAS}, sizes


def fitted(features: list[int], took: list[float]) -> str:
    """Return a + b·Fᵏ in words, fitted to the logarithms."""

    def model(log: Any, a: float, b: float, k: float) -> Any:
        return np.log(np.exp(a) + np.exp(b + k * log))

    log = np.log(np.array(features) / features[-1])
    start = np.log(took[0] / 2), np.log(took[-1]), 1.5
    bounds = ([-20.0, -20.0, 0.3], [5.0, 10.0, 3.5])
    (a, b, k), _ = curve_fit(model, log, np.log(took), start, bounds=bounds)
    return f"{1e3 * np.exp(a):.2g} ms + {1e3 * np.exp(b):.3g} ms (F/{features[-1]:,})^{k:.2f}"


def main() -> None:
    """Print seconds, sizes, fits and rounds."""
    told = arguments(__doc__, runs=5, quick=False)
    with threadpool_limits(1):
        for order, sizes in SIZES.items():
            sizes = sizes[:2] if told.quick else sizes
            found = [measure(order, features, 1 if told.quick else told.runs) for features in sizes]
            rows, lengths = [], []
            for features, (took, merges, (summary, model)) in zip(sizes, found, strict=True):
                each = [took["summary"], *merges.values(), took["dumps"], took["loads"], took["first"]]
                event, size = f"{1e6 * took['event']:.0f}", [f"{summary / 1e6:.2f}", f"{model / 1e6:.2f}"]
                rows.append([f"{features:,}", event, *(f"{1e3 * one:.1f}" for one in each), *size])
                sent = took["dumps"] + took["loads"] + took["first"] - took["event"]
                rounds = [9.0 * (took["summary"] + merge + sent) / took["event"] for merge in merges.values()]
                lengths.append([f"{features:,}", *(f"{length:,.0f}" for length in rounds)])
            merged = [f"merge {count}" for count in REPLICAS]
            names = ["features", "event, µs", "summary, ms", *merged, "dumps", "loads", "first event"]
            show(f"{order} order, medians", [*names, "summary, MB", "model, MB"], rows)
            if not told.quick:
                print("summary:", fitted(sizes, [took["summary"] for took, _, _ in found]))
                for count in REPLICAS:
                    print(f"merge of {count}:", fitted(sizes, [merges[count] for _, merges, _ in found]))
            columns = ["features", *(f"{count} replicas" for count in REPLICAS)]
            show(f"{order} order: events a worker at which merging takes a tenth of a round", columns, lengths)


if __name__ == "__main__":
    main()
