"""Models that learn the same events beside the champion, and are evaluated like it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from river.metrics.base import Metric

from streamkernel.engine.checkpoint.state_file import pack, unpack
from streamkernel.engine.delayed_labels import DelayedLabels, Key, plain
from streamkernel.engine.health import REPORT_SECONDS
from streamkernel.engine.pipelines import Answer, most_likely
from streamkernel.engine.roles import MODEL, PENDING, Candidate, roles_in
from streamkernel.engine.seen_inputs import LARGEST
from streamkernel.engine.telemetry.quality import Quality, Scores
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import answers_of, predict_and_learn
from streamkernel.time_series.history import add_history, history_names, observe

ERROR, LIMIT = 10, 100
"""An error adds the first number to a level, an event without one subtracts 1, and at the second number a challenger is
suspended: after ten consecutive errors, or if more than one event in eleven fails for some time."""

SPARE = 1024
"""Predictions that a challenger may keep beyond twice the number of pending features, before it forgets some."""

FOLD_AT = 1000
"""Predictions of a challenger that are evaluated together, or a few more."""

log = structlog.get_logger("streamkernel")


@dataclass(frozen=True)
class ChallengerSnapshot:
    """A challenger at one moment, immutable for any thread.

    `judged` are events whose label was compared with its prediction. `reason` is the last of these errors, or an empty
    string. `seconds` is the time that this process spent on it.
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

    `setup` is its configuration as plain values. `model` is a River model of the same kind as the champion, or a
    pipeline that ends in one. `with_probabilities` says whether the champion's predictions have probabilities.
    `pending` are its predictions for features whose label has not arrived, by key. `errors` are events that it could
    not predict or learn. `is_suspended` says whether it has stopped learning because of repeated errors.
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
        self.pending.pop(key, None)
        with self._counted():
            full = add_history(self.model, x)
            prediction, probabilities = self._answer(full)
            observe(self.model, x)
            more = {name: full[name] for name in history_names(self.model) if name in full}
            self.pending[key] = plain(prediction), plain(probabilities), more

    def learn(self, x: Mapping[str, Any], y: Any, w: float, key: Key | None) -> None:
        """Predict an example, or find the prediction that waits under a key, judge it, and learn the example.

        An example that it has not predicted it does not learn, as the champion does not learn dead letters.
        """
        with self._counted():
            features = dict(x)
            if key is None:
                answer = self._answer(features)
            elif key in self.pending:
                prediction, probabilities, more = self.pending.pop(key)
                answer = prediction, probabilities
                features |= more
            else:
                return
            self.quality.pairs.append((y, answer[self.quality.kind]))
            if w > 0.0:
                self.model.learn_one(features, y, **({} if w == 1.0 else {"w": w}))
            self._level = max(0, self._level - 1)

    def learn_many(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any]) -> None:
        """Predict, judge and learn examples one after the other, as many as possible in one compiled call."""
        done = 0
        if isinstance(self.model, KernelModel):
            done = len(xs)  # if one fails
            with self._counted():
                scores, _ = predict_and_learn(self.model, list(xs), ys, LARGEST)
                answers = answers_of(self.model, scores, with_probabilities=self._with_probabilities)
                _check_finite(scores.ravel().tolist())
                kind = self.quality.kind
                self.quality.pairs += [(y, answer[kind]) for y, answer in zip(ys, answers, strict=False)]
                self._level = max(0, self._level - len(answers))
                done = len(answers)
        for x, y in zip(xs[done:], ys[done:], strict=True):
            if not self.is_suspended:
                self.learn(x, y, 1.0, None)

    def forget(self, waiting: DelayedLabels) -> None:
        """Drop the predictions whose features are no longer pending."""
        self.pending = {key: prediction for key, prediction in self.pending.items() if key in waiting}

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
            "pending": pack(((key, *prediction) for key, prediction in self.pending.items()), width=PENDING),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; the name and the configuration stay."""
        self.model = state["model"]
        self.quality.restore(state["metric"], state["baseline_metric"], state["quality"])
        self.errors, self.reason, self.is_suspended = state["errors"], state["reason"], state["is_suspended"]
        self._level = state["level"]
        self.pending = {key: (*answer, more) for key, *answer, more in unpack(state["pending"])}

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the time of some work, and its error: the champion continues after any error of a step."""
        began = time.perf_counter()
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._seconds += time.perf_counter() - began

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


def _check_finite(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"Expected a finite prediction, got {value}")


