"""Merging of preprocessing steps (moments, ranges and categories of all events), and why models cannot be merged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from river import base, feature_extraction, preprocessing

from streamkernel.engine.fields import OnFields
from streamkernel.engine.pipelines import first_steps, last_step
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.random_features import RandomFeatures
from streamkernel.estimators.standard_scaler import StandardScaler

FIXED = (
    preprocessing.Binarizer,
    preprocessing.FeatureHasher,
    preprocessing.Normalizer,
    feature_extraction.BagOfWords,
    feature_extraction.PolynomialExtender,
    RandomFeatures,  # the first events, which one worker learns, determine its bandwidth
)
"""Steps that events do not change."""


def problem_of_step(step: base.Transformer) -> str | None:
    """Return the reason why a step cannot be merged, or ``None`` if it can.

    Examples
    --------
    >>> problem_of_step(preprocessing.StandardScaler())
    >>> problem_of_step(preprocessing.OrdinalEncoder())
    'expected a step whose state can be merged (Binarizer, FeatureHasher, Normalizer, BagOfWords, PolynomialExtender,
    RandomFeatures, StandardScaler, MinMaxScaler, MaxAbsScaler, OneHotEncoder), got OrdinalEncoder'
    """
    inner = step.transformer if isinstance(step, OnFields) else step
    if type(inner) not in (*FIXED, *_MERGES):
        names = ", ".join(dict.fromkeys(kind.__name__ for kind in (*FIXED, *_MERGES)))
        return f"expected a step whose state can be merged ({names}), got {type(inner).__name__}"
    if getattr(inner, "window_size", None) is not None:
        return f"expected a step without a window, got a {type(inner).__name__} with one"
    return None


def merge_steps(before: base.Transformer, parts: Sequence[base.Transformer]) -> base.Transformer:
    """Return one step that combines what each worker, now at `parts`, has learned since the step `before`."""
    if isinstance(before, OnFields):
        return OnFields(merge_steps(before.transformer, [part.transformer for part in parts]), before.on)  # type: ignore[attr-defined]
    merged = copy.deepcopy(before)
    if type(before) in _MERGES:
        _MERGES[type(before)](merged, before, parts)
    return merged


def _moments(merged: Any, before: Any, parts: Sequence[Any]) -> None:
    """Add counts, sums, and sums of squares about the earlier mean, which keeps precision for large means."""
    for name in dict.fromkeys(name for one in (before, *parts) for name in one.counts):
        centre = next(one.means[name] for one in (before, *parts) if name in one.means)
        count, total, squares = (-(len(parts) - 1) * sum_ for sum_ in _sums(before, name, centre))
        for part in parts:
            n, s, q = _sums(part, name, centre)
            count, total, squares = count + n, total + s, squares + q
        mean = total / count
        merged.counts[name], merged.means[name] = count, centre + mean
        if merged.with_std:
            merged.vars[name] = max(0.0, squares / count - mean * mean)


def _sums(scaler: Any, name: Any, centre: float) -> tuple[int, float, float]:
    n = scaler.counts.get(name, 0)
    off = scaler.means[name] - centre if n else 0.0
    return n, n * off, n * ((scaler.vars[name] if n and scaler.with_std else 0.0) + off * off)


def _ranges(*fields: str) -> Callable[[Any, Any, Sequence[Any]], None]:
    """Return a function that merges minima or maxima stored under these names."""

    def merge(merged: Any, before: Any, parts: Sequence[Any]) -> None:
        for field in fields:
            for part in parts:
                for name, extreme in getattr(part, field).items():
                    getattr(merged, field)[name].update(extreme.get())

    return merge


def _categories(merged: Any, before: Any, parts: Sequence[Any]) -> None:
    if merged.drop_zeros or merged.categories is not None:
        return
    for part in parts:
        for name, values in part.values.items():
            for value in sorted(values, key=repr):
                merged.learn_one({name: value})


_MERGES: dict[type, Callable[[Any, Any, Sequence[Any]], None]] = {
    preprocessing.StandardScaler: _moments,
    StandardScaler: _moments,
    preprocessing.MinMaxScaler: _ranges("min", "max"),
    preprocessing.MaxAbsScaler: _ranges("abs_max"),
    preprocessing.OneHotEncoder: _categories,
}


def merge_problems(pipeline: Any, where: str) -> Iterator[str]:
    """Yield the reasons why copies of a pipeline cannot be merged.

    `pipeline` are the preprocessing steps and the model, or the model alone. `where` is where they would be merged, for
    the messages.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, KernelMultiTargetRegressor, upkeep
    >>> list(merge_problems(KernelMultiTargetRegressor(), "on a cluster"))
    []
    >>> list(merge_problems(KernelClassifier(pruning=upkeep.Pruning()), "on a cluster"))
    ['model.pruning: expected none on a cluster, got a Pruning']
    """
    model = last_step(pipeline)
    if not isinstance(model, KernelModel):
        yield f"model: expected KernelClassifier or KernelRegressor {where}, got {type(model).__name__}"
    else:
        for name in ("pruning", "refit"):
            if getattr(model, name) is not None:
                yield f"model.{name}: expected none {where}, got a {type(getattr(model, name)).__name__}"
    for i, step in enumerate(first_steps(pipeline).values()):
        problem = problem_of_step(step)
        if problem:
            yield f"preprocessing[{i}]: {problem}"
