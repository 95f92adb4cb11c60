"""The streams of suite B, which judges mechanisms of the default learner; a draw of a name always has the same events.

Nothing is chosen by these streams, and none of them is in ``benchmarks.scenarios``. They follow known laws
(``benchmarks.suite_b_laws``), come from generators of River and scikit-learn, or are data of River, scikit-learn and
matplotlib. Tables that suite A contains too are turned, have additional or missing inputs, or other targets. A draw is
a new sample of the same law, or another order of the same rows; rows in the order of time are the same in each draw,
where only the model's seed differs. Inputs are what users have: numbers, text, missing values.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import cbook
from river import datasets
from river.datasets import synth
from river.drift import datasets as series
from sklearn import datasets as batch_datasets

from benchmarks import suite_b_laws as laws
from benchmarks.scenarios import CLASSES, NUMBERS, rows
from benchmarks.suite_b_laws import Event, Generator, Table

DRAWS, LARGE, SMALL = 40, 20, 200
"""Draws of most streams, of streams of 20,000 rows, and of tables of a few hundred."""


@dataclass(frozen=True)
class Stream:
    """A stream of suite B.

    Parameters
    ----------
    task
        Whether targets are classes or numbers.
    make
        Returns the events, given the random generator of a draw.
    draws
        How many draws are measured, each by a new model.
    delay
        How many events later a label comes.
    """

    task: str
    make: Callable[[Generator], Iterable[Event]]
    draws: int = DRAWS
    delay: int = 0

    def events(self, draw: int, most: int | None = None) -> list[Event]:
        """Return the events of a draw, or the first of them."""
        return list(itertools.islice(self.make(np.random.default_rng((47, draw))), most))


class Late:
    """A model that gets each label some events later.

    Parameters
    ----------
    model
        The model that predicts and learns.
    delay
        The number of events between a prediction and its label.
    """

    def __init__(self, model: Any, delay: int) -> None:
        self._model, self._delay = model, delay
        self._waiting: deque[Event] = deque()

    def predict_one(self, x: dict[str, Any]) -> Any:
        return self._model.predict_one(x)

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        self._waiting.append((x, y))
        if len(self._waiting) > self._delay:
            self._model.learn_one(*self._waiting.popleft())


def of_law(
    task: str, law: Callable[[Generator, int], Table | Iterator[Event]], n: int, draws: int = DRAWS, delay: int = 0
) -> Stream:
    """Return a stream of a law; one of another length or delay has other rows."""

    def make(generator: Generator) -> Iterable[Event]:
        drawn = law(np.random.default_rng((n, delay, generator.integers(2**31))), n)
        return rows(*drawn) if isinstance(drawn, tuple) else drawn

    return Stream(task, make, draws, delay)


def of_river(task: str, make: Callable[[int], Iterable[Any]], draws: int = DRAWS, delay: int = 0) -> Stream:
    """Return a stream of one of River's generators, given how it is made from a seed."""

    def events(generator: Generator) -> Iterator[Event]:
        for x, y in make(int(generator.integers(2**31))):
            yield {str(name): value for name, value in x.items()}, y

    return Stream(task, events, draws, delay)


def of_sklearn(task: str, make: Callable[[int], Table], draws: int = DRAWS) -> Stream:
    """Return a stream of one of scikit-learn's generators, given how it is made from a seed."""
    return Stream(task, lambda generator: rows(*make(int(generator.integers(2**31)))), draws)


def of_table(task: str, load: Callable[[], Table], *changes: Callable[[Generator, np.ndarray], np.ndarray],
             draws: int = DRAWS) -> Stream:  # fmt: skip
    """Return the rows of a table in random orders, after changes of the inputs."""

    def make(generator: Generator) -> Iterable[Event]:
        X, y = load()
        for change in changes:
            X = change(generator, X)
        order = generator.permutation(len(X))
        return rows(X[order], y[order])

    return Stream(task, make, draws)


def turned(generator: Generator, X: np.ndarray) -> np.ndarray:
    """Return scaled inputs in random directions."""
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    return np.asarray(X @ np.linalg.qr(generator.normal(size=(X.shape[1], X.shape[1])))[0])


