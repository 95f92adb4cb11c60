"""The functions, methods and compiled classes that River's objects refer to.

River has no public names for them. They are found in fresh objects of public classes, so that a River that names them
otherwise is understood too, and none of them has to exist before a checkpoint needs it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

from river import (
    base,
    drift,
    ensemble,
    feature_extraction,
    linear_model,
    metrics,
    multiclass,
    preprocessing,
    stats,
)


def functions() -> frozenset[FunctionType]:
    """Return the functions that River's objects refer to.

    Examples
    --------
    >>> sorted(function.__name__ for function in functions())[2:5]
    ['find_all_ngrams', 'remove_stop_words', 'strip_accents_unicode']
    """
    words = feature_extraction.BagOfWords(stop_words={"a"}, ngram_range=(1, 2))
    means = [metrics.AdjustedMutualInfo(average_method=mean) for mean in ("arithmetic", "geometric")]
    return frozenset(found for found in _referred([words, *means]) if isinstance(found, FunctionType))


@functools.cache
def methods() -> frozenset[Callable[..., Any]]:
    """Return the methods that River's objects refer to, as functions.

    Examples
    --------
    >>> feature_extraction.RBFSampler(seed=1).weights.default_factory.__func__ in methods()
    True
    """
    numbers, classes = linear_model.LinearRegression(), linear_model.LogisticRegression()
    samples = [
        *(
            ensemble.LeveragingBaggingClassifier(classes, n_models=2, bagging_method=method)
            for method in ("bag", "me", "half", "wt", "subag")
        ),
        feature_extraction.RBFSampler(),
        multiclass.OutputCodeClassifier(classes, code_size=1),
        *(linear_model.PAClassifier(mode=mode) for mode in (0, 1, 2)),
        preprocessing.GaussianRandomProjector(),
        preprocessing.SparseRandomProjector(),
        preprocessing.TargetMinMaxScaler(numbers),
        preprocessing.TargetStandardScaler(numbers),
    ]
    return frozenset(found.__func__ for found in _referred(samples) if isinstance(found, MethodType))


def wrapped_model(wrapper: base.Wrapper[Any]) -> Any:
    """Return the model in one of River's wrappers, which is the first argument of its constructor.

    Examples
    --------
    >>> wrapped_model(multiclass.OneVsRestClassifier(linear_model.PAClassifier(mode=2))).mode
    2
    """
    return getattr(wrapper, next(iter(inspect.signature(type(wrapper)).parameters)))


def _referred(objects: Iterable[Any]) -> Iterator[Any]:
    """Yield what the attributes of objects refer to: directly, in lists, in partials, or as a default factory."""
    for one in objects:
        for value in vars(one).values():
            for part in value if type(value) is list else [value]:
                yield getattr(part, "func", getattr(part, "default_factory", part))


COMPILED: dict[str, type] = {
    f"{type(part).__module__}.{type(part).__qualname__}": type(part)
    for part in _referred(
        [
            drift.ADWIN(),
            metrics.RollingPRAUC(),
            metrics.RollingROCAUC(),
            stats.EWMean(),
            stats.EWVar(),
            stats.IQR(),
            stats.Kurtosis(),
            stats.PeakToPeak(),
            stats.Quantile(),
            stats.RollingIQR(window_size=1),
            stats.RollingQuantile(0.5, window_size=1),
            stats.Skew(),
        ]
    )
    if hasattr(part, "__setstate__")
}
"""River's statistics in compiled code, which serialize themselves as bytes."""
