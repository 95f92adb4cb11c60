"""Novelty detection: ROC AUC on seven data sets, beside River's detectors and scikit-learn's one-class SVM.

Every stream is made of events of the normal kind with 5 % of another kind, in random order. Each event is scored, then
learned. "second half" is the AUC over that half alone: scikit-learn's machine is trained on all the first half at once
and scores the second, and learns nothing there. The kind that is odd changes with the seed where there are more than
two. Figures are medians over the seeds. Every detector has a StandardScaler in front, HalfSpaceTrees a MinMaxScaler.
River's OneClassSVM returns f(x) - ρ, which is high where events are common; it is shown as it is and negated.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from river import anomaly, base, compose, datasets, feature_extraction, preprocessing
from sklearn import datasets as batch_datasets
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from benchmarks.common import arguments, show
from streamkernel import KernelNoveltyDetector

RATE, MOST = 0.05, 4000
DETECTORS: dict[str, Callable[[int], base.AnomalyDetector]] = {
    "KernelNoveltyDetector()": lambda seed: preprocessing.StandardScaler() | KernelNoveltyDetector(seed=seed),
    "KernelNoveltyDetector(nu=0.1)": lambda seed: (
        preprocessing.StandardScaler() | KernelNoveltyDetector(nu=0.1, seed=seed)
    ),
    "OneClassSVM": lambda seed: preprocessing.StandardScaler() | anomaly.OneClassSVM(),
    "RBFSampler | OneClassSVM": lambda seed: (
        preprocessing.StandardScaler() | feature_extraction.RBFSampler(seed=seed) | anomaly.OneClassSVM()
    ),
    "HalfSpaceTrees": lambda seed: preprocessing.MinMaxScaler() | anomaly.HalfSpaceTrees(seed=seed),
}
BATCH = {"scikit-learn OneClassSVM, nu=0.5": 0.5, "scikit-learn OneClassSVM, nu=0.1": 0.1}


def rivers(dataset: base.Base) -> tuple[np.ndarray, np.ndarray]:
    """Return one of River's data sets as a table."""
    xs, ys = zip(*dataset, strict=True)
    return np.array([[float(value) for value in x.values()] for x in xs]), np.array(ys)


def problems() -> Iterator[tuple[str, np.ndarray, list[np.ndarray]]]:
    """Yield names, tables, and which rows are odd in one way or another."""
    for name, kind in (("wine", batch_datasets.load_wine), ("digits", batch_datasets.load_digits)):
        X, y = kind(return_X_y=True)
        yield name, X, [y == label for label in np.unique(y)]
    X, y = batch_datasets.load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, [y == 0]  # malignant
    X, y = rivers(datasets.ImageSegments())
    yield "ImageSegments", X, [y == label for label in np.unique(y)]
    for kind in (datasets.Phishing, datasets.Bananas, datasets.Shuttle):
        X, y = rivers(kind())
        yield kind.__name__, X, [y.astype(float) == 1.0]


def stream(X: np.ndarray, odd: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a stream of normal events with a few odd ones, and which are."""
    generator = np.random.default_rng(seed)
    normal = generator.permutation(np.flatnonzero(~odd))[:MOST]
    others = generator.permutation(np.flatnonzero(odd))[: max(2, round(len(normal) * RATE / (1.0 - RATE)))]
    order = generator.permutation(np.concatenate([normal, others]))
    return X[order], odd[order]


def scored(model: base.AnomalyDetector | compose.Pipeline, X: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the score of each event before it is learned, and the events a second."""
    scores, events = [], [dict(enumerate(row)) for row in X.tolist()]
    began = time.perf_counter()
    for x in events:
        scores.append(model.score_one(x))
        model.learn_one(x)
    return np.array(scores), len(X) / (time.perf_counter() - began)


def main() -> None:
    """Print the AUC of every detector on every data set."""
    options = arguments(__doc__, seeds=10)
    sets = list(problems())
    whole: dict[str, list[list[float]]] = {name: [[] for _ in sets] for name in DETECTORS}
    half: dict[str, list[list[float]]] = {name: [[] for _ in sets] for name in [*DETECTORS, *BATCH]}
    speed: dict[str, list[float]] = {name: [] for name in DETECTORS}
    scored(DETECTORS["KernelNoveltyDetector()"](0), sets[0][1])  # compiles
    for seed in range(options.seeds):
        for i, (_, X, kinds) in enumerate(sets):
            events, odd = stream(X, kinds[seed % len(kinds)], seed)
            middle = len(events) // 2
            while not odd[middle:].any():  # of a very short stream
                middle -= 1
            for name, make in DETECTORS.items():
                scores, rate = scored(make(seed), events)
                whole[name][i].append(roc_auc_score(odd, scores))
                half[name][i].append(roc_auc_score(odd[middle:], scores[middle:]))
                speed[name].append(rate)
            for name, nu in BATCH.items():
                machine = make_pipeline(StandardScaler(), OneClassSVM(nu=nu, gamma="scale")).fit(events[:middle])
                half[name][i].append(roc_auc_score(odd[middle:], -machine.decision_function(events[middle:])))
    for found in (whole, half):
        for name in [name for name in found if name.endswith("OneClassSVM")]:
            found[f"{name}, negated"] = [[1.0 - auc for auc in result] for result in found[name]]
    for title, found in (("whole stream, prequential", whole), ("second half", half)):
        rows = []
        for name, results in found.items():
            medians = [statistics.median(result) for result in results]
            rate = f"{statistics.median(speed[name]):,.0f}" if name in speed else ""
            rows.append([name, *(f"{auc:.3f}" for auc in medians), f"{statistics.mean(medians):.3f}", rate])
        show(f"ROC AUC, {title}", ["detector", *(name for name, _, _ in sets), "mean", "events/s"], rows)


if __name__ == "__main__":
    main()
