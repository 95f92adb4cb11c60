"""What one record leads to: a prediction, learning, or both, and a judgement of what was predicted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from river import base, compose, metrics

from connectors import Event, Refusal
from streamkernel.engine.delayed_labels import NO_ANSWER, Answer, DelayedLabels
from streamkernel.engine.examples import Examples, shortened
from streamkernel.engine.telemetry.quality import Quality
from streamkernel.errors import DivergedError, InputError, JoinError, LabelError, TooManyClassesError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier

log = structlog.get_logger("streamkernel")


MOST_CLASSES = 1000
"""Labels that a classifier which is not ours may learn: River's metrics count pairs of a label and a prediction."""

REASONS = {
    "classes": TooManyClassesError,
    "label": LabelError,
    "join": JoinError,
    "diverged": DivergedError,
    "value": InputError,
    "error": Exception,
}
"""Kinds of records that are refused, by the error; those that cannot be read are ``unreadable``."""

Step = tuple[dict[str, Any], Any, tuple[Answer, Answer], bool]
"""What came of one record: features, their label or ``None``, the answers, and whether these are new."""


class Learner:
    """A model that predicts and learns what is in one record after the other, and a baseline beside it.

    Parameters
    ----------
    model
        A River classifier or regressor, or a pipeline that ends in one.
    label
        The field to predict.
    ignore
        Fields to leave out.
    metric
        A River metric of the predictions.
    baseline
        Another River model that learns the same.
    labels
        What joins features with the label that comes in another record.
    with_probabilities
        Whether probabilities are wanted even if the metric does not need them.

    Attributes
    ----------
    outcomes : dict
        Records by what became of them.
    refused : dict
        Dead letters by kind: ``unreadable``, or one of `REASONS`.

    Examples
    --------
    >>> from river import linear_model, metrics
    >>> learner = Learner(linear_model.LinearRegression(), label="y", metric=metrics.MAE())
    >>> step = learner._step(Event("numbers", 1, b"", {"a": 1.0, "y": 3.0}))
    >>> step
    ({'a': 1.0}, 3.0, ((0.0, None), (None, None)), True)
    >>> learner._judge(*step)
    >>> learner.quality()
    {'MAE': 3.0, 'MAE (baseline)': 0.0}
    """

    def __init__(
        self,
        model: base.Estimator,
        *,
        label: str,
        ignore: Collection[str] = (),
        metric: metrics.base.Metric,
        baseline: base.Estimator | None = None,
        labels: DelayedLabels | None = None,
        with_probabilities: bool = False,
    ) -> None:
        self.model: Any = model
        self.baseline: Any = baseline
        self._quality = Quality(metric, None if baseline is None else _name_of(last_step(baseline)))
        self._pairs, self._kind = self._quality.pairs, self._quality.kind
        self.refused = dict.fromkeys(("unreadable", *REASONS), 0)
        self.outcomes = {"learned": 0, "predicted": 0, "dead_letter": 0, "pending": 0}
        asked = with_probabilities or not getattr(metric, "requires_labels", True)
        self._probabilities = asked and isinstance(model, base.Classifier)
        self._labels = labels
        self._classes: set[Any] = set()  # labels that the model is known to take
        unseen = {*ignore, *(labels.fields if labels is not None else ())}
        self._examples = Examples(label, unseen, numeric_label=isinstance(model, base.Regressor))

    @property
    def kernel_model(self) -> KernelModel | None:
        """The kernel model at the end of the pipeline, if it is one of ours."""
        last = last_step(self.model)
        return last if isinstance(last, KernelModel) else None

    def quality(self) -> dict[str, float]:
        """Return the prequential metric of the model, and that of the baseline, by name."""
        scores = self._quality.scores()
        return {scores.name: scores.ours} | ({f"{scores.name} (baseline)": scores.theirs} if scores.baseline else {})

    @property
    def metric(self) -> metrics.base.Metric:
        """The prequential metric of the model since the start."""
        self._quality.fold()
        return self._quality.metric

    @property
    def labels(self) -> dict[str, int]:
        """Labels that came in records of their own, by what became of them; see :class:`DelayedLabels`."""
        return {} if self._labels is None else dict(self._labels.counts)

    @property
    def pending_labels(self) -> int:
        """Features that wait for their label now."""
        return 0 if self._labels is None else len(self._labels)

    def _step(self, event: Event) -> Step | None:
        """Predict if features came, and learn if they have a label by now.

        Raises
        ------
        InputError
            If the record cannot be used, and whatever a step of the pipeline raises.
        """
        record = event.record
        if record is None:
            raise InputError(event.error or "Expected a record, got none")
        labels, key, is_new = self._labels, None, True
        x, y = self._examples.split(record) if labels is None else self._examples.read(record)
        if labels is None or (x and y is not None):
            answers = self._answers(x)
        elif x:
            key = labels.arrive(record)
            y = labels.label_of(key)
            answers = self._answers(x)
            if y is None:
                labels.wait(key, x, answers, f"{event.stream} at {event.resume}")
                return x, y, answers, is_new
        elif y is not None:
            key = labels.arrive(record, is_label=True)
            waiting = labels.waiting_for(key, y)
            if waiting is None:
                return None
            x, answers = waiting.x, waiting.answers
            self._examples.check_again(x)
            is_new = False
        else:
            raise InputError("Expected features or a label besides the key, got neither")
        if y not in self._classes:
            self._check_class(y)
        self.model.learn_one(x, y)
        if labels is not None and key is not None:
            labels.joined(key)
        return x, y, answers, is_new

    def _check_class(self, y: Any) -> None:
        """Raise an InputError if the model may not learn one more label, before its preprocessing learns anything."""
        last = self.kernel_model
        if isinstance(last, KernelClassifier):
            last._check_labels((y,))
        elif not isinstance(self.model, base.Classifier):
            return
        elif len(self._classes) >= MOST_CLASSES:
            raise TooManyClassesError(f"Expected at most {MOST_CLASSES:,} labels, got one more, {shortened(y)}")
        self._classes.add(y)

    def _answers(self, x: dict[str, Any]) -> tuple[Answer, Answer]:
        """Return what the model and the baseline predict."""
        ours, theirs = self._predict(self.model, x), NO_ANSWER
        if self.baseline is not None:
            try:
                theirs = self._predict(self.baseline, x)
            except MemoryError:
                raise
            except Exception as error:
                self._drop_baseline(error)
        return ours, theirs

    def _judge(self, x: dict[str, Any], y: Any, answers: tuple[Answer, Answer], is_new: bool) -> None:
        """Count a step and judge its answers if the model has learnt, and let the baseline learn it too."""
        self.outcomes["predicted"] += is_new
        if y is None:
            self.outcomes["pending"] += 1
            return
        self.outcomes["learned"] += 1
        self._examples.learnt(x)
        self._pairs.append((y, answers[0][self._kind]))
        if self.baseline is not None:
            self._quality.baseline_pairs.append((y, answers[1][self._kind]))
            try:
                self.baseline.learn_one(x, y)
            except MemoryError:
                raise
            except Exception as error:
                self._drop_baseline(error)

    def _predict(self, model: Any, x: dict[str, Any]) -> Answer:
        if not self._probabilities:
            return model.predict_one(x), None
        return most_likely(model, x)

    def _drop_baseline(self, error: Exception) -> None:
        """Go on without a baseline that failed."""
        log.warning("the baseline failed and is dropped", reason=f"{type(error).__name__}: {error}")
        self.baseline = None
        self._quality.drop_baseline()