class ChallengersSnapshot(NamedTuple):
    """The models of a run at one moment."""

    champion: str
    models: tuple[ChallengerSnapshot, ...]


class Challengers:
    """Models that predict and learn the events of a run after the champion has.

    The champion's results, their order and their bits are the same with and without them. `promotions` are the
    promotions: the time, the number of events before it, and the former champion. `candidates` are the models of the
    configuration, the table ``[model]`` first. `metric` is a metric of the same kind that is empty.
    `with_probabilities` says whether the champion's predictions have probabilities. `labels` are the pending features,
    if labels arrive in separate records.
    """

    def __init__(
        self, candidates: Sequence[Candidate], metric: Metric, *, with_probabilities: bool, labels: DelayedLabels | None
    ) -> None:
        self._candidates, self._metric, self._labels = list(candidates), metric.clone(), labels
        self._with_probabilities = with_probabilities
        self.champion = MODEL
        self.promotions: list[dict[str, Any]] = []
        self._reported: set[tuple[str, str]] = set()
        self._models: list[Challenger] | None = None  # built at last, where no checkpoint has them

    @property
    def models(self) -> list[Challenger]:
        """The challengers."""
        if self._models is None:
            self._models = [self._begin_challenger(one) for one in self._candidates[1:]]
        return self._models

    def wait(self, key: Key, x: Mapping[str, Any]) -> None:
        """Predict features whose label has not arrived."""
        for one in self.models:
            if not one.is_suspended:
                one.wait(key, x)
                if self._labels is not None and len(one.pending) > 2 * len(self._labels) + SPARE:
                    one.forget(self._labels)

    def learn(self, x: Mapping[str, Any], y: Any, w: float = 1.0, key: Key | None = None) -> None:
        """Judge and learn an example that the champion has learned; the features of `key` were predicted earlier."""
        for one in self.models:
            if not one.is_suspended:
                one.learn(x, y, w, key)
                one.fold(FOLD_AT)

    def learn_many(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any]) -> None:
        """Predict, judge and learn examples that the champion has learned."""
        for one in self.models:
            if not one.is_suspended:
                one.learn_many(xs, ys)
                one.fold(FOLD_AT)

    def snapshot(self) -> ChallengersSnapshot:
        """Return the current figures."""
        return ChallengersSnapshot(self.champion, tuple(one.snapshot() for one in self.models))

    def setup(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the preprocessing and the model that the champion of a checkpoint has in the configuration.

        Raise `StateDirectoryError` if it was promoted and the configuration does not have it.
        """
        return roles_in(saved, self._candidates).setup

    def state(self) -> dict[str, Any]:
        """Return the part of a checkpoint beside the champion: nothing if there never was a challenger."""
        if not self.models and not self.promotions:
            return {}
        if self._labels is not None:
            for one in self.models:
                one.forget(self._labels)
        models = [one.state() for one in self.models]
        return {"challengers": {"champion": self.champion, "promotions": self.promotions, "models": models}}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint; challengers that are new in the configuration begin."""
        roles, stored = roles_in(saved, self._candidates), saved.get("challengers") or {}
        self.champion = roles.champion
        names = {part["name"] for part in stored.get("models", ())} | {stored.get("champion", MODEL)}
        self.promotions = [
            {**one, **{key: roles.names.get(one[key]) for key in ("champion", "former")}}
            for one in stored.get("promotions", ())
        ]
        for name in sorted(names - roles.names.keys()):
            self._report_change("a challenger is dropped, because the configuration has no model like it", name)
        self._models = []
        for candidate, part in roles.challengers:
            one = self._begin_challenger(candidate, part)
            self._models.append(one)
            if part is None:
                self._report_change("a challenger begins", one.name)
            elif part["name"] != one.name:
                self._report_change(f'a challenger was called "{part["name"]}" before', one.name)

    def _report_change(self, event: str, name: str) -> None:
        """Report a change once: a checkpoint may be restored several times."""
        if (event, name) not in self._reported:
            self._reported.add((event, name))
            log.info(event, model=name)

    def _begin_challenger(self, candidate: Candidate, part: Mapping[str, Any] | None = None) -> Challenger:
        """Return a new challenger, or the one that continues from its part of a checkpoint."""
        model = candidate.build() if part is None else part["model"]
        quality = Quality(self._metric.clone())
        one = Challenger(candidate.name, candidate.setup, model, quality, with_probabilities=self._with_probabilities)
        if part is not None:
            one.restore(part)
        return one
