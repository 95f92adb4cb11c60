"""The classes of a classifier: their numbers, their columns of f, and their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel import losses
from streamkernel.errors import LabelError, TooManyClassesError, shorten
from streamkernel.estimators.explained import ExplainedModel
from streamkernel.estimators.label_forms import LabelForms, namesakes
from streamkernel.estimators.model_state import Journal, State
from streamkernel.estimators.targets import Label, as_label
from streamkernel.estimators.weighting import (
    ClassWeight,
    balanced_weights,
    class_counts,
)
from streamkernel.features.rows import F64, Rows
from streamkernel.tensor_file import Tensors, require_tensor


class ClassModel(ExplainedModel):
    """The labels of classes, their weights, and the counts of examples that balanced ones need."""

    class_weight: ClassWeight
    max_classes: int

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def labels(self) -> Mapping[Label, int]:
        """The labels seen so far, with their numbers, in the order in which they came."""
        return self._state.labels

    def _target(self, y: Any) -> float:
        labels = self.labels
        number = labels.get(as_label(y))
        if number is None:
            known = shorten([*labels])
            raise LabelError(f"Expected a label that the model has learned, {known}, got {shorten(y)} - at y")
        return number

    def _check_labels(self, labels: Sequence[Label]) -> None:
        known = self._state.labels
        new = dict.fromkeys(label for label in labels if label not in known)
        if new and len(known) + len(new) > self.max_classes:
            label, most = list(new)[max(0, self.max_classes - len(known))], self.max_classes
            raise TooManyClassesError(
                f"Expected at most {most} labels (max_classes), got one more, {shorten(label)} - at y"
            )
        came = {label: label for label in (*known, *new)} if new else {}
        for label in new:
            for other in namesakes(label):
                if other in came:
                    both = f"{shorten(came[other])} and {shorten(label)}"
                    raise LabelError(f"Expected one form of a label, got {both}, which are one key in JSON - at y")

    def _with_label(self, found: State, label: Label) -> State:
        softmax = isinstance(self._loss, losses.Softmax)
        if len(found.labels) >= (1 if softmax else 2):
            upkeep = None if found.upkeep is None else found.upkeep.with_column()
            found = replace(found, learner=found.learner.with_column(), upkeep=upkeep)
        return replace(found, labels={**found.labels, label: len(found.labels)})

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"labels": list(self.labels)}

    def _labels_in(self, description: Mapping[str, Any]) -> dict[Label, int]:
        labels = {as_label(label): i for i, label in enumerate(description["labels"])}
        if len(LabelForms(labels)) != len(description["labels"]):
            raise ValueError(f"expected labels that differ, got {description['labels']!r}")
        return labels

    def _columns(self, labels: int) -> int:
        if isinstance(self._loss, losses.Softmax):
            return max(1, labels)
        return 1 if labels <= 2 else labels

    @property
    def _has_class_weights(self) -> bool:
        return isinstance(self.class_weight, Mapping)

    def _weight_of(self, label: Any) -> float:
        """Return the weight of a label in a dictionary of class weights, 1 without one."""
        return self.class_weight.get(as_label(label), 1.0) if isinstance(self.class_weight, Mapping) else 1.0

    def _new_own(self) -> Any:
        return np.zeros(0) if self.class_weight == "balanced" else None  # examples of each class

    def _weigh_rows(self, rows: Rows, y: F64, found: State) -> Rows:
        if found.own is None:
            return rows
        known = class_counts(found.own, np.zeros(0), len(found.labels))
        return rows._replace(weights=rows.weights * balanced_weights(y, known))

    def _advance_state(self, found: State, journal: Journal, learned: int) -> State:
        if found.own is not None:
            counts = class_counts(found.own, journal.y[:learned], len(found.labels))
            found = found.with_journal(None, counts)
        return super()._advance_state(found, journal, learned)

    def _tensors(self) -> Tensors:
        own = self._state.own
        return super()._tensors() | ({} if own is None else {"class_counts": own.copy()})

    def _own_in(self, tensors: Mapping[str, Any]) -> Any:
        if self.class_weight != "balanced":
            return None
        counts = require_tensor(tensors, "class_counts", np.float64, (None,))
        if (counts < 0.0).any():
            raise ValueError(f"expected numbers of examples as class_counts, got {counts.tolist()}")
        return counts
