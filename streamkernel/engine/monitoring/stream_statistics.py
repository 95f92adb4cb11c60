"""Statistics of a sample of the stream: inputs, predictions, and the calibration of probabilities.

The position of an event alone decides whether it is in the sample, so neither restarts nor batch sizes change it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np

from streamkernel.engine.monitoring.field_windows import FieldSummary, FieldWindows
from streamkernel.engine.monitoring.several_metrics import text_of
from streamkernel.engine.pipelines import Answer
from streamkernel.engine.telemetry.quality import WINDOW
from streamkernel.estimators.internals import read_probabilities, read_several

BINS = 10

OF_CLASSES, OF_NUMBERS = ("prediction", "confidence", "entropy"), ("prediction",)
"""The fields of predictions."""


class Reliability(NamedTuple):
    """A reliability table, and the expected calibration error.

    `error` is the mean over predictions of the distance between confidence and accuracy of their bin; ``None`` before
    the first label. `bins` has, for each bin of the predicted probability that is not empty, the number of predictions,
    their mean probability, and their accuracy.
    """

    error: float | None
    bins: tuple[tuple[int, float, float], ...]


def reliability_of(judged: Sequence[Sequence[float]]) -> Reliability:
    """Compare the probabilities of predictions with whether they were correct.

    References
    ----------
    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.

    Examples
    --------
    >>> found = reliability_of([(0.95, True), (0.95, True), (0.65, False), (0.55, True)])
    >>> round(found.error, 4), found.bins[-1]
    (0.3, (2, 0.95, 1.0))
    """
    if not judged:
        return Reliability(None, ())
    confidence, right = np.array(judged, np.float64).T
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    n, sums, hits = (np.bincount(places, weights, BINS) for weights in (None, confidence, right))
    error = float(np.abs(hits - sums).sum() / n.sum())
    bins = tuple((int(n[i]), float(sums[i] / n[i]), float(hits[i] / n[i])) for i in np.flatnonzero(n))
    return Reliability(error, bins)


class StatisticsSnapshot(NamedTuple):
    """Statistics at one moment; any thread may read them.

    `events` is the number of events up to the end of the last full window. `inputs` and `predictions` are, by field,
    the summaries of the reference window and of the last full one. The fields of predictions are ``prediction``, and
    with probabilities ``confidence``, the largest one, and ``entropy`` in nats. `reliability` is of the last labels.
    """

    events: int
    inputs: Mapping[str, tuple[FieldSummary, FieldSummary]]
    predictions: Mapping[str, tuple[FieldSummary, FieldSummary]]
    reliability: Reliability

    def rows(self) -> dict[str, Any]:
        """Return the statistics as JSON values."""
        inputs, predictions = (
            {name: {"reference": before._asdict(), "last": last._asdict()} for name, (before, last) in of.items()}
            for of in (self.inputs, self.predictions)
        )
        calibration = {"error": self.reliability.error, "bins": list(map(list, self.reliability.bins))}
        return {"events": self.events, "inputs": inputs, "predictions": predictions, "calibration": calibration}


class StreamStatistics:
    """Keeps windows of inputs and predictions, and the calibration of probabilities.

    `classes` says whether predictions are classes. `window` is the number of sampled events in a window. `every` is the
    sampling interval: 4 takes the first of every 4 events. `fields` and `most` are the inputs, as for `FieldWindows`.
    """

    def __init__(
        self, *, classes: bool, window: int = 1000, every: int = 1, fields: Sequence[str] | None = None, most: int = 20
    ) -> None:
        self._classes, self._every, self._span = classes, every, window * every
        self._inputs = FieldWindows(window, fields, most)
        self._predictions = FieldWindows(window, OF_CLASSES if classes else OF_NUMBERS)
        self._confidences: deque[Sequence[float]] = deque(maxlen=WINDOW)  # and whether the predictions were correct
        self._predicted = self._labelled = self._events = 0
        self._sampled: list[tuple[dict[str, Any], Answer]] = []  # predictions that are not evaluated yet
        self._judged: list[tuple[Any, Answer]] = []  # labels with their predictions

    @property
    def until_window(self) -> int:
        """Number of predicted events until a window is full."""
        return self._span - self._predicted % self._span

    @property
    def n_waiting(self) -> int:
        """Number of sampled events that are not evaluated yet."""
        return max(len(self._sampled), len(self._judged))

    @property
    def is_full(self) -> bool:
        """Whether a window is full that is not summarized yet."""
        return self._predicted - self._events >= self._span

    def is_in_sample(self, more: int) -> bool:
        """Return whether the next event is in the sample, after `more` that have yet to be added."""
        return (self._predicted + more) % self._every == 0

    def add(self, x: dict[str, Any], y: Any, answer: Answer, is_new: bool) -> None:
        """Add an event: features, the label or ``None``, and the answer, which may have been added before."""
        is_sampled = (self._predicted if is_new else self._labelled) % self._every == 0
        if is_new:
            if is_sampled:
                self._sampled.append((x, _with_probabilities(answer)))
            self._predicted += 1
        if y is not None:
            if is_sampled:
                self._judged.append((y, _with_probabilities(answer)))
            self._labelled += 1

    def add_all(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any], answers: Sequence[Answer]) -> list[Answer]:
        """Add events with their labels and new answers, as `add` does each; at most until the window is full.

        Return the answers, in the sample with the probabilities that were deferred: metrics read many of them.
        """
        every, first = self._every, -self._predicted % self._every
        sampled = answers[first::every]
        probabilities = read_several([answer[1] for answer in sampled])
        read = [(answer[0], p) for answer, p in zip(sampled, probabilities, strict=True)]
        self._sampled += zip(xs[first::every], read, strict=True)
        self._judged += zip(ys[first::every], read, strict=True)
        self._predicted += len(xs)
        self._labelled += len(xs)
        read_answers = list(answers)
        read_answers[first::every] = read
        return read_answers

    def fold(self) -> None:
        """Evaluate the added events; the grouping into calls does not change the results."""
        sampled, self._sampled = self._sampled, []
        judged, self._judged = self._judged, []
        self._inputs.add([x for x, _ in sampled])
        self._predictions.add([self._row(answer) for _, answer in sampled])
        if self._classes:
            labelled = [(y, prediction, p) for y, (prediction, p) in judged if p and prediction is not None]
            self._confidences.extend((p[prediction], y == prediction) for y, prediction, p in labelled)

    def complete(self, important: Callable[[], Iterable[str]]) -> None:
        """Summarize the window, which is full; `important` returns inputs that matter to the model."""
        self.fold()
        self._inputs.complete(important)
        self._predictions.complete()
        self._events = self._predicted

    def snapshot(self) -> StatisticsSnapshot:
        """Return the current statistics."""
        self.fold()
        inputs, predictions = (
            {name: (of.reference[name], of.last[name]) for name in of.last} for of in (self._inputs, self._predictions)
        )
        return StatisticsSnapshot(self._events, inputs, predictions, reliability_of(self._confidences))

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        self.fold()
        return {
            "setup": self._setup(),
            "predicted": self._predicted,
            "labelled": self._labelled,
            "events": self._events,
            "inputs": self._inputs.state(),
            "predictions": self._predictions.state(),
            "calibration": {"recent": np.array(self._confidences, np.float64).reshape(-1, 2)},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, unless its windows were different."""
        if state["setup"] != self._setup():
            return
        self._sampled, self._judged = [], []
        self._predicted, self._labelled, self._events = state["predicted"], state["labelled"], state["events"]
        self._inputs.restore(state["inputs"])
        self._predictions.restore(state["predictions"])
        self._confidences = deque(state["calibration"]["recent"].tolist(), maxlen=WINDOW)

    def _setup(self) -> list[Any]:
        return [self._classes, self._every, self._span, self._inputs.setup]

    def _row(self, answer: Answer) -> dict[str, Any]:
        """Return a prediction as a row of fields; of several targets it has none."""
        prediction, probabilities = answer
        if prediction is None or isinstance(prediction, dict):
            return {}
        if not self._classes:
            return {"prediction": prediction}
        if not probabilities:
            return {"prediction": text_of(prediction)}
        entropy = -sum([p * log(p) for p in probabilities.values() if p > 0.0])
        return {"prediction": text_of(prediction), "confidence": probabilities[prediction], "entropy": entropy}


def _with_probabilities(answer: Answer) -> Answer:
    """Return an answer whose probabilities are no longer deferred."""
    return answer[0], read_probabilities(answer[1])
