"""A model as JSON values and arrays: the content of its files, and its restoration from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.estimators.model import Model
from streamkernel.estimators.model_file import kernel_in
from streamkernel.estimators.model_state import State
from streamkernel.features import example_tensors, numeric_names, scaling
from streamkernel.kernels import bandwidth
from streamkernel.locking import locked, on_copy


@locked(inside=on_copy)
def describe_model(model: Model) -> tuple[dict[str, Any], tensor_file.Tensors]:
    """Return the description of a model, JSON values and kernels, and its learned state as arrays of their own."""
    model.recover()
    found, fields = model.state, model.state.numeric.fields
    description = {"kernel": found.learner.kernel, "columns": found.learner.columns}
    tensors = found.learner.tensors()
    if found.first is not None:
        tensors |= example_tensors.pack_examples("first", found.first)
    for part in (found.scales, found.upkeep):
        tensors |= {} if part is None else part.tensors()
    tensors |= numeric_names.pack(found.numeric.counts)
    if fields:
        description["fields"], tensors["field_names"] = numeric_names.pack_fields(fields)
    return description | model.outputs.describe(found.labels), tensors | model.outputs.tensors(found.own)


def restore_model(model: Model, description: Mapping[str, Any], tensors: tensor_file.Tensors) -> None:
    """Restore the state of a model with the same parameters from its description and tensors."""
    outputs, before = model.outputs, model.state
    labels = outputs.labels_in(description)
    learner = model.new_learner(kernel_in(description, model.kernel), outputs.columns(len(labels)))
    if description["columns"] != learner.columns:
        raise ValueError(f"expected {learner.columns} columns, got {description['columns']!r}")
    learner.restore(tensors)
    scales = None if before.scales is None else scaling.Scales()
    if scales is not None:
        scales.restore(tensors)
    first = example_tensors.unpack_examples("first", tensors, learner.directions, learner.n_targets)
    learner.check_targets([y for _, y in first or []])
    if len(first or []) >= bandwidth.FIRST:
        raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
    known = None if first is None else tuple(first)
    counts, fields = numeric_names.unpack(tensors), before.numeric.fields
    if fields is not None and "fields" in description:
        pairs = tensor_file.require_tensor(tensors, "field_names", np.int64, (None, 2))
        fields = numeric_names.unpack_fields(description["fields"], pairs)
    numeric = numeric_names.NumericNames(counts, fields)
    upkeep = model.new_upkeep()
    model.state = State(learner, scales, known, labels, upkeep, numeric, outputs.own_in(tensors))
    if upkeep is not None and "upkeep.numbers" in tensors:  # a copy that only predicts has none
        model.state = replace(model.state, upkeep=upkeep.restore(learner, tensors))  # its job reads the kernel
