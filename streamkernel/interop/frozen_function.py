"""The function of a model as arrays: the input of `numpy_predictor`, and the content of an ONNX graph.

It is a copy of one moment: the order of inputs, their scales, the kernel's directions along each of them, coefficients
of the random features with the weights of the mixture multiplied in, the linear function, and recent examples.
"""

from __future__ import annotations

import io
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from river import compose

from streamkernel import losses, tensor_file
from streamkernel.estimators import internals
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import learner_of, loss_of, names_learned_by, scales_of
from streamkernel.estimators.several_targets import KernelMultiLabelClassifier, SeveralTargetsModel
from streamkernel.features import numeric_names
from streamkernel.features.counter_rng import hash64
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.rows import F64, U64
from streamkernel.features.scaling import Scales
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.interop import frozen_features, numpy_predictor
from streamkernel.interop.frozen_features import coefficients, others, parts_of, terms_of
from streamkernel.learners.span import limits
from streamkernel.learners.state import LEARNED, MEAN
from streamkernel.losses.loss import SOFTMAX
from streamkernel.second_order.mixture import SecondOrderLearner

MOST_NAMES = 1024
"""Largest number of inputs of a frozen function."""


@dataclass(frozen=True)
class FrozenFunction:
    """A function of rows of numbers, as `streamkernel.interop.numpy_predictor` evaluates it.

    `about` are JSON values: the names of the inputs, labels, how scores become probabilities, and the parts of the
    kernel. `arrays` are all numbers, by the names that the formulas have for them.
    """

    about: dict[str, Any]
    arrays: dict[str, Any]


def freeze(model: Any, features: Sequence[Hashable] | None = None) -> FrozenFunction:
    """Return the function of a classifier or a regressor, or of a pipeline of River's scalers and one.

    `features` are the names of the inputs in their order, ``"colour=red"`` for a string ``"red"`` in the field
    ``"colour"``; by default the names that were learned. Raise a ValueError if a step, the learner or the kernel cannot
    be frozen, or the inputs are not known; the message names it.
    """
    *steps, last = steps_of(model)
    if not isinstance(last, KernelModel):
        raise ValueError(
            f"Expected a KernelClassifier, a KernelRegressor or one of several targets, got a {type(last).__name__}"
        )
    frozen_features.check_scalers(steps)
    copied = internals.prediction_copy(model)
    *steps, model = steps_of(copied)
    learner, scales, numeric = learner_of(model), scales_of(model), names_learned_by(model)
    if steps and features is None and numeric.fields is None:
        features = in_order(frozen_features.names_scaled_by(steps[0]))
    names, hashes = _inputs(numeric, scales, features)
    readers = _readers(learner, names)
    arrays: dict[str, Any] = {"hashes": hashes}
    if scales is not None:
        arrays |= {f"scale.{name}": array for name, array in scales.in_use(hashes).items()}
    arrays |= frozen_features.scalers_together(steps, names)
    about: dict[str, Any] = {
        "version": 1,
        "features": [list(name) if isinstance(name, tuple) else name for name in names],
        "strings": _has_strings(names, numeric),
        "classes": learner.columns if not isinstance(model, SeveralTargetsModel) else 1,
        **_output(model),
    }
    parts, drawn = parts_of(learner, hashes, readers)
    about["parts"] = parts
    if isinstance(learner, SecondOrderLearner):
        about["terms"], terms = terms_of(learner, coefficients(learner))
        arrays |= others(learner, hashes, about)
    else:
        about["terms"], terms = terms_of(learner, learner.predicting())
        arrays |= _range(learner)
    always = {"constant": np.zeros(learner.columns), "offset": _offsets(learner)}
    return FrozenFunction(about, always | arrays | drawn | terms)


