"""Drift detection on the inputs and the model's scores, without labels.

The detectors receive a sample of the events in order. The position of an event alone decides whether it is in the
sample, so neither restarts nor batch sizes change it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import structlog
from river.drift import ADWIN

from streamkernel.engine.pipelines import Answer
from streamkernel.estimators.drift import KernelDriftDetector
from streamkernel.estimators.internals import read_probabilities

LARGEST = 10.0
"""The largest distance from the mean, in deviations."""

Row = dict[Any, Any]
Scales = dict[str, tuple[float, float] | None]
"""The mean and the deviation of a field; ``None`` for texts."""

FIRST = 256
"""Number of rows from which means and deviations are estimated before the detectors start."""

SCORE = "(score)"
"""The name of the model's score: the probability of the predicted class, or the predicted number."""

ALARMS, MOVED = 20, 3
"""Number of alarms that are kept, and of fields that an alarm names."""

log = structlog.get_logger("streamkernel")


def fields_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None, most: int) -> list[str]:
    """Return the named fields that are in the rows, or else the first fields of the rows."""
    present = list(dict.fromkeys(name for row in rows for name in row))
    return [name for name in names or present[:most] if name in present]


def scales_of(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> Scales:
    """Return the scales of the fields with these names, as far as the rows have them.

    Examples
    --------
    >>> scales_of([{"a": 1.0, "b": "x"}, {"a": 3.0}, {"a": None}], ["a", "b", "c"])
    {'a': (2.0, 1.0), 'b': None}
    """
    scales: Scales = {}
    for name in names:
        values = [value for row in rows if (value := row.get(name)) is not None]
        if any(isinstance(value, str) for value in values):
            scales[name] = None
        elif values:
            scales[name] = float(np.mean(values)), float(np.std(values)) or 1.0
    return scales


def scaled(row: Mapping[str, Any], scales: Scales) -> Row:
    """Return the fields of a row that have scales; a text where numbers were is missing.

    Examples
    --------
    >>> scaled({"a": 4.0, "b": 7, "c": 1.0}, {"a": (2.0, 1.0), "b": None})
    {'a': 2.0, 'b': '7'}
    >>> scaled({"a": 1e9, "b": -1e9}, {"a": (2.0, 1.0), "b": (2, 1)})
    {'a': 10.0, 'b': -10.0}
    """
    scaled_row: Row = {}
    for name, scale in scales.items():
        value = row.get(name)
        if scale is None:
            if value is not None:
                scaled_row[name] = str(value)
        elif isinstance(value, (float, int)):
            distance = (value - scale[0]) / scale[1]
            scaled_row[name] = distance if -LARGEST <= distance <= LARGEST else math.copysign(LARGEST, distance)
    return scaled_row


class DriftSnapshot(NamedTuple):
    """The number of alarms by detector, the last alarms, and the kernel detector's evidence."""

    counts: Mapping[str, int]
    alarms: Sequence[Mapping[str, Any]]
    evidence: float | None

    def rows(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {"counts": dict(self.counts), "alarms": list(self.alarms), "evidence": self.evidence}


class DriftWatch:
    """Raises an alarm where the distribution of inputs or scores changes.

    After an alarm, all detectors restart, with the next rows as their reference.

    `detectors` are ``"kernel"``, a `KernelDriftDetector` on all fields together, and ``"adwin"``, River's ADWIN on each
    numeric field and on the score. `fields` are the inputs, ``None`` for the first ones of the stream, and `most` their
    maximum number. `scores` says whether the detectors also receive the model's scores. `every` is the sampling
    interval: 16 takes the first of every 16 events. `average_run_length` is the lower bound of the mean number of
    sampled events until a false alarm of the kernel detector. `delta` is the one of ADWIN, which is divided by the
    number of monitored fields.
    """

    def __init__(
        self,
        *,
        detectors: Sequence[str] = ("kernel", "adwin"),
        fields: Sequence[str] | None = None,
        most: int = 20,
        scores: bool = True,
        every: int = 16,
        average_run_length: float = 1_000_000.0,
        delta: float = 0.002,
        forget: bool = False,
    ) -> None:
        self._detectors, self._given, self._most, self.scores = tuple(detectors), fields, most, scores
        self._every, self._run_length, self._delta, self._forget = every, average_run_length, delta, forget
        self._predicted = 0
        self._sampled: list[tuple[dict[str, Any], Answer]] = []  # not evaluated yet
        self._alarms: deque[dict[str, Any]] = deque(maxlen=ALARMS)
        self._counts = dict.fromkeys(self._detectors, 0)
        self._evaluated = 0
        self._wants_to_forget = False
        self._before: list[Row] = []
        self._recent: deque[Row] = deque(maxlen=FIRST // 2)
        self._scales: Scales = {}
        self._kernel: KernelDriftDetector | None = None
        self._adwins: dict[str, ADWIN] = {}

    @property
    def until_check(self) -> float:
        """Number of predicted events until the model may be reset."""
        span = self._every * 16
        return span - self._predicted % span if self._forget else math.inf

    @property
    def n_waiting(self) -> int:
        """Number of sampled events that are not evaluated yet."""
        return len(self._sampled)

    def is_in_sample(self, more: int) -> bool:
        """Return whether the next event is in the sample, after `more` that have yet to be added."""
        return (self._predicted + more) % self._every == 0

    def add_all(self, xs: Sequence[dict[str, Any]], answers: Sequence[Answer]) -> None:
        """Add the features of new events, and the answers."""
        every, first = self._every, -self._predicted % self._every
        self._sampled += zip(xs[first::every], map(self._with_score, answers[first::every]), strict=True)
        self._predicted += len(xs)

    def fold(self) -> None:
        """Pass the events that were added to the detectors."""
        sampled, self._sampled = self._sampled, []
        done = 0
        while done < len(sampled):
            if len(self._before) == FIRST:
                rows = [scaled(self._row(x, answer), self._scales) for x, answer in sampled[done:]]
                done += self._detect(rows)
                continue
            self._evaluated += 1
            self._before.append(self._row(*sampled[done]))
            done += 1
            if len(self._before) == FIRST:
                self._start_detectors()

    def has_to_forget(self) -> bool:
        """Return whether the model must be reset, after an alarm since the last call."""
        if self._forget:
            self.fold()
        has_to_forget, self._wants_to_forget = self._wants_to_forget, False
        return has_to_forget

    def snapshot(self) -> DriftSnapshot:
        """Return the current figures."""
        self.fold()
        evidence = None if self._kernel is None else self._kernel.statistic
        return DriftSnapshot(dict(self._counts), tuple(self._alarms), evidence)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        self.fold()
        return {
            "setup": self._setup(),
            "predicted": self._predicted,
            "evaluated": self._evaluated,
            "alarms": list(self._alarms),
            "counts": self._counts,
            "wants_to_forget": self._wants_to_forget,
            "before": self._before,
            "recent": list(self._recent),
            "scales": self._scales,
            "kernel": self._kernel,
            "adwins": self._adwins,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state`, unless that was of another configuration."""
        if state["setup"] != self._setup():
            return
        self._sampled = []
        self._predicted, self._evaluated = state["predicted"], state["evaluated"]
        self._alarms, self._counts = deque(state["alarms"], maxlen=ALARMS), state["counts"]
        self._wants_to_forget, self._before = state["wants_to_forget"] and self._forget, state["before"]
        self._recent, self._scales = deque(state["recent"], maxlen=FIRST // 2), state["scales"]
        self._kernel, self._adwins = state["kernel"], state["adwins"]

    def _setup(self) -> list[Any]:
        fields = None if self._given is None else list(self._given)
        numbers = [self._most, self.scores, self._every, self._run_length, self._delta]
        return [list(self._detectors), fields, *numbers]

    def _start_detectors(self) -> None:
        """Choose fields and scales by the first rows, and start the detectors."""
        inputs = [{name: value for name, value in row.items() if name != SCORE} for row in self._before]
        names = fields_of(inputs, self._given, self._most)
        self._scales = scales_of(self._before, (*names, *((SCORE,) if self.scores else ())))
        self._before = [scaled(row, self._scales) for row in self._before]
        if "kernel" in self._detectors:
            self._kernel = KernelDriftDetector(average_run_length=self._run_length)
        if "adwin" in self._detectors:
            numeric = [name for name, scale in self._scales.items() if scale is not None]
            self._adwins = {name: ADWIN(delta=self._delta / len(numeric)) for name in numeric}

    def _with_score(self, answer: Answer) -> Answer:
        """Return an answer with its probabilities, if they are needed."""
        return answer[0], read_probabilities(answer[1]) if self.scores else None

    def _row(self, x: Mapping[str, Any], answer: Answer) -> Row:
        """Return the fields of an event, with the score of the answer if it has one."""
        names = self._scales or self._given or list(x)[: self._most]
        row = {name: x[name] for name in names if name in x}
        prediction = answer[0]
        if not self.scores or isinstance(prediction, dict):  # several targets have no score
            return row
        probabilities = answer[1]
        if probabilities and prediction is not None:
            row[SCORE] = probabilities[prediction]
        elif isinstance(prediction, float):
            row[SCORE] = prediction
        return row

    def _detect(self, rows: Sequence[Row]) -> int:
        """Pass rows to the detectors, up to the first alarm; return the number of these rows."""
        before, field = self._until_adwin(rows)
        n = before + (field is not None)
        alarm: tuple[str, str | None] | None = None if field is None else ("adwin", field)
        if self._kernel is not None:
            inputs = [{name: value for name, value in row.items() if name != SCORE} for row in rows[:before]]
            done = self._kernel.update_many(inputs)
            if self._kernel.drift_detected:
                n, alarm = done, ("kernel", None)
        self._evaluated += n
        self._recent.extend(rows[:n])
        if alarm is not None:
            self._raise(*alarm)
        return n

    def _until_adwin(self, rows: Sequence[Row]) -> tuple[int, str | None]:
        """Return the number of rows before the first alarm of ADWIN, and its field, ``None`` if there is no alarm."""
        for i, row in enumerate(rows):
            for name, adwin in self._adwins.items():
                if name in row:
                    adwin.update(1.0 / (1.0 + math.exp(-row[name])))
                    if adwin.drift_detected:
                        return i, name
        return len(rows), None

    def _raise(self, detector: str, field: str | None) -> None:
        """Record an alarm, and restart the detectors."""
        moved = moved_fields(self._before, list(self._recent))
        moved.sort(key=lambda one: one["field"] != field)
        event = (self._evaluated - 1) * self._every + 1
        self._alarms.append({"event": event, "detector": detector, "moved": moved[:MOVED]})
        self._counts[detector] += 1
        self._wants_to_forget = self._forget
        names = [one["field"] for one in moved[:MOVED]]
        log.warning("the stream has changed", event_number=event, detector=detector, fields=names)
        self._before, self._scales, self._kernel, self._adwins = [], {}, None, {}
        self._recent.clear()


def moved_fields(before: Sequence[Row], after: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the numeric fields in descending order of their change, in standard deviations of the earlier rows.

    The change of a field is the largest change of its mean, its deviation, and half its correlation with
    another field.

    Examples
    --------
    >>> before = [{"a": i % 7, "b": i % 5} for i in range(100)]
    >>> moved_fields(before, [{"a": i % 7, "b": 9 - i % 5} for i in range(100)])[0]["field"]
    'b'
    """
    names = [name for name, value in before[0].items() if not isinstance(value, str)]
    old, new = (
        np.array([[row.get(name, 0.0) for name in names] for row in rows], np.float64) for rows in (before, after)
    )
    if not len(new) or not names:
        return []
    width = np.where(old.std(axis=0) > 0.0, old.std(axis=0), 1.0)
    shift = (new.mean(axis=0) - old.mean(axis=0)) / width
    spread = (new.std(axis=0) - old.std(axis=0)) / width
    turned = np.abs(_correlations(new) - _correlations(old))
    distance = np.maximum(np.maximum(np.abs(shift), np.abs(spread)), turned.max(axis=0))
    return [
        {
            "field": names[i],
            "shift": float(shift[i]),
            "spread": float(spread[i]),
            "correlation": float(turned[i].max()),
            "with": names[int(turned[i].argmax())] if turned[i].max() > 0.0 else None,
        }
        for i in np.argsort(-distance, kind="stable")
    ]


def _correlations(rows: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return half the correlations of columns, 0 where one is constant."""
    centred = rows - rows.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    scaled = centred / np.where(length > 0.0, length, 1.0)
    correlations: np.ndarray[Any, np.dtype[np.float64]] = 0.5 * scaled.T @ scaled
    np.fill_diagonal(correlations, 0.0)
    return correlations
