"""Model files: safetensors, with a JSON description in the header. Reading one executes nothing of its content."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamkernel import kernels, learners, losses, rules, step_sizes, tensor_file, upkeep
from streamkernel.errors import ModelFileError
from streamkernel.estimators.model import Model
from streamkernel.estimators.model_state import State
from streamkernel.estimators.parameters import Parameter, parameters_of
from streamkernel.features import example_tensors, numeric_names, scaling
from streamkernel.kernels import bandwidth
from streamkernel.kernels.stationary import Stationary
from streamkernel.locking import locked, on_copy
from streamkernel.tensor_file import Tensors, enough_memory, write

_SHOWN = {
    "learner_": "learner",
    "kernel_": "kernel",
    "_events": "events learned",
    "n_features": "random features",
    "n_seeds": "blocks",
    "labels": "labels",
    "mixture_weights": "weights in the mixture",
    "objective": "regularised loss, recent",
    "gap": "gap of the last refit",
    "threshold": "threshold τ",
    "divergence": "divergence",
    "noise_variance": "variance of the noise",
    "statistic": "evidence of drift",
    "drift_detected": "drift detected",
}
"""Attributes of models that a notebook shows, with their descriptions."""
_MOST = 20
"""Largest number of labels that are shown."""
_TABLE = "border-collapse:collapse;margin:2px 0;font-size:inherit;color:inherit"
_CELL = "text-align:left;vertical-align:top;padding:1px 10px 1px 0;border:0;background:none;color:inherit"
_PARTS: dict[str, dict[str, Any]] = {
    parameter: {name: found for name in module.__all__ if dataclasses.is_dataclass(found := vars(module).get(name))}
    for parameter, module in (
        ("kernel", kernels),
        ("loss", losses),
        ("learner", learners),
        ("rule", rules),
        ("step_size", step_sizes),
        ("pruning", upkeep),
        ("refit", upkeep),
    )
}
"""The classes that may stand for a parameter in a description."""
CLASS_WEIGHT = "class_weight"
"""A parameter whose names are labels."""


@locked(inside=on_copy)
def describe_model(model: Model) -> tuple[dict[str, Any], tensor_file.Tensors]:
    """Return the description of a model, JSON values and kernels, and its learned state as arrays of their own."""
    model.recover()
    state, fields = model.state, model.state.numeric.fields
    description = {"kernel": state.learner.kernel, "columns": state.learner.columns}
    tensors = state.learner.tensors()
    if state.first is not None:
        tensors |= example_tensors.pack_examples("first", state.first)
    for part in (state.scales, state.upkeep):
        tensors |= {} if part is None else part.tensors()
    tensors |= numeric_names.pack(state.numeric.counts)
    if fields:
        description["fields"], tensors["field_names"] = numeric_names.pack_fields(fields)
    return description | model.outputs.describe(state.labels), tensors | model.outputs.tensors(state.own)


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
    first_examples = None if first is None else tuple(first)
    outputs_state = outputs.own_in(tensors, len(labels))
    counts, fields = numeric_names.unpack(tensors), before.numeric.fields
    if fields is not None and "fields" in description:
        pairs = tensor_file.require_tensor(tensors, "field_names", np.int64, (None, 2))
        fields = numeric_names.unpack_fields(description["fields"], pairs)
    numeric = numeric_names.NumericNames(counts, fields)
    upkeep = model.new_upkeep()
    model.state = State(learner, scales, first_examples, labels, upkeep, numeric, outputs_state)
    if upkeep is not None and "upkeep.numbers" in tensors:  # a copy that only predicts has none
        model.state = replace(model.state, upkeep=upkeep.restore(learner, tensors))  # its job reads the kernel


def html_table(model: Any) -> str:
    """Return the view of an estimator, without scripts and colours, so that it is readable on any page."""
    title, facts = escape(type(model).__name__), "".join(_row(word, text) for word, text in _facts_at_once(model))
    parameters = "".join(_row(name, value, is_given) for name, value, is_given in _parameters(model))
    return (
        f'<div style="font-size:90%;line-height:1.4"><b>{title}</b><table style="{_TABLE}">{facts}</table>'
        f'<details><summary>parameters</summary><table style="{_TABLE}">{parameters}</table></details></div>'
    )


def _facts_at_once(model: Any) -> list[tuple[str, str]]:
    """Return the facts of one moment, which another thread that learns may end: they are read until they stay."""
    facts, again = None, [*_facts(model)]
    while facts != again:
        facts, again = again, [*_facts(model)]
    return again


def _facts(model: Any) -> Iterator[tuple[str, str]]:
    """Yield a description and a value for each attribute that the model has."""
    has_learned = bool(getattr(model, "_events", 1))
    for name, word in _SHOWN.items():
        value = getattr(model, name, None)
        if isinstance(value, float) and not has_learned:
            continue
        text = "" if value is None else _text(name, value)
        if name == "kernel_" and getattr(model, "_is_provisional", False):
            text += " (provisional)"
        if text:
            yield word, text
    if "seed" in signature(type(model)).parameters:
        yield "seed", str(model.seed)


def _text(name: str, value: Any) -> str:
    if name == "labels":
        rest = len(value) - _MOST
        return ", ".join(map(repr, list(value)[:_MOST])) + (f" and {rest} more" if rest > 0 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {share:.2f}" for key, share in value.items())
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else ""
    return f"{value:,}" if type(value) is int else repr(value)


def _parameters(model: Any) -> Iterator[tuple[str, str, bool]]:
    """Yield the parameters of a model, and whether they differ from the defaults."""
    values = parameters_of(model)
    for name, parameter in signature(type(model)).parameters.items():
        value = repr(values[name])
        yield name, value, value != repr(parameter.default)


def _row(word: str, text: str, bold: bool = False) -> str:
    shown = f"<b>{escape(text)}</b>" if bold else escape(text)
    cells = f'<td style="{_CELL};white-space:nowrap;opacity:.7">{escape(word)}</td><td style="{_CELL}">{shown}</td>'
    return f'<tr style="background:none">{cells}</tr>'


_CLASSES: dict[str, type[Serializable]] = {}
"""The estimators of this library by name: what a file may hold."""


class Serializable:
    """A River estimator that is serialized as its parameters, a JSON description and tensors."""

    _repr_html_ = html_table

    def __init_subclass__(cls, **options: Any) -> None:
        """Register the subclass as a class that files may contain, whose parameters stay as they were given."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            for name in list(inspect.signature(cls.__init__).parameters)[1:]:
                setattr(cls, name, Parameter(name))
        if cls.__module__.startswith("streamkernel."):
            _CLASSES[cls.__name__] = cls

    def save(self, path: str | Path) -> None:
        """Write the model to one file: safetensors with a JSON description, no direction and no code.

        Parameters
        ----------
        path
            The file; it is replaced atomically.

        Raises
        ------
        ModelFileError
            If the model could not be read again; the file is as before.
        """
        write(Path(path), "model", *describe(self), rebuild=rebuild)

    def _describe(self) -> tuple[dict[str, Any], Tensors]:
        """Return the description of the model without parameters, JSON values and kernels, and its tensors.

        Both are from the same moment, and share nothing with the model.
        """
        raise NotImplementedError

    def _restore(self, description: Mapping[str, Any], tensors: Tensors) -> None:
        """Restore the state of a model with the same parameters from its description and tensors."""
        raise NotImplementedError

    def _twin(self, **changed: Any) -> Self:
        """Return an object with the same attributes, except for the ones that are given."""
        twin: Self = object.__new__(type(self))
        vars(twin).update(vars(self), **changed)
        return twin

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """Return a model with the same parameters, some of them changed if there are `new_params`.

        Parameters
        ----------
        new_params
            Parameters that are changed.
        include_attributes
            Whether it has also learned what this model has.
        """
        twin: Self = super().clone(new_params)  # type: ignore[misc]  # River's
        if include_attributes:
            twin._restore(*self._describe())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle, as a model file has it."""
        description, tensors = self._describe()
        return {"parameters": parameters_of(self), "description": description, "tensors": tensors}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the model from the state for pickle."""
        self.__init__(**state["parameters"])  # type: ignore[misc]
        self._restore(state["description"], state["tensors"])


