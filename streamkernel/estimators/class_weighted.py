"""A classifier whose classes have weights: given ones, or those that balance the examples learned so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel.estimators.explained import ExplainedModel
from streamkernel.estimators.model_state import Journal, State
from streamkernel.estimators.targets import as_label
from streamkernel.estimators.weighting import ClassWeight, balanced_weights, class_counts
from streamkernel.features.rows import F64, Rows
from streamkernel.tensor_file import Tensors, require_tensor


class ClassWeightedModel(ExplainedModel):
    """The weights of classes, and the counts of examples that balanced ones need."""

    class_weight: ClassWeight

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