def noisy(generator: Generator, X: np.ndarray) -> np.ndarray:
    """Return the inputs among ten more that say nothing."""
    return np.hstack([generator.normal(size=(len(X), 5)), X, generator.normal(size=(len(X), 5))])


def with_gaps(generator: Generator, X: np.ndarray) -> np.ndarray:
    """Return the inputs, of which a fifth is NaN."""
    return np.where(generator.random(X.shape) < 0.2, np.nan, X)


def sklearn_table(load: Callable[..., Any], **options: Any) -> Callable[[], Table]:
    """Return how one of scikit-learn's tables is loaded."""
    return lambda: load(return_X_y=True, **options)


@cache
def river_table(kind: Callable[[], Iterable[Any]], target: str = "") -> Table:
    """Return inputs and targets of one of River's data sets, or one of several targets."""
    events = list(kind())
    X = np.array([list(x.values()) for x, _ in events], float)
    return X, np.array([y[target] if target else y for _, y in events])


def halved_shuttle() -> Table:
    """Return the rows of Shuttle that are anomalies, and as many that are not."""
    X, y = river_table(datasets.Shuttle)
    kept = np.concatenate([np.flatnonzero(y == label)[: y.sum()] for label in (False, True)])
    return X[kept], y[kept]


def parity_of_digits() -> Table:
    """Return handwritten digits, and whether they are even."""
    X, y = batch_datasets.load_digits(return_X_y=True)
    return X, y % 2 == 0


def patients(generator: Generator) -> Iterable[Event]:
    """Return the diabetes table in the units of its source, with the sex as text."""
    X, y = batch_datasets.load_diabetes(return_X_y=True, scaled=False, as_frame=True)
    X = X.assign(sex=np.where(X["sex"] == 1.0, "a", "b"))
    order = generator.permutation(len(X))
    return zip(X.iloc[order].to_dict("records"), y.iloc[order].tolist(), strict=True)


@cache
def picture(name: str) -> np.ndarray:
    """Return a photograph in grey."""
    return np.asarray(batch_datasets.load_sample_image(name).mean(axis=2))


def patches(generator: Generator, name: str, n: int) -> np.ndarray:
    """Return the pixels of small squares of a photograph."""
    windows = np.lib.stride_tricks.sliding_window_view(picture(name), (3, 3)).reshape(-1, 9)
    return windows[generator.permutation(len(windows))[:n]]


def pixels(generator: Generator, n: int) -> Table:
    """Return pixels of a photograph, given eight around."""
    square = patches(generator, "flower.jpg", n)
    return np.delete(square, 4, axis=1), square[:, 4]


