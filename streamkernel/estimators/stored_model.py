"""A kernel model as JSON values and arrays: the content of its files, and its restoration from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.estimators import model_file
from streamkernel.estimators.learning import LearningModel
from streamkernel.estimators.model_state import State
from streamkernel.features import example_tensors, field_names, numeric_names, scaling
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.locking import locked, on_copy
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.upkeep.scheduler import BackgroundTasks


class StoredModel(LearningModel):
    """A function with scales, labels and names, as a file holds them."""

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use; bandwidths that are taken from the stream are provisional during the first examples."""
        return self._learner.kernel

    def _new_learner(self, kernel: Kernel, columns: int) -> FirstOrderLearner | SecondOrderLearner:
        """Return an untrained function."""
        raise NotImplementedError

    def _new_upkeep(self) -> BackgroundTasks | None:
        """Return the periodic tasks of the model, or ``None`` without any."""
        raise NotImplementedError

    def _description(self) -> dict[str, Any]:
        """Return the description of the model without tensors and parameters: JSON values and kernels."""
        fields = self._state.numeric.fields
        names = {"fields": field_names.pack(fields)[0]} if fields else {}
        return {"kernel": self.kernel_, "columns": self._learner.columns} | names

    def _tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with it."""
        found = self._state
        first = {} if found.first is None else example_tensors.pack_examples("first", found.first)
        scales = {} if found.scales is None else found.scales.tensors()
        upkeep = {} if found.upkeep is None else found.upkeep.tensors()
        return (
            found.learner.tensors()
            | first
            | scales
            | upkeep
            | numeric_names.pack(found.numeric.counts)
            | ({"field_names": field_names.pack(found.numeric.fields)[1]} if found.numeric.fields else {})
        )

    @locked(inside=on_copy)
    def _describe(self) -> tuple[dict[str, Any], tensor_file.Tensors]:
        self._recover()
        return self._description(), self._tensors()

    def _restore(self, description: Mapping[str, Any], tensors: dict[str, Any]) -> None:
        labels = self._labels_in(description)
        learner = self._new_learner(model_file.kernel_in(description, self._wanted), self._columns(len(labels)))
        if description["columns"] != learner.columns:
            raise ValueError(f"expected {learner.columns} columns, got {description['columns']!r}")
        learner.restore(tensors)
        scales = None if self._state.scales is None else scaling.Scales()
        if scales is not None:
            scales.restore(tensors)
        first = example_tensors.unpack_examples("first", tensors, learner.directions, learner.n_targets)
        learner.check_targets([y for _, y in first or []])
        if len(first or []) >= bandwidth.FIRST:
            raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
        known = None if first is None else tuple(first)
        counts, fields = numeric_names.unpack(tensors), self._state.numeric.fields
        if fields is not None and "fields" in description:
            pairs = tensor_file.require_tensor(tensors, "field_names", np.int64, (None, 2))
            fields = field_names.unpack(description["fields"], pairs)
        numeric = numeric_names.NumericNames(counts, fields)
        self._state = State(learner, scales, known, labels, self._new_upkeep(), numeric, self._own_in(tensors))
        upkeep = self._state.upkeep
        if upkeep is not None and "upkeep.numbers" in tensors:  # a copy that only predicts has none
            self._state = replace(self._state, upkeep=upkeep.restore(learner, tensors))  # its job reads the kernel

    def _labels_in(self, description: Mapping[str, Any]) -> dict[Any, int]:
        """Return the labels of a description."""
        return {}

    def _own_in(self, tensors: Mapping[str, Any]) -> Any:
        """Return a subclass's own state from a description."""
        return None

    def _columns(self, labels: int) -> int:
        """Return the number of columns of f for a number of labels."""
        return 1
