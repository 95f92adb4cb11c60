"""Drift detection: changes of the joint distribution alone, beside River's detectors on each feature.

A stream changes once, after 4,000 events, and goes on for 2,000. In all but the last two streams each feature by itself
has exactly the same distribution before and after. River's detectors watch one feature each, with their defaults, and
an alarm of any of them counts. "after" is the share of runs with an alarm in the 2,000 events after the change, and
"before" of those with one in the 2,000 events before it, which is what chance alone detects; "false" is the number
of alarms in the 4,000 events before, a run. The delay is that of the first alarm after the change.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from river import base, drift

from benchmarks.common import arguments, show
from streamkernel import KernelDriftDetector

BEFORE, AFTER = 4000, 2000


def correlation(generator: np.random.Generator, n: int, changed: bool, pairs: int = 1) -> np.ndarray:
    """Return pairs of normal features whose correlation of 0.7 changes its sign."""
    X = generator.normal(size=(n, 2 * pairs))
    X[:, 1::2] = 0.51**0.5 * X[:, 1::2] + (-0.7 if changed else 0.7) * X[:, ::2]
    return X


def signs(generator: np.random.Generator, n: int, changed: bool) -> np.ndarray:
    """Return three normal features; the product of their signs changes. Any two of them are independent."""
    X = generator.normal(size=(n, 3))
    X[:, 2] = np.abs(X[:, 2]) * np.sign(X[:, 0] * X[:, 1]) * (-1.0 if changed else 1.0)
    return X


def ring(generator: np.random.Generator, n: int, changed: bool) -> np.ndarray:
    """Return points on a ring, then points with coordinates of two different points on it."""
    first, second = generator.uniform(0.0, 2.0 * np.pi, (2, n))
    X = np.stack([np.cos(first), np.sin(second if changed else first)], axis=1)
    return X + 0.1 * generator.normal(size=(n, 2))


def pairing(generator: np.random.Generator, n: int, changed: bool) -> np.ndarray:
    """Return ten normal features, correlated by 0.7 in neighbouring pairs, then in pairs that are further apart."""
    X = correlation(generator, n, False, pairs=5)
    return X[:, [0, 3, 2, 5, 4, 7, 6, 9, 8, 1]] if changed else X


def shift(generator: np.random.Generator, n: int, changed: bool, features: int = 2) -> np.ndarray:
    """Return normal features, one of which grows by its standard deviation."""
    X = generator.normal(size=(n, features))
    X[:, 0] += changed
    return X


STREAMS: dict[str, Callable[[np.random.Generator, int, bool], np.ndarray]] = {
    "correlation flips, 2 features": correlation,
    "5 correlations flip, 10 features": lambda *args: correlation(*args, pairs=5),
    "sign of a product, 3 features": signs,
    "ring to independent, 2 features": ring,
    "pairs permuted, 10 features": pairing,
    "one of 2 features shifts": shift,
    "one of 10 features shifts": lambda *args: shift(*args, features=10),
}


class Each:
    """One detector for each feature.

    Parameters
    ----------
    make
        Returns a detector for one number.
    features
        The number of events.
    """

    def __init__(self, make: Callable[[], base.DriftDetector], features: int) -> None:
        self.detectors = [make() for _ in range(features)]
        self.drift_detected = False

    def update(self, x: dict[int, float]) -> None:
        """Take the next event."""
        for detector, value in zip(self.detectors, x.values(), strict=True):
            detector.update(value)
        self.drift_detected = any(detector.drift_detected for detector in self.detectors)


DETECTORS: dict[str, Callable[[int, int], KernelDriftDetector | Each]] = {
    "KernelDriftDetector()": lambda seed, features: KernelDriftDetector(seed=seed),
    "ADWIN": lambda seed, features: Each(drift.ADWIN, features),
    "KSWIN": lambda seed, features: Each(lambda: drift.KSWIN(seed=seed), features),
    "PageHinkley": lambda seed, features: Each(drift.PageHinkley, features),
}


def alarms(detector: KernelDriftDetector | Each, X: np.ndarray) -> list[int]:
    """Return when a detector raised an alarm."""
    found = []
    for t, row in enumerate(X.tolist()):
        detector.update(dict(enumerate(row)))
        if detector.drift_detected:
            found.append(t)
    return found


def main() -> None:
    """Print detection rate, median delay, false alarms and speed of every detector on every stream."""
    options = arguments(__doc__, seeds=5)
    alarms(KernelDriftDetector(window=2), np.random.default_rng(0).normal(size=(300, 2)))  # compiles
    for title, stream in STREAMS.items():
        rows = []
        for name, make in DETECTORS.items():
            delays, before, false, rates = [], 0, [], []
            for seed in range(options.seeds):
                generator = np.random.default_rng(seed)
                X = np.concatenate([stream(generator, BEFORE, False), stream(generator, AFTER, True)])
                detector = make(seed, X.shape[1])
                began = time.perf_counter()
                found = alarms(detector, X)
                rates.append(len(X) / (time.perf_counter() - began))
                false.append(sum(t < BEFORE for t in found))
                before += any(BEFORE - AFTER <= t < BEFORE for t in found)
                delays.extend([t - BEFORE for t in found if t >= BEFORE][:1])
            delay = f"{statistics.median(delays):,.0f}" if delays else "-"
            shares = (f"{n / options.seeds:.0%}" for n in (len(delays), before))
            rows.append([name, *shares, delay, f"{statistics.mean(false):.1f}", f"{statistics.median(rates):,.0f}"])
        show(title, ["detector", "after", "before", "median delay", "false", "events/s"], rows)


if __name__ == "__main__":
    main()
