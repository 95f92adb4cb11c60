"""A copy of the model for predictions, made periodically, while another thread continues learning."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamkernel.engine.coverage import Threshold, region
from streamkernel.engine.examples import Examples
from streamkernel.engine.pipelines import CLASSIFIERS, explain, most_likely
from streamkernel.estimators.internals import prediction_copy, take_texts

SECONDS = 1.0
"""Smallest age in seconds at which a copy is replaced."""

SHARE = 0.01
"""Maximum share of the time that is spent on copies."""


class PublishedModel(NamedTuple):
    """A copy of the model after a number of events.

    `version` is the number of this copy, counted in this process. `checkpoint` is the number of the checkpoint that the
    copy was read from, if the run has not resumed yet. `threshold` is the maximum distance of a label inside an
    interval or set from the prediction, if the answer has one.
    """

    version: int
    events: int
    model: Any
    examples: Examples
    checkpoint: int | None = None
    threshold: Threshold | None = None

    @property
    def origin(self) -> str:
        """A description of the model's origin, as text."""
        if self.checkpoint is None:
            return "this run"
        return f"checkpoint {self.checkpoint}, read from disk; the run has not resumed yet"

    def answer(self, record: Mapping[str, Any], *, explained: bool = False) -> dict[str, Any]:
        """Return the prediction for one record, the probabilities of a classifier, and an interval or a set of labels.

        `explained` says whether to add the contributions of the inputs; the model must be explainable. Raise
        `InputError` if the record cannot be used. Errors of other steps of the pipeline are passed on.
        """
        x, _ = self.examples.read(record)
        take_texts(self.model, x)
        is_classifier = isinstance(self.model, CLASSIFIERS)
        answer = most_likely(self.model, x) if is_classifier else (self.model.predict_one(x), None)
        fields = {"prediction": answer[0]} | ({"probabilities": answer[1]} if is_classifier else {})
        if self.threshold is not None:
            fields |= region(answer, self.threshold)
        return fields | {"explanation": explain(self.model, x, answer[0])} if explained else fields


class Publisher:
    """Copies a model for predictions, so rarely that copies take at most a hundredth of the time.

    `wanted` says whether predictions are requested.

    Examples
    --------
    >>> from river import linear_model
    >>> publisher = Publisher()
    >>> model, examples = linear_model.LinearRegression(), Examples("y", numeric_label=True)
    >>> publisher.publish(model, examples, 0)
    >>> model.learn_one({"a": 1.0}, 5.0)
    >>> publisher.newest.answer({"a": 1.0})
    {'prediction': 0.0}
    """

    def __init__(self) -> None:
        self.wanted = False
        self.newest: PublishedModel | None = None
        self._next = 0.0

    def is_due(self, events: int) -> bool:
        """Return whether a new copy is due for a model that has learned `events` events."""
        newest = self.newest
        is_new = newest is None or events != newest.events or newest.checkpoint is not None
        return self.wanted and is_new and time.monotonic() >= self._next

    def publish(
        self,
        model: Any,
        examples: Examples,
        events: int,
        checkpoint: int | None = None,
        *,
        threshold: Threshold | None = None,
    ) -> None:
        """Make a copy; `checkpoint` and `threshold` are as for :class:`PublishedModel`."""
        began = time.monotonic()
        version = 1 if self.newest is None else self.newest.version + 1
        parts = prediction_copy(model), copy.deepcopy(examples)
        self.newest = PublishedModel(version, events, *parts, checkpoint, threshold)
        now = time.monotonic()
        self._next = now + max(SECONDS, (now - began) / SHARE)