def photographs(generator: Generator, n: int) -> Table:
    """Return squares of two photographs, and which it is."""
    X = np.vstack([patches(generator, name, n // 2) for name in ("china.jpg", "flower.jpg")])
    y, order = np.arange(n) >= n // 2, generator.permutation(n)
    return X[order], y[order]


def terrain(generator: Generator, n: int) -> Table:
    """Return the elevation of random places near a fault."""
    heights = cbook.get_sample_data("jacksboro_fault_dem.npz")["elevation"].astype(float)
    places = generator.permutation(heights.size)[:n]
    return np.stack(np.unravel_index(places, heights.shape), axis=1), heights.ravel()[places]


def oil(generator: Generator) -> Iterable[Event]:
    """Return daily changes of the price of oil, given the sizes of the last five."""
    prices = np.array([float(y) for _, y in series.BrentSpotPrice()])
    sizes = np.abs(np.diff(np.log(prices)))
    return rows(np.lib.stride_tricks.sliding_window_view(sizes, 5)[:-1], sizes[5:])


def office(generator: Generator) -> Iterable[Event]:
    """Return the carbon dioxide in an office, given temperature, humidity and light, in the order of time."""
    table = pd.DataFrame([y for _, y in series.Occupancy()]).astype(float).to_numpy()
    return rows(table[:, :3], table[:, 3])


def bank(generator: Generator) -> Iterable[Event]:
    """Return the daily return of a bank's stock, given others of the same day, in the order of time."""
    for x, _ in datasets.SP500Stocks():
        yield x, x.pop("JPM")


def market(generator: Generator) -> Iterable[Event]:
    """Return whether stocks rise on the next day, which the returns of a day hardly say."""
    for x, y in datasets.SP500Stocks():
        yield x, y > 0.0


def in_turn(make: Callable[[int, int], Any], variants: Iterable[int], each: int) -> Callable[[int], Iterable[Any]]:
    """Return a stream in which variants of one of River's generators replace each other abruptly."""
    return lambda seed: itertools.chain.from_iterable(make(variant, seed + i).take(each)
                                                      for i, variant in enumerate(variants))  # fmt: skip


def mixed(seed: int) -> Iterable[Any]:
    """Return River's Mixed, whose labels change sides between the rows 1,000 and 3,000."""
    return synth.ConceptDriftStream(
        synth.Mixed(0, seed=seed), synth.Mixed(1, seed=seed + 1), position=2000, width=1000, seed=seed
    ).take(6000)


def turned_planes(generator: Generator) -> Iterable[Event]:
    """Return River's Planes2D in random directions."""
    events = list(synth.Planes2D(seed=int(generator.integers(2**31))).take(10_000))
    X = np.array([list(x.values()) for x, _ in events], float)
    return rows(turned(generator, X), np.array([y for _, y in events]))


def thinned_mv(generator: Generator) -> Iterator[Event]:
    """Return River's Mv, with its text, and 15 % of its values missing."""
    for x, y in synth.Mv(seed=int(generator.integers(2**31))).take(10_000):
        yield {str(name): value for name, value in x.items() if generator.random() >= 0.15}, y


SUITE_B: dict[str, Stream] = {
    # classes, of known laws
    "xor": of_law(CLASSES, laws.xor, 10_000),
    "checkerboard": of_law(CLASSES, laws.checkerboard, 10_000),
    "spirals": of_law(CLASSES, laws.spirals, 5000),
    "waves": of_law(CLASSES, laws.waves, 20_000, LARGE),
    "conjunctions": of_law(CLASSES, laws.conjunctions, 5000),
    "parity": of_law(CLASSES, laws.parity, 3000),
    "clusters": of_law(CLASSES, laws.clusters, 10_000),
    "ordered": of_law(CLASSES, laws.ordered, 5000),
    "rare": of_law(CLASSES, laws.rare, 20_000, LARGE),
    "turning": of_law(CLASSES, laws.turning, 12_000),
    "visitors": of_law(CLASSES, laws.visitors, 10_000),
    "words": of_law(CLASSES, laws.words, 3000),
    "waves_300": of_law(CLASSES, laws.waves, 300, SMALL),
    "clusters_late": of_law(CLASSES, laws.clusters, 5000, delay=500),
    # classes, of generators
    "agrawal_6": of_river(CLASSES, lambda seed: synth.Agrawal(6, seed=seed, perturbation=0.1).take(10_000)),
    "agrawal_8_9": of_river(CLASSES, in_turn(lambda kind, seed: synth.Agrawal(kind, seed=seed), (8, 9), 3000)),
    "stagger": of_river(CLASSES, in_turn(lambda kind, seed: synth.STAGGER(kind, seed=seed), (0, 1, 2, 0), 1000)),
    "mixed": of_river(CLASSES, mixed),
    "random_tree": of_river(
        CLASSES, lambda seed: synth.RandomTree(seed, seed + 1, n_classes=3, n_cat_features=2).take(10_000)
    ),
    "deep_tree": of_river(
        CLASSES, lambda seed: synth.RandomTree(seed, seed + 1, n_cat_features=0, max_tree_depth=8).take(20_000), LARGE
    ),
    "led_noise": of_river(CLASSES, lambda seed: synth.LED(seed, noise_percentage=0.2).take(5000)),
    "hyperplane_20": of_river(
        CLASSES, lambda seed: synth.Hyperplane(seed, 20, n_drift_features=10, mag_change=0.01).take(10_000)
    ),
    "sea_recurring": of_river(
        CLASSES, in_turn(lambda kind, seed: synth.SEA(kind, noise=0.2, seed=seed), (1, 2, 1, 2), 2500)
    ),
    "waveform_40": of_river(CLASSES, lambda seed: synth.Waveform(seed, has_noise=True).take(5000)),
    "many_blobs": of_river(
        CLASSES, lambda seed: synth.RandomRBF(seed, seed + 1, n_features=4, n_centroids=200).take(20_000), LARGE
    ),
    "moving_blobs_late": of_river(
        CLASSES,
        lambda seed: synth.RandomRBFDrift(seed, seed + 1, 3, 6, 20, 0.0002, n_drift_centroids=20).take(10_000),
        delay=200,
    ),
    "anomalies": of_river(CLASSES, lambda seed: synth.AnomalySine(5000, 300, seed=seed)),
    "quadrics": of_sklearn(
        CLASSES,
        lambda seed: batch_datasets.make_gaussian_quantiles(
            n_samples=5000, n_features=6, n_classes=3, random_state=seed
        ),
    ),
    "hastie": of_sklearn(CLASSES, lambda seed: batch_datasets.make_hastie_10_2(10_000, random_state=seed)),
    "cubes": of_sklearn(
        CLASSES,
        lambda seed: batch_datasets.make_classification(
            10_000,
            20,
            n_informative=6,
            n_redundant=4,
            n_classes=4,
            n_clusters_per_class=3,
            flip_y=0.05,
            random_state=seed,
        ),
    ),
    # classes, of data
    "iris": of_table(CLASSES, sklearn_table(batch_datasets.load_iris), draws=SMALL),
    "wine_noisy": of_table(CLASSES, sklearn_table(batch_datasets.load_wine), noisy, draws=SMALL),
    "breast_gaps": of_table(CLASSES, sklearn_table(batch_datasets.load_breast_cancer), with_gaps, draws=SMALL),
    "digits_turned": of_table(CLASSES, parity_of_digits, turned),
    "phishing_noisy": of_table(CLASSES, lambda: river_table(datasets.Phishing), noisy),
    "bananas_noisy": of_table(CLASSES, lambda: river_table(datasets.Bananas), turned, noisy),
    "segments_turned": of_table(CLASSES, lambda: river_table(datasets.ImageSegments), turned),
    "shuttle_turned": of_table(CLASSES, halved_shuttle, turned),
    "yeast": of_table(CLASSES, lambda: river_table(datasets.Yeast, "Class3")),
    "photographs": of_law(CLASSES, photographs, 10_000),
    "market": Stream(CLASSES, market),
    # numbers, of known laws
    "recurring": of_law(NUMBERS, laws.recurring, 9000),
    "partly_changed": of_law(NUMBERS, laws.partly_changed, 5000),
    "new_units": of_law(NUMBERS, laws.new_units, 5000),
    "wandering": of_law(NUMBERS, laws.wandering, 10_000),
    "wandering_late": of_law(NUMBERS, laws.wandering, 5000, delay=100),
    "counts": of_law(NUMBERS, laws.counts, 10_000),
    "heavy_tails": of_law(NUMBERS, laws.heavy_tails, 10_000),
    "skewed": of_law(NUMBERS, laws.skewed, 10_000),
    "boxes": of_law(NUMBERS, laws.boxes, 10_000),
    "copies": of_law(NUMBERS, laws.copies, 5000),
    "copies_300": of_law(NUMBERS, laws.copies, 300, SMALL),
    "few_of_many": of_law(NUMBERS, laws.few_of_many, 2000),
    "mackey_glass": of_law(NUMBERS, laws.mackey_glass, 5000),
    "towns": of_law(NUMBERS, laws.towns, 10_000),
    "gaps": of_law(NUMBERS, laws.gaps, 10_000),
    # numbers, of generators
    "planes_turned": Stream(NUMBERS, turned_planes),
    "mv_gaps": Stream(NUMBERS, thinned_mv),
    "friedman_2": of_sklearn(NUMBERS, lambda seed: batch_datasets.make_friedman2(5000, noise=100.0, random_state=seed)),
    "friedman_3": of_sklearn(NUMBERS, lambda seed: batch_datasets.make_friedman3(5000, noise=0.1, random_state=seed)),
    "swiss_roll": of_sklearn(NUMBERS, lambda seed: batch_datasets.make_swiss_roll(5000, noise=0.5, random_state=seed)),
    # numbers, of data
    "patients": Stream(NUMBERS, patients, draws=SMALL),
    "terrain": of_law(NUMBERS, terrain, 20_000, LARGE),
    "pixels": of_law(NUMBERS, pixels, 10_000),
    "oil": Stream(NUMBERS, oil),
    "office": Stream(NUMBERS, office),
    "bank": Stream(NUMBERS, bank),
}
