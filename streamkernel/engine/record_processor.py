"""Processing of one record: prediction, learning, evaluation of the prediction, and a line of output."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from time import time_ns
from typing import Any

import structlog
from river import base, metrics

from streamkernel.conformal.error_scale import takes_first_order_steps
from streamkernel.connectors import Event, Refusal
from streamkernel.engine.challengers import Challengers
from streamkernel.engine.coverage import coverage_of, region
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.examples import Examples
from streamkernel.engine.known_classes import KnownClasses, known_classes
from streamkernel.engine.monitoring.monitoring import Monitoring
from streamkernel.engine.pipelines import (
    CLASSIFIERS,
    NO_ANSWER,
    Answer,
    explain_briefly,
    kernel_model_of,
    most_likely,
    name_of,
)
from streamkernel.engine.roles import Candidate
from streamkernel.engine.telemetry.dead_letters import KINDS
from streamkernel.engine.telemetry.quality import Quality
from streamkernel.errors import InputError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.internals import predict_deferred, take_texts
from streamkernel.field_types.fields import Fields
from streamkernel.time_series.history import add_history, history_names, observe

log = structlog.get_logger("streamkernel")

Step = tuple[dict[str, Any], Any, tuple[Answer, Answer], bool]
"""The result for one record: features, their label or ``None``, the answers, and whether these are new."""


class RecordProcessor:
    """A model that predicts and learns records one at a time, beside a baseline.

    The parameters are as for :class:`~streamkernel.engine.engine.Engine`; of several labels, labels and predictions are
    dictionaries. `learned_before` are events that the model has learned elsewhere, as on the driver of a cluster; they
    count in `line`. `model` and `baseline` are the models; a baseline that failed is ``None``. `outcomes` are records
    by what became of them, and `refused` dead letters by kind. `with_probabilities` says whether all answers have
    probabilities; if not, `defers_probabilities` says whether monitoring reads some of them later. `is_timed` says
    whether `process` stores when it has predicted: `predicted_at`, in nanoseconds since 1970.

    Examples
    --------
    >>> from river import linear_model, metrics
    >>> processor = RecordProcessor(linear_model.LinearRegression(), label="y", metric=metrics.MAE())
    >>> step = processor.process(Event("numbers", 1, b"", {"a": 1.0, "y": 3.0}))
    >>> step
    ({'a': 1.0}, 3.0, ((0.0, None), (None, None)), True)
    >>> processor.judge(*step)
    >>> processor.quality.by_name()
    {'MAE': 3.0, 'MAE (baseline)': 0.0}
    """

    def __init__(
        self,
        model: base.Estimator,
        *,
        label: str | tuple[str, ...],
        ignore: Collection[str] = (),
        metric: metrics.base.Metric,
        baseline: base.Estimator | None = None,
        labels: DelayedLabels | None = None,
        weight: str | None = None,
        fields: Fields | None = None,
        with_probabilities: bool = False,
        coverage: float | None = None,
        explain: int = 0,
        monitoring: Monitoring | None = None,
        learned_before: int = 0,
        candidates: Sequence[Candidate] = (),
    ) -> None:
        self.model: Any = model
        self.baseline: Any = baseline
        self.quality = Quality(metric, None if baseline is None else name_of(baseline))
        self._pairs, self._kind = self.quality.pairs, self.quality.kind
        self.refused = dict.fromkeys(KINDS, 0)
        self.outcomes = {"learned": 0, "predicted": 0, "dead_letter": 0, "pending": 0, "passed_over": 0}
        needs_probabilities = with_probabilities or coverage is not None or not getattr(metric, "requires_labels", True)
        reads_probabilities = monitoring is not None and monitoring.reads_probabilities
        if labels is not None:  # predictions that wait for labels are stored with their probabilities
            needs_probabilities |= reads_probabilities
        self.with_probabilities = needs_probabilities and isinstance(model, CLASSIFIERS)
        self.defers_probabilities = reads_probabilities and not needs_probabilities and isinstance(model, CLASSIFIERS)
        self.challengers = Challengers(candidates, metric, with_probabilities=self.with_probabilities, labels=labels)
        self.labels, self.coverage = labels, None
        if coverage is not None:
            self.coverage = coverage_of(coverage, label, first_order=takes_first_order_steps(model))
        self.monitoring, self._explain = monitoring, explain
        self._learned_before = learned_before
        self.is_timed, self.predicted_at = False, 0
        self._classes = known_classes(model)
        is_numeric = isinstance(model, (base.Regressor, base.MultiTargetRegressor))
        keys = () if labels is None else labels.fields
        self.examples = Examples(label, ignore, numeric_label=is_numeric, weight=weight, fields=fields, keys=keys)

    @property
    def kernel_model(self) -> KernelModel | None:
        """The kernel model at the end of the pipeline, if there is one."""
        return kernel_model_of(self.model)

    @property
    def learned_alone(self) -> KernelModel | None:
        """The model if it is one of ours and all that a record with a label is for."""
        examples = self.examples
        more = self._explain or examples.is_several or None
        others = (self.labels, self.baseline, examples.weight, self.coverage, more)
        return self.model if others == (None,) * 5 and isinstance(self.model, KernelModel) else None

    @property
    def until_due(self) -> float:
        """Predicted events that may be evaluated before something is due after an event of a certain number."""
        return math.inf if self.monitoring is None else self.monitoring.until_due

    def known(self, ys: Sequence[Any]) -> Sequence[Any]:
        """Return labels in the forms in which they came first, up to a label that has to be checked first."""
        return self._classes.known(ys) if isinstance(self._classes, KnownClasses) else ys

    def adopt(self, model: base.Estimator) -> None:
        """Continue with another model of the same kind, which may have learned other labels."""
        self.model, self._classes = model, known_classes(model)

    def process(self, event: Event) -> Step | None:
        """Predict the features of a record, and learn them if their label is known.

        Raise `InputError` if the record cannot be used, and whatever a step of the pipeline raises.
        """
        record = event.record
        if record is None:
            raise InputError(event.error or "Expected a record, got none")
        labels, key, is_new = self.labels, None, True
        x, y = self.examples.take(record, is_labelled=labels is None)
        w = self.examples.weight_of(record) if x else 1.0
        self._take_texts(x)
        if labels is None or (x and y is not None):
            answers = self._answers(x, x)
        elif x:
            key = labels.arrive(record)
            y = labels.label_of(key)
            features, x = x, add_history(self.model, x)
            answers = self._answers(x, features)
            observe(self.model, features)
            self.challengers.wait(key, features)
            if y is None:
                labels.wait(key, x, answers, f"{event.stream} at {event.resume}", w)
                return x, y, answers, is_new
        elif y is not None:
            key = labels.arrive(record, is_label=True)
            waiting = labels.waiting_for(key, y)
            if waiting is None:
                return None
            x, answers, w = waiting.x, waiting.answers, waiting.w
            self.examples.check_again(self._without_history(x))
            self._take_texts(x)
            is_new = False
        else:
            why = self.examples.why_no_features(record)
            raise InputError(f"Expected features or a label besides the key, got neither: {why}")
        if self._classes is not None:
            y = self._classes.of(y)
            if w > 0.0:
                self._classes.check(y)
        if w > 0.0:
            self.model.learn_one(x, y, **({} if w == 1.0 else {"w": w}))
        if labels is not None and key is not None:
            labels.discard(key)
        x = x if labels is None else self._without_history(x)
        self.challengers.learn(x, y, w, key)
        return x, y, answers, is_new

    def judge(self, x: dict[str, Any], y: Any, answers: tuple[Answer, Answer], is_new: bool) -> None:
        """Evaluate the predictions of a learned step, and have the baseline learn it."""
        self.outcomes["predicted"] += is_new
        if self.monitoring is not None:
            self.monitoring.add(x, y, answers[0], is_new)
            self._end_windows(self.monitoring)
        if y is None:
            self.outcomes["pending"] += 1
            return
        self.outcomes["learned"] += 1
        self.examples.ranges.learn(x)
        self._pairs.append((y, answers[0][self._kind]))
        if self.coverage is not None:
            self.coverage.judge(x, y, answers[0])
        if self.baseline is not None:
            self.quality.baseline_pairs.append((y, answers[1][self._kind]))
            try:
                self.baseline.learn_one(x, y)
            except MemoryError:
                raise
            except Exception as error:
                self._drop_baseline(error)

    def judge_all(
        self, xs: Sequence[dict[str, Any]], values: Any, ys: Sequence[Any], answers: Sequence[Answer]
    ) -> None:
        """Evaluate predicted and learned examples as `judge` does each; `values` has the shape (examples, fields)."""
        self.outcomes["predicted"] += len(ys)
        self.outcomes["learned"] += len(ys)
        self.examples.count_numbers(xs[0], len(ys))
        self.examples.ranges.learn_many(xs, values)
        if self.monitoring is not None:
            self.monitoring.add_all(xs, ys, answers)
            self._end_windows(self.monitoring)
        kind = self._kind
        self._pairs += zip(ys, [answer[kind] for answer in answers], strict=True)
        self.challengers.learn_many(xs, ys)

    def observe(self, x: dict[str, Any]) -> dict[str, Any]:
        """Examine the features of a new prediction before it is evaluated; return more fields of its line."""
        return {} if self.monitoring is None else self.monitoring.observe(x)

    def observe_all(self, xs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Examine new predictions as `observe` does each; return nothing if there are no more fields."""
        return [] if self.monitoring is None else self.monitoring.observe_all(xs)

    def line(self, event: Event, y: Any, answer: Answer, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a prediction, with what `observe` returned, as a record for a sink, before the step is evaluated."""
        prediction, probabilities, *_ = answer
        version = self._learned_before + self.outcomes["learned"]
        line = {**event.location, "model_version": version, "label": y, "prediction": prediction}
        if self.labels is not None and event.record is not None:
            line["key"] = event.record.get(self.labels.key)
        if probabilities is not None:
            line["probabilities"] = probabilities
        if self.coverage is not None:
            line |= region(answer, answer[2])
        if self._explain:
            line["explanation"] = answer[3]
        return line if more is None else {**line, **more}

    def lines(
        self, events: Sequence[Event], ys: Sequence[Any], answers: Sequence[Answer], more: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the predictions of a model that is `learned_alone` as `line` does, before `judge_all`."""
        versions, lines = count(self._learned_before + self.outcomes["learned"]), []
        for event, version, y, (prediction, shares) in zip(events, versions, ys, answers, strict=False):
            line = dict(event.origin or event.location)
            line["model_version"], line["label"], line["prediction"] = version, y, prediction
            if shares is not None:
                line["probabilities"] = shares
            lines.append(line)
        for line, fields in zip(lines, more, strict=False):
            line.update(fields)
        return lines

    def count_refusal(self, refusal: Refusal) -> None:
        """Count a record that becomes a dead letter."""
        self.outcomes["dead_letter"] += 1
        self.refused[refusal.kind] += 1

    def state(self) -> dict[str, Any]:
        """Return the processor's state for a checkpoint."""
        return {
            "model": self.model,
            "metric": self.quality.metric,
            "baseline": self.baseline,
            "baseline_metric": self.quality.baseline_metric,
            "quality": self.quality.state(),
            "outcomes": self.outcomes,
            "refused": self.refused,
            "fields": self.examples.state(),
            "classes": () if self._classes is None else self._classes.labels,
            "labels": None if self.labels is None else self.labels.state(),
            "coverage": None if self.coverage is None else self.coverage.state(),
            "monitoring": None if self.monitoring is None else self.monitoring.state(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.model, self.baseline = saved["model"], saved["baseline"]
        self.quality.restore(saved["metric"], saved["baseline_metric"], saved["quality"])
        self.outcomes, self.refused = self.outcomes | saved["outcomes"], self.refused | saved.get("refused", {})
        self.examples.restore(saved["fields"])
        self._classes = known_classes(self.model, saved.get("classes", ()))
        self.challengers.restore(saved)
        if self.labels is not None and saved.get("labels") is not None:
            self.labels.restore(saved["labels"])
        if self.coverage is not None:
            self.coverage = self.coverage.restored(saved.get("coverage"))
        if self.monitoring is not None:
            self.monitoring.restore(saved.get("monitoring") or {})

    def _end_windows(self, monitoring: Monitoring) -> None:
        """Complete what is due after this event, and reset the model if drift detection requires it."""
        if monitoring.until_due <= 0 and monitoring.end_windows(self.model):
            log.warning("the model starts again, because the stream has changed")
            self.adopt(self.model.clone())

    def _take_texts(self, x: dict[str, Any]) -> None:
        """Let the models take the texts in fields that are known to have them."""
        if str in map(type, x.values()):
            for model in (self.model, *(one.model for one in self.challengers.models)):
                take_texts(model, x)

    def _without_history(self, x: dict[str, Any]) -> dict[str, Any]:
        """Return the features of a record without the fields added from earlier records."""
        names = history_names(self.model)
        return {name: value for name, value in x.items() if name not in names} if names else x

    def _answers(self, x: dict[str, Any], features: dict[str, Any]) -> tuple[Answer, Answer]:
        """Return the predictions of the model and the baseline; the model may use history features."""
        ours, theirs = self._predict(self.model, x), NO_ANSWER
        if self.coverage is not None or self._explain:
            threshold = None if self.coverage is None else self.coverage.threshold(features)
            explained = explain_briefly(self.model, x, ours[0], self._explain) if self._explain else None
            ours = *ours, threshold, explained
        if self.baseline is not None:
            try:
                theirs = self._predict(self.baseline, features)
            except MemoryError:
                raise
            except Exception as error:
                self._drop_baseline(error)
        if self.is_timed:
            self.predicted_at = time_ns()
        return ours, theirs

    def _predict(self, model: Any, x: dict[str, Any]) -> Answer:
        needs_probabilities = self.with_probabilities
        if self.defers_probabilities and model is self.model and self.monitoring is not None:
            if type(model) is KernelClassifier:  # River says that a pipeline is an instance of its last step
                return predict_deferred(model, x)
            needs_probabilities = self.monitoring.reads_next
        return most_likely(model, x) if needs_probabilities else (model.predict_one(x), None)

    def _drop_baseline(self, error: Exception) -> None:
        """Continue without the baseline after it has failed."""
        log.warning("the baseline failed and is dropped", reason=f"{type(error).__name__}: {error}")
        self.baseline = None
        self.quality.drop_baseline()
