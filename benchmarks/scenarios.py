"""The streams on which accuracy is compared; a name always means the same events in the same order.

There are two protocols. A prequential stream is predicted and then learned, event by event. A stream with `held_back`
events is learned once, in order, and the last `held_back` events are predicted afterwards. Inputs are numbers: a string
is an indicator of its own for every model, but MOA's learners read MOA's files as they are. Rivals are told of an
indicator that is 0, which River's scaler would take for a constant else; ours are not.

Tables of fewer than 2,000 rows come in ten random orders, and a score is the mean over them; the two small streams in
the order of time, trump_approval and chick_weights, in that order alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from river import datasets
from river.datasets import synth
from sklearn import datasets as batch_datasets

from benchmarks import adult, arff

Event = tuple[dict[str, float], Any]

RANKED, DRIFTING, HELD_OUT, OF_MOA = "ranked", "drifting", "held out", "moa"
GROUPS = (RANKED, DRIFTING, HELD_OUT, OF_MOA)
CLASSES, NUMBERS = "classification", "regression"
MANY, SOME = 50_000, 20_000
ORDERS = 10  # of a table of fewer than 2,000 rows


@dataclass(frozen=True)
class Scenario:
    """A stream, and how models are measured on it.

    Parameters
    ----------
    group
        The table it stands in. Nobody tunes anything on what is held out.
    task
        Whether targets are classes or numbers.
    load
        Returns the events, given the folder of data files.
    held_back
        Number of events at the end for the test; 0 for the prequential protocol.
    orders
        In how many orders the events are learned, each by a new model.
    file
        Returns the file of MOA's that has these events, given the folder of data files.
    """

    group: str
    task: str
    load: Callable[[Path], Iterable[Event]]
    held_back: int = 0
    orders: int = 1
    file: Callable[[Path], Path] | None = None

    def events(self, folder: Path, order: int = 0) -> list[Event]:
        """Return all events, those for the test at the end, in the first order or another one."""
        events = list(self.load(folder))
        if order:
            events = [events[i] for i in np.random.default_rng(order).permutation(len(events))]
        return events

    @property
    def measure(self) -> str:
        """The name of the score; more is better."""
        return ("test " if self.held_back else "") + ("accuracy" if self.task == CLASSES else "R²")


def numbers(x: dict[Any, Any]) -> dict[str, float]:
    """Return the inputs of an event as numbers."""
    return {f"{name}={v}" if isinstance(v, str) else str(name): 1.0 if isinstance(v, str) else float(v)
            for name, v in x.items()}  # fmt: skip


def filled(events: Sequence[Event]) -> list[Event]:
    """Return the events with 0 for each input that they do not have and others do."""
    zeros = dict.fromkeys((name for x, _ in events for name in x), 0.0)
    return [(zeros | x, y) for x, y in events]


def with_binary_labels(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events with False and True for two labels that are text; River's linear models need this."""
    labels = sorted({y for _, y in events}, key=str)
    if len(labels) != 2 or not isinstance(labels[1], str):
        return events
    return [(x, y == labels[1]) for x, y in events]


def rows(X: np.ndarray, y: np.ndarray) -> Iterator[Event]:
    """Yield the events of a table."""
    names = [f"x{i}" for i in range(X.shape[1])]
    for row, target in zip(X.tolist(), y.tolist(), strict=True):
        yield dict(zip(names, row, strict=True)), target


def shuffled(X: np.ndarray, y: np.ndarray) -> Iterator[Event]:
    """Yield the events of a table in one random order."""
    order = np.random.default_rng(0).permutation(len(X))
    return rows(X[order], y[order])


def joined(*streams: Iterable[Any]) -> Iterator[Event]:
    """Yield the events of River's streams, one stream after the other."""
    for x, y in itertools.chain(*streams):
        yield numbers(x), y


def a9a(folder: Path) -> Iterator[Event]:
    """Yield the training rows in the order of ``benchmarks.adult``, then the test rows."""
    order = np.random.default_rng(0).permutation(adult.ROWS)
    for name, given in (("a9a.svm.gz", order), ("a9a.test.svm.gz", None)):
        X, y = adult.table(folder / name, given)
        yield from rows(X.to_numpy(), y.to_numpy())


