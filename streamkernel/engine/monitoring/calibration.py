"""Calibration of a classifier: the accuracy of its predictions by their probability."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkernel.engine.telemetry.quality import WINDOW

BINS = 10


class Reliability(NamedTuple):
    """A reliability table, and the expected calibration error.

    Parameters
    ----------
    error
        The expected calibration error: the mean over predictions of the distance between confidence and accuracy of
        their bin; ``None`` before the first label.
    bins
        For each bin of the predicted probability that is not empty: the number of predictions, their mean probability,
        and their accuracy.
    """

    error: float | None
    bins: tuple[tuple[int, float, float], ...]


class Calibration:
    """Compares the probabilities of predictions with their accuracy, over the last `WINDOW` labels.

    References
    ----------
    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.

    Examples
    --------
    >>> calibration = Calibration()
    >>> calibration.add([(0.95, True), (0.95, True), (0.65, False), (0.55, True)])
    >>> found = calibration.reliability()
    >>> round(found.error, 4), found.bins[-1]
    (0.3, (2, 0.95, 1.0))
    """

    def __init__(self) -> None:
        self._recent: deque[Sequence[float]] = deque(maxlen=WINDOW)

    def add(self, judged: Sequence[tuple[float, bool]]) -> None:
        """Add pairs of the probability of a prediction and whether it was correct."""
        self._recent.extend(judged)

    def reliability(self) -> Reliability:
        """Return the table of the last labels."""
        if not self._recent:
            return Reliability(None, ())
        confidence, right = self._array().T
        places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
        n, sums, hits = (np.bincount(places, weights, BINS) for weights in (None, confidence, right))
        error = float(np.abs(hits - sums).sum() / n.sum())
        bins = tuple((int(n[i]), float(sums[i] / n[i]), float(hits[i] / n[i])) for i in np.flatnonzero(n))
        return Reliability(error, bins)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"recent": self._array()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state`."""
        self._recent = deque(state["recent"].tolist(), maxlen=WINDOW)

    def _array(self) -> npt.NDArray[np.float64]:
        return np.array(self._recent, np.float64).reshape(-1, 2)