def describe(model: Serializable) -> tuple[dict[str, Any], Tensors]:
    """Return the description of `model` as JSON values, and its tensors."""
    description, tensors = model._describe()
    content = {"class": type(model).__name__, "parameters": parameters_of(model), "state": description}
    return _encode(content), tensors


def rebuild(description: Mapping[str, Any], tensors: Tensors, where: str) -> Any:
    """Return the model that :func:`describe` described.

    Raise a ModelFileError if it is no model of this library, or its parts do not fit together.
    """
    classes = _CLASSES
    class_name = description.get("class") if isinstance(description, dict) else None
    if not isinstance(class_name, str) or class_name not in classes:
        raise ModelFileError(
            f"Expected a model of class {' or '.join(sorted(classes))}, got {class_name!r} - in {where}"
        )
    try:
        with enough_memory(where):
            parameters, state = (_decode(name, description[name]) for name in ("parameters", "state"))
            model = classes[class_name](**parameters)
            model._restore(state, tensors)
    except ModelFileError:
        raise
    except Exception as error:  # of a constructor that was given other parts
        raise ModelFileError(f"Expected the parts of a {class_name}, got {error} - in {where}") from error
    return model


def kernel_in(description: Mapping[str, Any], wanted: kernels.Kernel) -> kernels.Kernel:
    """Return the described kernel, which must be `wanted` with its pending bandwidths as numbers.

    Raise a ValueError if it is another kernel; the sizes of its parts would not fit when the next bandwidth is taken.
    """
    kernel = description["kernel"]
    if not _is_with_bandwidths(kernel, wanted):
        raise ValueError(f"expected {wanted!r} with bandwidths as the kernel in use, got {kernel!r}")
    return kernel  # type: ignore[no-any-return]


