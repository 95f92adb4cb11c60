"""A model beside the champion, judged on the same events; its errors are counted and affect nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from streamkernel.engine.checkpoint.packing import pack, unpack
from streamkernel.engine.delayed_labels import DelayedLabels, Key, plain
from streamkernel.engine.pipelines import Answer, most_likely
from streamkernel.engine.retrying import REPORT_SECONDS
from streamkernel.engine.telemetry.input_ranges import LARGEST
from streamkernel.engine.telemetry.quality import Quality, Scores
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.together import answers_of, predict_and_learn
from streamkernel.time_series.history import add_history, history_names, observe

ERROR, LIMIT = 10, 100
"""An error adds the first number to a level, an event without one subtracts 1, and at the second number a challenger is
suspended: after ten consecutive errors, or if more than one event in eleven fails for some time."""

PENDING = 4
"""Values in a pending prediction: key, prediction, probabilities, and inputs from earlier events."""

log = structlog.get_logger("streamkernel")


@dataclass(frozen=True)
class ChallengerSnapshot:
    """A challenger at one moment, immutable for any thread.

    Parameters
    ----------
    name
        Its name.
    scores
        The quality of its predictions.
    judged
        Events whose label was compared with its prediction.
    errors
        Events that it could not predict or learn.
    reason
        The last of these errors, or an empty string.
    is_suspended
        Whether it has stopped learning because of them.
    seconds
        Time that this process spent on it.
    """

    name: str
    scores: Scores
    judged: int
    errors: int
    reason: str
    is_suspended: bool
    seconds: float


class Challenger:
    """A model that predicts and learns the events of a champion.

    Parameters
    ----------
    name
        Its name.
    setup
        Its configuration as plain values.
    model
        A River model of the same kind as the champion, or a pipeline that ends in one.
    quality
        Judges its predictions.
    with_probabilities
        Whether the champion's predictions have probabilities.

    Attributes
    ----------
    pending : dict
        Its predictions for features whose label has not arrived, by key.
    errors : int
        Events that it could not predict or learn.
    is_suspended : bool
        Whether it has stopped learning because of repeated errors.
    """

    def __init__(
        self, name: str, setup: Mapping[str, Any], model: Any, quality: Quality, *, with_probabilities: bool
    ) -> None:
        self.name, self.setup, self.model, self.quality = name, dict(setup), model, quality
        self.errors, self.reason, self.is_suspended = 0, "", False
        self.pending: dict[Key, tuple[Any, Any, dict[str, Any]]] = {}
        self._level = 0
        self._seconds = 0.0
        self._with_probabilities = with_probabilities
        self._next_report = 0.0

    def wait(self, key: Key, x: Mapping[str, Any]) -> None:
        """Predict features whose label has not arrived, and keep the prediction."""
        began = time.perf_counter()
        self.pending.pop(key, None)
        try:
            full = add_history(self.model, x)
            prediction, probabilities = self._answer(full)
            observe(self.model, x)
            more = {name: full[name] for name in history_names(self.model) if name in full}
            self.pending[key] = plain(prediction), plain(probabilities), more
        except MemoryError:
            raise
        except Exception as error:  # the champion continues after any error of a step
            self._fail(error)
        self._seconds += time.perf_counter() - began

    def learn(self, x: Mapping[str, Any], y: Any, w: float, key: Key | None) -> None:
        """Predict an example, or find the prediction that waits under a key, judge it, and learn the example.

        An example that it has not predicted it does not learn, as the champion does not learn dead letters.
        """
        began = time.perf_counter()
        try:
            found = dict(x)
            if key is None:
                answer = self._answer(found)
            elif key in self.pending:
                prediction, probabilities, more = self.pending.pop(key)
                answer = prediction, probabilities
                found |= more
            else:
                return
            self.quality.pairs.append((y, answer[self.quality.kind]))
            if w > 0.0:
                self.model.learn_one(found, y, **({} if w == 1.0 else {"w": w}))
            self._level = max(0, self._level - 1)
        except MemoryError:
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._seconds += time.perf_counter() - began

    def learn_many(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any]) -> None:
        """Predict, judge and learn examples one after the other, as many as possible in one compiled call."""
        began, done = time.perf_counter(), 0
        if isinstance(self.model, KernelModel):
            try:
                scores, _ = predict_and_learn(self.model, list(xs), ys, LARGEST)
                answers = answers_of(self.model, scores, with_probabilities=self._with_probabilities)
                _check_finite(scores.ravel().tolist())
                done, kind = len(answers), self.quality.kind
                self.quality.pairs += [(y, answer[kind]) for y, answer in zip(ys, answers, strict=False)]
                self._level = max(0, self._level - done)
            except MemoryError:
                raise
            except Exception as error:
                self._fail(error)
                done = len(xs)
        self._seconds += time.perf_counter() - began
        for x, y in zip(xs[done:], ys[done:], strict=True):
            if not self.is_suspended:
                self.learn(x, y, 1.0, None)

    def forget(self, waiting: DelayedLabels) -> None:
        """Drop the predictions whose features are no longer pending."""
        self.pending = {key: found for key, found in self.pending.items() if key in waiting}

    def fold(self, least: int = 0) -> None:
        """Evaluate the collected pairs if there are at least `least`."""
        if len(self.quality.pairs) < least:
            return
        try:
            self.quality.fold()
        except MemoryError:
            raise
        except Exception as error:
            self.quality.pairs.clear()
            self._level = LIMIT
            self._fail(error)

    def snapshot(self) -> ChallengerSnapshot:
        """Return the current figures."""
        self.fold()
        quality, errors = self.quality, self.errors
        figures = quality.judged, errors, self.reason, self.is_suspended, self._seconds
        return ChallengerSnapshot(self.name, quality.scores(), *figures)

    def state(self) -> dict[str, Any]:
        """Return the complete state for a checkpoint."""
        self.fold()
        return {
            "name": self.name,
            "setup": self.setup,
            "model": self.model,
            "metric": self.quality.metric,
            "baseline_metric": self.quality.baseline_metric,
            "quality": self.quality.state(),
            "errors": self.errors,
            "reason": self.reason,
            "is_suspended": self.is_suspended,
            "level": self._level,
            "pending": pack_pending((key, *found) for key, found in self.pending.items()),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; the name and the configuration stay."""
        self.model = state["model"]
        self.quality.restore(state["metric"], state["baseline_metric"], state["quality"])
        self.errors, self.reason, self.is_suspended = state["errors"], state["reason"], state["is_suspended"]
        self._level = state["level"]
        self.pending = {key: (*answer, more) for key, *answer, more in unpack(state["pending"])}

    def _answer(self, x: dict[str, Any]) -> Answer:
        if self._with_probabilities:
            prediction, probabilities = most_likely(self.model, x)
            _check_finite(probabilities.values())
            return prediction, probabilities
        prediction = self.model.predict_one(x)
        _check_finite(prediction.values() if isinstance(prediction, dict) else (prediction,))
        return prediction, None

    def _fail(self, error: Exception) -> None:
        """Count an error, report it at most once a minute, and suspend the challenger after too many."""
        self.errors += 1
        self.reason = f"{type(error).__name__}: {error}"
        self._level += ERROR
        now, what = time.monotonic(), {"model": self.name, "errors": self.errors, "reason": self.reason}
        if self._level >= LIMIT:
            self.is_suspended = True
            self.pending.clear()
            log.error("a challenger is suspended after repeated errors; the champion is not affected", **what)
        elif now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            log.warning("a challenger failed; the champion is not affected", **what)


def pack_pending(rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return pending predictions as arrays."""
    return pack(rows, width=PENDING)


def _check_finite(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"Expected a finite prediction, got {value}")
