"""Known laws from which ``benchmarks.suite_b`` draws streams; the same generator always gives the same rows.

A law takes a random generator and a number of rows, and returns inputs and targets. Where a docstring names the Bayes
accuracy, no model can exceed it. R² of numbers is limited by the variance of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Generator = np.random.Generator
Table = tuple[np.ndarray, np.ndarray]
Event = tuple[dict[str, Any], Any]


def flipped(generator: Generator, labels: np.ndarray, classes: int, share: float) -> np.ndarray:
    """Return the labels, a share of which is replaced by classes drawn at random."""
    drawn = generator.integers(classes, size=len(labels))
    return np.where(generator.random(len(labels)) < share, drawn, labels)


def chance(generator: Generator, logits: np.ndarray) -> np.ndarray:
    """Return True with the probabilities that have these logits."""
    return generator.random(len(logits)) < 1.0 / (1.0 + np.exp(-logits))


def xor(generator: Generator, n: int) -> Table:
    """Return the sign of a product of two inputs among ten; Bayes accuracy 0.9."""
    X = generator.uniform(-1.0, 1.0, (n, 10))
    return X, flipped(generator, (X[:, 0] * X[:, 1] > 0.0).astype(int), 2, 0.2)


def checkerboard(generator: Generator, n: int) -> Table:
    """Return the colours of a board of 4 x 4 fields; Bayes accuracy 0.95."""
    X = generator.random((n, 2))
    return X, flipped(generator, np.floor(4.0 * X).sum(axis=1).astype(int) % 2, 2, 0.1)


def spirals(generator: Generator, n: int) -> Table:
    """Return points on three spirals whose arms blur."""
    arm, radius = generator.integers(3, size=n), np.sqrt(generator.random(n))
    angle = 2.0 * np.pi * (arm / 3.0 + 1.5 * radius) + 0.4 * generator.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), arm


def waves(generator: Generator, n: int) -> Table:
    """Return labels whose log-odds have a wave, a product and a square of six inputs."""
    X = generator.normal(size=(n, 6))
    return X, chance(generator, 3.0 * np.sin(3.0 * X[:, 0]) + 2.0 * X[:, 1] * X[:, 2] - X[:, 3] ** 2 + 1.0)


def conjunctions(generator: Generator, n: int) -> Table:
    """Return whether one of three conjunctions of 15 flags is true; Bayes accuracy 0.95."""
    X = generator.integers(2, size=(n, 15))
    a, b, c, d, e, f, g = X[:, :7].astype(bool).T
    return X, flipped(generator, (a & b | c & d & e | f & ~g).astype(int), 2, 0.1)


def parity(generator: Generator, n: int) -> Table:
    """Return the parity of three flags among eight; Bayes accuracy 0.95."""
    X = generator.integers(2, size=(n, 8))
    return X, flipped(generator, X[:, :3].sum(axis=1) % 2, 2, 0.1)


def clusters(generator: Generator, n: int) -> Table:
    """Return five normal classes of eight inputs, each with a mean and a covariance of its own."""
    law = np.random.default_rng(5)
    means, shapes = 1.2 * law.normal(size=(5, 8)), 0.5 * law.normal(size=(5, 8, 8))
    y = generator.choice(5, size=n, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    return means[y] + np.einsum("nij,nj->ni", shapes[y], generator.normal(size=(n, 8))), y


def ordered(generator: Generator, n: int) -> Table:
    """Return four classes in an order, cut from a smooth function with noise."""
    X = generator.uniform(-2.0, 2.0, (n, 5))
    height = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.4 * X[:, 2] * X[:, 3] + 0.3 * generator.normal(size=n)
    return X, np.digitize(height, [-1.0, 0.0, 1.0])


def rare(generator: Generator, n: int) -> Table:
    """Return a class that is common only within a small ball of three inputs among eight."""
    X = generator.normal(size=(n, 8))
    return X, (np.sum((X[:, :3] - 1.0) ** 2, axis=1) < 1.0) & (generator.random(n) < 0.9)


def turning(generator: Generator, n: int) -> Table:
    """Return the sides of a boundary that turns once in 4,000 rows; Bayes accuracy 0.95."""
    X, angle = generator.normal(size=(n, 5)), 2.0 * np.pi * np.arange(n) / 4000.0
    side = np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1] + 0.3 * X[:, 2] * X[:, 3]
    return X, flipped(generator, (side > 0.0).astype(int), 2, 0.1)


def recurring(generator: Generator, n: int) -> Table:
    """Return two functions that replace each other every 1,500 rows."""
    X, is_first = generator.normal(size=(n, 6)), np.arange(n) // 1500 % 2 == 0
    wave = np.sin(2.0 * X[:, 0])
    return X, np.where(is_first, wave + X[:, 1] * X[:, 2], X[:, 3] - wave) + 0.3 * generator.normal(size=n)


def partly_changed(generator: Generator, n: int) -> Table:
    """Return a function that changes after 1,500 rows where the first input is positive, and nowhere else."""
    X = generator.uniform(-1.0, 1.0, (n, 4))
    changed = (np.arange(n) >= 1500) & (X[:, 0] > 0.0)
    wave = np.sin(4.0 * X[:, 1] + 2.0 * X[:, 2])
    return X, np.where(changed, X[:, 3] - wave, wave) + 0.2 * generator.normal(size=n)


def new_units(generator: Generator, n: int) -> Table:
    """Return a function of temperatures that come in other units after 1,500 rows."""
    X = generator.normal(size=(n, 5)) * [8.0, 8.0, 1.0, 1.0, 1.0] + [15.0, 15.0, 0.0, 0.0, 0.0]
    y = np.sin(X[:, 0] / 4.0) + 0.1 * X[:, 1] * X[:, 2] + X[:, 3] + 0.3 * generator.normal(size=n)
    X[1500:, :2] = 1.8 * X[1500:, :2] + 32.0
    return X, y


def wandering(generator: Generator, n: int) -> Table:
    """Return a function on a level that wanders."""
    X, level = generator.normal(size=(n, 4)), np.cumsum(0.1 * generator.normal(size=n))
    return X, level + np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * generator.normal(size=n)


def counts(generator: Generator, n: int) -> Table:
    """Return Poisson counts whose rate is the exponential of a function."""
    X = generator.normal(size=(n, 6))
    return X, generator.poisson(np.exp(1.0 + np.sin(2.0 * X[:, 0]) + 0.4 * X[:, 1])).astype(float)


def heavy_tails(generator: Generator, n: int) -> Table:
    """Return a function with noise of Student's t, three degrees of freedom."""
    X = generator.normal(size=(n, 5))
    return X, 3.0 * np.sin(X[:, 0]) + X[:, 1] * np.abs(X[:, 2]) + 0.5 * generator.standard_t(3.0, size=n)