def _is_with_bandwidths(described: Any, wanted: Any) -> bool:
    if not isinstance(wanted, kernels.Kernel) or type(described) is not type(wanted):
        return bool(described == wanted)
    if isinstance(wanted, Stationary) and isinstance(described, Stationary) and wanted.is_pending:
        return bool(described.pending(wanted.median_factor) == wanted)
    names = [field.name for field in dataclasses.fields(wanted)]  # type: ignore[arg-type]  # all kernels are
    return all(_is_with_bandwidths(getattr(described, name), getattr(wanted, name)) for name in names)


def _encode(value: Any) -> Any:
    """Return a kernel, a loss, a rule or a step as a table with its ``type``, and JSON values as they are."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, dict):
        return {name: _pairs(item) if name == CLASS_WEIGHT else _encode(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if callable(value):
        raise ValueError(f"Expected a transform by its name in a model that is written to a file, got {value!r}")
    return value


def _pairs(value: Any) -> Any:
    """Return weights by label as pairs: JSON has only strings as names, and labels may be others."""
    return [[label, w] for label, w in value.items()] if isinstance(value, Mapping) else value


def _decode(name: str, value: Any) -> Any:
    """Return the value that :func:`_encode` wrote for the parameter called `name`."""
    if name == CLASS_WEIGHT and isinstance(value, list):
        return dict(value)
    if not isinstance(value, dict):
        return value
    if "type" not in value:
        return {key: _decode(key, part) for key, part in value.items()}
    constructor = _PARTS.get(name, _PARTS["kernel"]).get(str(value.get("type")))
    if constructor is None:
        raise ValueError(f"a {name} of unknown type {value.get('type')!r}")
    return constructor(**{key: _decode(key, part) for key, part in value.items() if key != "type"})