def steps_of(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or the model alone."""
    return list(model.steps.values()) if isinstance(model, compose.Pipeline) else [model]


def _offsets(learner: Any) -> F64:
    """Return the offset of each target in predictions."""
    numbers = learner.arrays.numbers if isinstance(learner, SecondOrderLearner) else learner.numbers
    return np.atleast_1d(np.array(numbers["predicted_offset"], np.float64))


def _range(learner: FirstOrderLearner) -> dict[str, F64]:
    """Return the limits of a first-order function without its offset, if there are any."""
    if learner.numbers["intercept"] not in (MEAN, LEARNED) or not learner.examples:
        return {}
    low, high = np.array(limits(learner.span)) - learner.numbers["predicted_offset"]
    return {"span": np.array([low, high, low, high])}


def _has_strings(names: Sequence[Hashable | None], numeric: NumericNames) -> bool:
    """Return whether there are columns for strings: names of which only the hash is known, or ``"field=value"``."""
    if numeric.fields is not None and None in names:
        return True
    return any(isinstance(name, str) and "=" in name and hash64(name) not in numeric.numbers for name in names)


def _inputs(
    numeric: NumericNames, scales: Scales | None, features: Sequence[Hashable] | None
) -> tuple[list[Hashable | None], U64]:
    """Return the names of inputs, ``None`` for an unknown one, and their hashes."""
    learned = numeric.numbers if scales is None else {*scales.names.tolist()}
    if features is None:
        if scales is None and len(numeric.counts) == numeric_names.MOST_NAMES:
            raise ValueError(
                f"Expected features=[...], the names of all inputs: the model keeps {len(numeric.counts)} of them"
            )
        fields = numeric.fields or {}
        named = in_order(fields[one] for one in learned if one in fields and hash64(fields[one]) == one)
        hashes = [hash64(name) for name in named]
        rest = sorted(learned.difference(hashes))
        names, hashes = [*named, *[None] * len(rest)], [*hashes, *rest]
    else:
        names, hashes = list(features), [hash64(name) for name in features]
        if len({*hashes}) < len(hashes):
            raise ValueError(f"Expected different names as features, got {names!r}")
        if scales is not None and not {*hashes} <= learned:
            strange = next(name for name, one in zip(names, hashes, strict=True) if one not in learned)
            raise ValueError(f"Expected names that the model has learned as features, got {strange!r}")
        missing = numeric.numbers - {*hashes}
        if missing:
            fields = numeric.fields or {}
            shown = ", ".join(repr(fields[one]) for one in sorted(missing) if one in fields) or str(len(missing))
            raise ValueError(f"Expected all names of numbers that the model has learned as features, missing {shown}")
    if not 1 <= len(hashes) <= MOST_NAMES:
        raise ValueError(f"Expected a model that has learned from 1 to {MOST_NAMES} names, got {len(hashes)}")
    return names, np.array(hashes, np.uint64)


def in_order(names: Iterable[Hashable]) -> list[Hashable]:
    """Return names sorted, by their text if they cannot be compared."""
    listed: list[Any] = list(names)
    try:
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=str)


def _readers(learner: Any, names: Sequence[Hashable | None]) -> Any:
    """Return which names each part of the kernel reads, shape (parts, names)."""
    plan = learner.directions.plan
    if plan.transforms:
        raise ValueError(f"Expected a kernel without transforms of its inputs, got {plan.kernel!r}")
    parts = np.arange(len(plan.parts))[:, None]
    if not any(view.names for _, view in plan.parts):
        return np.ones((len(parts), len(names)), bool)
    if None in names:
        raise ValueError(f"Expected features=[...], the names of all inputs, for {plan.kernel!r}")
    return (plan.readers(names)[None] >> parts) & 1 == 1


def _output(model: Any) -> dict[str, Any]:
    """Return the labels or the targets, and the function from scores to probabilities."""
    if isinstance(model, SeveralTargetsModel):
        if not model.targets:
            raise ValueError("Expected a model that has learned its targets, got an untrained one")
        link = "each" if isinstance(model, KernelMultiLabelClassifier) else "identity"
        return {"labels": [], "targets": list(model.targets), "link": link, "is_softmax": False}
    labels: Mapping[Any, int] | None = getattr(model, "labels", None)
    if labels is None:
        return {"labels": [], "link": "identity"}
    if not labels:
        raise ValueError("Expected a classifier that has learned a label, got an untrained one")
    if len(labels) == 1:
        link = "one"
    elif learner_of(model).columns == 1:
        link = "sigmoid"
    else:
        link = "softmax" if isinstance(loss_of(model), (losses.Logistic, losses.Softmax)) else "rest"
    return {"labels": list(labels), "link": link, "is_softmax": bool(learner_of(model).numbers["loss"] == SOFTMAX)}


def to_numpy(model: Any, path: str | Path, features: Sequence[Hashable] | None = None) -> None:
    """Write a model for :class:`numpy_predictor.Predictor`, with that predictor, which needs only NumPy, beside it.

    Parameters
    ----------
    model : KernelClassifier, KernelRegressor, one of several targets, or Pipeline
        A model, which does not change. A pipeline may have River's ``StandardScaler``, ``MinMaxScaler`` or
        ``MaxAbsScaler`` in front of it.
    path : str or Path
        The file, ``.npz``; ``numpy_predictor.py`` is written into the same folder.
    features : list of str or None, default None
        Names of the inputs, in the order of the columns of arrays; ``None``: the names that the model has learned.

    Raises
    ------
    ValueError
        If a step, the learner or the kernel cannot be exported, or the names of the inputs are unknown; names it.

    Examples
    --------
    >>> import tempfile
    >>> from streamkernel import KernelRegressor
    >>> from streamkernel.interop import to_numpy
    >>> from streamkernel.interop.numpy_predictor import Predictor
    >>> model = KernelRegressor(max_features=256)
    >>> for i in range(500):
    ...     model.learn_one({"x": i % 10}, float(i % 10))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     to_numpy(model, f"{directory}/model.npz")
    ...     copy = Predictor(f"{directory}/model.npz")
    >>> round(abs(copy.predict_one({"x": 3}) - model.predict_one({"x": 3})), 5)
    0.0
    """
    function, path = freeze(model, features), Path(path)
    for part in function.about["parts"]:
        if part["form"] not in numpy_predictor.FORMS:
            kernel = steps_of(model)[-1].kernel_
            raise ValueError(f"Expected a kernel that the predictor with NumPy has, got {kernel!r}; use ONNX")
    content = io.BytesIO()
    np.savez(content, about=np.array(json.dumps(function.about)), **function.arrays)
    tensor_file.put(path, content.getvalue())
    tensor_file.put(path.with_name("numpy_predictor.py"), Path(numpy_predictor.__file__).read_bytes())
