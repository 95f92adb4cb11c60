"""Merging of whole models: equal parameters, labels, scales, and their functions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from streamkernel import losses
from streamkernel.errors import MergeError
from streamkernel.estimators import model_file
from streamkernel.estimators.outputs import LabelForms
from streamkernel.estimators.parameters import parameters_of
from streamkernel.features import numeric_names
from streamkernel.features.rows import F64, I64, Rows
from streamkernel.kernels import bandwidth
from streamkernel.merging import first_order, second_order
from streamkernel.merging.summaries import (
    FirstOrderSummary,
    SecondOrderSummary,
    add_parts,
    columns_of,
    merge_scales,
    union,
)

KernelModel = Any
"""A classifier or a regressor. Their base class merges by this module, which so cannot import it."""

_ORDERS: dict[str, Any] = {"first": first_order, "second": second_order}
"""How functions are summarized and merged, by the order of their steps."""

MOST_EVENTS = 1 << 53
"""Counts up to this one are exact as real numbers too."""

_MAY_DIFFER = ("cache_bytes", "pruning", "refit")


@dataclass(frozen=True)
class Outline:
    """The summary of a function without its large arrays.

    `kept` are features that are kept since the function was pruned.
    """

    numbers: Any
    pending: list[tuple[Rows, float]]
    kept: I64


class Summary(NamedTuple):
    """The summary of a model for merging: plain values and arrays.

    `same` are the properties that must be equal in all models. `labels` are the labels that a classifier knows, in its
    order, or the targets, if there are several; nothing of a regressor. `counts` are the examples of each class, where
    the model counts them.
    """

    same: dict[str, Any]
    labels: list[Hashable]
    learned: Outline | FirstOrderSummary | SecondOrderSummary
    scales: Mapping[str, Any] | None
    numeric: numeric_names.NumericNames
    counts: F64 | None

    @property
    def events(self) -> int:
        """Learned examples."""
        return int(self.learned.numbers["examples"])

    @property
    def examples(self) -> int:
        """Learned and buffered examples."""
        return self.events + len(self.waiting)

    @property
    def waiting(self) -> list[tuple[Rows, Any]]:
        """Buffered examples, with their labels or targets."""
        pending = [] if isinstance(self.learned, SecondOrderSummary) else self.learned.pending
        return [(row, self.labels[int(y)] if self.labels else y) for row, y in pending]


def summarize(model: KernelModel) -> Summary:
    """Return the summary of a model, after it has taken the step for its buffered examples.

    Raise a MergeError if it has not seen the examples that decide its bandwidths.
    """
    outline, learner = _outline(model), model._learner
    return outline._replace(learned=_ORDERS[learner.order].summarize(learner))


def n_examples(model: KernelModel) -> int:
    """Return the number of examples that a model has learned or buffered."""
    return _outline(model).examples


def check(models: Sequence[KernelModel], base: KernelModel | None = None) -> None:
    """Raise an error for models that cannot be merged, as far as that is known before they take a step.

    Raise a MergeError if they have not the same parameters, kernel, scales and features, one of them is of another kind
    or comes twice, or a base cannot be the one from which they continued.
    """
    root = None if base is None else _outline(base)
    parts = [_outline(model) for model in models]
    _check(parts, root)
    trained = [part for part in parts if part.examples]
    if trained:
        try:
            model_file.kernel_in(trained[0].same, models[0]._model.kernel)
        except ValueError as error:
            raise MergeError(f"Expected models of the same kernel: {error}") from None
    _scales(trained, root)
    if root is not None and root.waiting and len(trained) > 1:
        _check_waiting(trained, root)
    order = _ORDERS[models[0]._learner.order]
    if order is second_order:
        functions: Any = [part.learned for part in ([] if root is None else [root]) + parts if part.examples]
        second_order.check(functions)
    if base is not None and order is second_order:
        second_order.check_base([model._learner for model in models], base._learner)
    if len({id(model) for model in models}) < len(models):
        raise MergeError("Expected different models, got one twice; its events would count twice")


def merge_into(model: KernelModel, parts: Sequence[Summary], base: Summary | None = None) -> None:
    """Turn a model into the merged one of several.

    `parts` are summaries of the other models, of the same class and parameters. Raise a MergeError if their parameters,
    kernels or scales differ, or if one has what no model learns, such as NaN or an array of another shape; the model
    does not change then.
    """
    try:
        merged = _merge(model, parts, base)
    except MergeError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise MergeError(f"Expected what models have learned, got something else: {error}") from error
    if merged is not None:
        upkeep, model._model.state = model._state.upkeep, merged
        if upkeep is not None:
            upkeep.abandon()


def _merge(model: KernelModel, parts: Sequence[Summary], base: Summary | None) -> Any:
    """Return the state of the merged model, ``None`` if there is nothing to merge."""
    _check(parts, base)
    base, *parts = _in_first_forms(base, *parts)
    numeric = model._state.numeric
    for part in parts if base is None else (base, *parts):
        numeric = numeric_names.join_names(numeric, part.numeric)
    before = 0 if base is None else base.events
    waiting = [_waiting(part, base) for part in parts]
    more = [bool(part.events > before or own) for part, own in zip(parts, waiting, strict=True)]
    if not any(more):
        more = [part.examples > 0 for part in parts]  # an empty model becomes what the base is
        if len(set(more)) < 2:
            return None
    if base is not None and sum(map(len, waiting)) < sum(len(part.waiting) for part in parts):
        waiting.append(base.waiting)  # none has learned them
    parts = [part for part, is_one in zip(parts, more, strict=True) if is_one]
    labels = union([part.labels for part in ([] if base is None else [base]) + list(parts)])
    order = _ORDERS[model._learner.order]
    own = [_with_labels(part, labels) for part in parts]
    root = own[0].before() if base is None or not before else _with_labels(base, labels)
    events = np.array([part.events - before for part in parts], np.float64)
    weights = events / events.sum() if events.any() else np.full(len(parts), 1.0 / len(parts))
    fresh, kernel = type(model)(**parameters_of(model)), parts[0].same["kernel"]
    columns = own[0].columns
    tensors = order.merge(fresh._model.new_learner(kernel, columns), own, root, weights) | _scales(parts, base)
    tensors |= _class_counts(parts, base, labels)
    fresh._restore({"kernel": kernel, "columns": columns, "labels": labels, "targets": labels}, tensors)
    learner = fresh._learner
    for examples in waiting:
        for row, y in examples:
            learner.learn_one(learner.directions.adopt_rows(row), float(labels.index(y)) if labels else y)
    fresh._model.restructure(before)
    upkeep = model._state.upkeep
    upkeep_after = None if upkeep is None else replace(upkeep, job=None, fed=0)
    return replace(fresh._state, upkeep=upkeep_after, numeric=numeric)


def _waiting(part: Summary, base: Summary | None) -> list[tuple[Rows, Any]]:
    """Return the buffered examples of a model, except the ones that its base had buffered."""
    waiting, old = part.waiting, [] if base is None else base.waiting
    same = [b == d and all(map(np.array_equal, a[2:], c[2:])) for (a, b), (c, d) in zip(waiting, old, strict=False)]
    return waiting[len(old) :] if len(same) == len(old) and all(same) else waiting


def _outline(model: KernelModel) -> Summary:
    """Return the summary of a model without the large arrays.

    Raise a MergeError if it is of a kind that is not merged, or still gathers the examples that decide its bandwidths.
    """
    if getattr(model, "_for_classes", None) is None:
        raise MergeError(f"Expected classifiers or regressors to merge, got a {type(model).__name__}")
    if model._state.first:
        raise MergeError(
            f"Expected a model of {bandwidth.FIRST} examples or more, which decide its bandwidths and λ, got one that "
            f"has seen {len(model._state.first)}"
        )
    same = {name: value for name, value in parameters_of(model).items() if name not in _MAY_DIFFER}
    learner, labels = model._learner, list(model._state.labels)
    if hasattr(model, "targets"):
        same["targets"] = sorted(labels, key=repr)
    outline = Outline(learner.numbers.copy(), getattr(learner, "pending", []), learner.directions.kept)
    return Summary(
        {"class": type(model).__name__, **same, "kernel": model.kernel_},
        labels,
        outline,
        None if model._state.scales is None else model._state.scales.tensors(),
        model._state.numeric,
        model._state.own,
    )


def _scales(parts: Sequence[Summary], base: Summary | None) -> dict[str, Any]:
    """Return the scales of all models as tensors, if they have any."""
    if not parts or parts[0].scales is None:
        return {}
    return merge_scales([part.scales or {} for part in parts], None if base is None else base.scales)


def _class_counts(parts: Sequence[Summary], base: Summary | None, labels: Sequence[Hashable]) -> dict[str, Any]:
    """Return the number of examples of each class as tensors, if the models count them."""
    if parts[0].counts is None:
        return {}
    counts = np.zeros(len(labels))
    for part, sign in [*((part, 1.0) for part in parts), *([] if base is None else [(base, 1.0 - len(parts))])]:
        for label, count in zip(part.labels, part.counts if part.counts is not None else (), strict=True):
            counts[labels.index(label)] += sign * count
    return {"class_counts": counts}


def _in_first_forms(*parts: Any) -> list[Any]:
    """Return summaries, each of which may be ``None``, with one form of each label, in which it came first."""
    if any(part is not None and "targets" in part.same for part in parts):
        return list(parts)
    forms = LabelForms(label for part in parts if part is not None for label in part.labels)
    return [part and part._replace(labels=list(map(forms.of, part.labels))) for part in parts]


def _with_labels(part: Summary, labels: Sequence[Hashable]) -> Any:
    """Return the summary of a function with columns for all labels."""
    if not labels or isinstance(part.learned, Outline):
        return part.learned
    if "targets" in part.same and isinstance(part.learned, SecondOrderSummary):
        return part.learned.in_order([part.labels.index(name) for name in labels])
    loss = losses.resolve_loss(part.same["loss"], for_classes=True)
    half = 0.5 if isinstance(loss, losses.Logistic) else 1.0
    is_binary = not isinstance(loss, losses.Softmax)
    return part.learned.with_columns(columns_of(part.labels, labels, is_binary, half))


def spread_of(parts: Sequence[Summary], base: Summary | None = None) -> float:
    """Return the distance of the replicas' functions from their mean, relative to its norm.

    This is the root of Σ (n_i/n)‖f_i - f‖² over ‖f‖, in the norm of the coefficients.
    """
    events = np.array([part.events - (0 if base is None else base.events) for part in parts], np.float64)
    order = _ORDERS["second" if isinstance(parts[0].learned, SecondOrderSummary) else "first"]
    parts = _in_first_forms(*parts)
    labels = union([part.labels for part in parts])
    functions = order.coefficients([_with_labels(part, labels) for part in parts])
    weights = events / events.sum()
    mean = sum(w * f for w, f in zip(weights, functions, strict=True))
    square = sum(w * np.square(f - mean).sum() for w, f in zip(weights, functions, strict=True))
    return float(np.sqrt(square / max(np.square(mean).sum(), 1e-100)))


def _check(parts: Sequence[Summary], base: Summary | None) -> None:
    """Raise an error if models cannot be merged."""
    together = [*parts, *([] if base is None else [base])]
    events = add_parts([part.examples for part in parts], 0 if base is None else base.events)
    if events > MOST_EVENTS:
        raise MergeError(
            f"Expected models of {MOST_EVENTS:.0e} events in all at most, got {events:.0e}; if they have been merged "
            "before, the events since then count once with base="
        )
    first = max(together, key=lambda one: one.examples > 0)
    for other in together:
        for name, value in first.same.items():
            is_known = other.examples or name not in ("kernel", "targets")
            if is_known and other.same.get(name) != value:
                raise MergeError(f"Expected models of the same {name}, got {value!r} and {other.same.get(name)!r}")
        if (other.scales is None) != (first.scales is None):
            raise MergeError("Expected models that all scale their inputs or none, got some that have a kernel=")
        if base is not None and other.examples and other.events < base.events:
            raise MergeError(
                f"Expected models that continued from one of {base.events} examples, got one of {other.events}"
            )


def _check_waiting(parts: Sequence[Summary], base: Summary) -> None:
    """Raise an error if buffered examples of a base have been learned since; they would count once per model."""
    learned = sum(part.events > base.events for part in parts)
    if learned:
        raise MergeError(
            f"Expected a base without buffered examples, got {len(base.waiting)} that {learned} of {len(parts)} models "
            "have already learned; let the base learn until none is buffered, and branch then"
        )