def refusal_of(event: Event, error: Exception) -> Refusal:
    """Return why a record that raised an error becomes a dead letter."""
    kind = next(kind for kind, of in REASONS.items() if isinstance(error, of))
    name = type(error).__name__
    text = str(error) if isinstance(error, InputError) else f"{name}: {error}"
    return Refusal(text, "unreadable" if event.record is None else kind, f"{type(error).__module__}.{name}")


def line_of(event: Event, y: Any, answer: Answer, learned: int, key: str | None = None) -> dict[str, Any]:
    """Return a prediction as a record for a sink.

    Parameters
    ----------
    event, y, answer
        The record, its label if it is known, and what the model answered.
    learned
        How many events the model had learned then.
    key
        The field that labels in records of their own come by.
    """
    prediction, probabilities = answer
    line = {**event.location, "model_version": learned, "label": y, "prediction": prediction}
    if key is not None and event.record is not None:
        line["key"] = event.record.get(key)
    if probabilities is not None:
        line["probabilities"] = probabilities
    return line


def most_likely(model: Any, x: dict[str, Any]) -> Answer:
    """Return the class that a classifier finds most likely, ``None`` before any, and the probabilities of all."""
    probabilities = model.predict_proba_one(x)
    return max(probabilities, key=probabilities.get, default=None), probabilities


def _name_of(model: Any) -> str:
    return type(getattr(model, "classifier", model)).__name__  # of one that is asked for each class


def last_step(model: Any) -> Any:
    """Return the model at the end of a pipeline."""
    return model._last_step if isinstance(model, compose.Pipeline) else model