def numeric_csv(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets of a file without a header, the target last."""
    table = pd.read_csv(path, header=None).to_numpy()
    return table[:, :-1], table[:, -1]


def elec2(folder: Path) -> Iterator[Event]:
    """Yield the electricity market in the order of time."""
    table = pd.read_csv(folder / "elec2.csv.gz")
    return rows(table.drop(columns="class").to_numpy(), table["class"].to_numpy())


def of_river(group: str, task: str, *make: Callable[[], Iterable[Any]], orders: int = 1) -> Scenario:
    """Return a prequential scenario of River's streams, joined abruptly."""
    return Scenario(group, task, lambda folder: joined(*(one() for one in make)), orders=orders)


def of_sklearn(task: str, make: Callable[..., Any]) -> Scenario:
    """Return a prequential scenario of one of scikit-learn's data sets."""
    return Scenario(HELD_OUT, task, lambda folder: shuffled(*make(return_X_y=True)), orders=ORDERS)


def of_moa(name: str) -> Scenario:
    """Return a prequential scenario of a stream that ``benchmarks.moa_streams`` has written."""
    return Scenario(
        OF_MOA,
        CLASSES,
        lambda folder: joined(arff.read(folder / f"{name}.arff")),
        file=lambda folder: folder / f"{name}.arff",
    )


def blobs(model: int, sample: int) -> synth.RandomRBF:
    """Return River's RandomRBF with four classes."""
    return synth.RandomRBF(seed_model=model, seed_sample=sample, n_classes=4, n_features=10, n_centroids=50)


def sea(variant: int, seed: int) -> synth.SEA:
    """Return River's SEA with a tenth of its labels wrong."""
    return synth.SEA(variant, noise=0.1, seed=seed)


def gradual(before: Any, after: Any) -> Iterable[Any]:
    """Return a stream in which one concept gives way to another about the middle."""
    return synth.ConceptDriftStream(before, after, position=SOME // 2, width=4000, seed=5).take(SOME)


def friedman(kind: str, *position: int) -> Iterable[Any]:
    """Return Friedman's function with a drift."""
    return synth.FriedmanDrift(kind, position, transition_window=2000, seed=1).take(SOME)


SCENARIOS: dict[str, Scenario] = {
    "a9a": Scenario(RANKED, CLASSES, a9a, held_back=16_281),
    "phishing": of_river(RANKED, CLASSES, datasets.Phishing, orders=ORDERS),
    "bananas": of_river(RANKED, CLASSES, datasets.Bananas),
    "image_segments": of_river(RANKED, CLASSES, datasets.ImageSegments),
    "shuttle": of_river(RANKED, CLASSES, datasets.Shuttle),
    "elec2": Scenario(RANKED, CLASSES, elec2),
    "random_rbf": of_river(RANKED, CLASSES, lambda: blobs(1, 2).take(MANY)),
    "kin40k": Scenario(RANKED, NUMBERS, lambda folder: rows(*numeric_csv(folder / "kin40k.csv.gz")), held_back=4000),
    "protein": Scenario(
        RANKED, NUMBERS, lambda folder: shuffled(*numeric_csv(folder / "protein.csv.gz")), held_back=4573
    ),
    "friedman": of_river(RANKED, NUMBERS, lambda: synth.Friedman(seed=1).take(MANY)),
    "rbf_abrupt": of_river(DRIFTING, CLASSES, lambda: blobs(1, 2).take(SOME // 2), lambda: blobs(3, 4).take(SOME // 2)),
    "rbf_gradual": of_river(DRIFTING, CLASSES, lambda: gradual(blobs(1, 2), blobs(3, 4))),
    "rbf_moving": of_river(
        DRIFTING,
        CLASSES,
        lambda: synth.RandomRBFDrift(1, 2, n_classes=4, n_features=10, change_speed=0.0005).take(SOME),
    ),
    "sea_abrupt": of_river(DRIFTING, CLASSES, lambda: sea(0, 1).take(SOME // 2), lambda: sea(3, 2).take(SOME // 2)),
    "sea_gradual": of_river(DRIFTING, CLASSES, lambda: gradual(sea(0, 1), sea(3, 2))),
    "friedman_abrupt": of_river(DRIFTING, NUMBERS, lambda: friedman("gra", SOME // 3, 2 * SOME // 3)),
    "friedman_gradual": of_river(DRIFTING, NUMBERS, lambda: friedman("gsg", SOME // 3, 2 * SOME // 3)),
    "friedman_local": of_river(DRIFTING, NUMBERS, lambda: friedman("lea", SOME // 4, SOME // 2, 3 * SOME // 4)),
    "digits": of_sklearn(CLASSES, batch_datasets.load_digits),
    "breast_cancer": of_sklearn(CLASSES, batch_datasets.load_breast_cancer),
    "wine": of_sklearn(CLASSES, batch_datasets.load_wine),
    "agrawal": of_river(HELD_OUT, CLASSES, lambda: synth.Agrawal(4, seed=1, perturbation=0.05).take(SOME)),
    "waveform": of_river(HELD_OUT, CLASSES, lambda: synth.Waveform(seed=1).take(SOME)),
    "hyperplane": of_river(HELD_OUT, CLASSES, lambda: synth.Hyperplane(seed=1, mag_change=0.001).take(SOME)),
    "led_drift": of_river(
        HELD_OUT,
        CLASSES,
        lambda: synth.LEDDrift(seed=1, noise_percentage=0.1, irrelevant_features=True, n_drift_features=4).take(SOME),
    ),
    "diabetes": of_sklearn(NUMBERS, batch_datasets.load_diabetes),
    "planes_2d": of_river(HELD_OUT, NUMBERS, lambda: synth.Planes2D(seed=1).take(SOME)),
    "mv": of_river(HELD_OUT, NUMBERS, lambda: synth.Mv(seed=1).take(SOME)),
    "trump_approval": of_river(HELD_OUT, NUMBERS, datasets.TrumpApproval),
    "chick_weights": of_river(HELD_OUT, NUMBERS, datasets.ChickWeights),
    **{name: of_moa(name) for name in ("moa_rbf", "moa_led", "moa_agr", "moa_hyper", "moa_rbf_m", "moa_rbf_f")},
}