def skewed(generator: Generator, n: int) -> Table:
    """Return a function of logarithms of inputs with long tails."""
    X = generator.lognormal(sigma=1.5, size=(n, 5))
    return X, np.log(X[:, 0] * X[:, 1]) + 2.0 * (X[:, 2] > X[:, 3]) + 0.5 * generator.normal(size=n)


def boxes(generator: Generator, n: int) -> Table:
    """Return a function that is constant in boxes of three inputs among six."""
    X, heights = generator.random((n, 6)), np.random.default_rng(6).normal(size=(4, 3, 2))
    a, b, c = (X[:, :3] * [4, 3, 2]).astype(int).T
    return X, heights[a, b, c] + 0.3 * generator.normal(size=n)


def copies(generator: Generator, n: int) -> Table:
    """Return a function of four hidden numbers, of which 20 inputs are mixtures."""
    hidden, mixing = generator.normal(size=(n, 4)), np.random.default_rng(7).normal(size=(4, 20))
    y = np.sin(hidden[:, 0] * hidden[:, 1]) + hidden[:, 2] + 0.2 * generator.normal(size=n)
    return hidden @ mixing + 0.05 * generator.normal(size=(n, 20)), y


def few_of_many(generator: Generator, n: int) -> Table:
    """Return a linear function of five inputs among 100."""
    X = generator.normal(size=(n, 100))
    return X, X[:, :5] @ [2.0, -1.5, 1.0, 0.5, -0.5] + generator.normal(size=n)


def mackey_glass(generator: Generator, n: int) -> Table:
    """Return the chaotic series of Mackey and Glass, observed with noise, and its last observations as inputs."""
    series = [0.5 + generator.random()] * 18
    while len(series) < n + 600:
        series.append(0.9 * series[-1] + 0.2 * series[-18] / (1.0 + series[-18] ** 10))
    observed = np.array(series[500:]) + 0.02 * generator.normal(size=len(series) - 500)
    past = np.lib.stride_tricks.sliding_window_view(observed, 25)[:n]
    return past[:, :19:6], past[:, 24]


def towns(generator: Generator, n: int) -> Iterator[Event]:
    """Yield prices by town, kind and size; a town and a kind are text."""
    law = np.random.default_rng(8)
    heights, slopes = law.normal(0.0, 3.0, 40), law.normal(0.0, 2.0, (40, 4))
    for town, kind, size in zip(
        generator.zipf(1.5, n) % 40, generator.integers(4, size=n), generator.random(n), strict=True
    ):
        price = heights[town] + slopes[town, kind] * size + generator.normal()
        yield {"town": f"t{town}", "kind": "abcd"[kind], "size": float(size)}, float(price)


def visitors(generator: Generator, n: int) -> Iterator[Event]:
    """Yield clicks of visitors, many of whom come once; a visitor is text."""
    tastes = np.random.default_rng(9).normal(0.0, 2.0, 1000)
    ids, hours = generator.zipf(1.3, n) % 1000, generator.integers(24, size=n)
    clicks = chance(generator, tastes[ids] + 1.5 * np.sin(2.0 * np.pi * hours / 24.0))
    for visitor, hour, is_click in zip(ids, hours, clicks, strict=True):
        yield {"visitor": f"v{visitor}", "hour": int(hour)}, bool(is_click)


def words(generator: Generator, n: int) -> Iterator[Event]:
    """Yield texts of three topics, each a dictionary with the counts of its words."""
    topics = np.random.default_rng(10).dirichlet(np.full(300, 0.3), 3)
    for topic in generator.integers(3, size=n):
        text = generator.choice(300, size=8, p=0.5 * topics[topic] + 0.5 * topics.mean(axis=0))
        yield (
            {f"w{word}": float(count) for word, count in zip(*np.unique(text, return_counts=True), strict=True)},
            (f"topic {topic}"),
        )


def gaps(generator: Generator, n: int) -> Iterator[Event]:
    """Yield a function of six inputs; a quarter of the values is missing, more of large first ones."""
    X = generator.normal(size=(n, 6))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3] + 0.3 * generator.normal(size=n)
    is_missing = generator.random((n, 6)) < 0.25
    is_missing[:, 0] |= (X[:, 0] > 1.0) & (generator.random(n) < 0.5)
    for row, absent, target in zip(X.tolist(), is_missing, y.tolist(), strict=True):
        yield {f"x{i}": value for i, value in enumerate(row) if not absent[i]}, target
