"""The classes and functions that a checkpoint may name: a short list, without imports.

A class of River is allowed if it is defined in one of the packages that hold what a pipeline is made of. The
packages that read files, download data sets or run other programs are not among them.

River has no public names for the functions, methods and compiled classes that its objects refer to. They are found in
fresh objects of public classes, so that a River with other names for them is understood too, and none of them has to
exist before a checkpoint needs it.
"""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import numbers
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from river import base, drift, ensemble, feature_extraction, linear_model, metrics, multiclass, preprocessing, stats
from river.drift import ADWIN

from streamkernel.conformal import ConformalClassifier, ConformalRegressor
from streamkernel.conformal.adaptive_level import AdaptiveLevel
from streamkernel.conformal.error_scale import ErrorScale
from streamkernel.conformal.rolling_scores import RollingScores
from streamkernel.engine import patterns
from streamkernel.engine.fields import OnFields
from streamkernel.engine.monitoring.kappa_t import KappaT
from streamkernel.estimators.standard_scaler import StandardScaler
from streamkernel.time_series import Calendar, Lags, LastTarget


def river_functions() -> frozenset[FunctionType]:
    """Return the functions that River's objects refer to.

    Examples
    --------
    >>> sorted(function.__name__ for function in river_functions())[2:5]
    ['find_all_ngrams', 'remove_stop_words', 'strip_accents_unicode']
    """
    words = feature_extraction.BagOfWords(stop_words={"a"}, ngram_range=(1, 2))
    means = [metrics.AdjustedMutualInfo(average_method=mean) for mean in ("arithmetic", "geometric")]
    return frozenset(part for part in _referred([words, *means]) if isinstance(part, FunctionType))


@functools.cache
def river_methods() -> frozenset[Callable[..., Any]]:
    """Return the methods that River's objects refer to, as functions.

    Examples
    --------
    >>> feature_extraction.RBFSampler(seed=1).weights.default_factory.__func__ in river_methods()
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
    return frozenset(part.__func__ for part in _referred(samples) if isinstance(part, MethodType))


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


def full_name(thing: Any) -> str:
    """Return the name of a class or function with its module."""
    return f"{thing.__module__}.{thing.__qualname__}"


COMPILED: dict[str, type] = {
    full_name(type(part)): type(part)
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


def _imported(names: str) -> tuple[str, ...]:
    return tuple(import_module(f"river.{name}").__name__ for name in names.split())


_PACKAGES = _imported(
    "anomaly compose ensemble feature_extraction feature_selection imblearn linear_model metrics multiclass "
    "multioutput optim preprocessing stats utils"
)


_BUILT_IN = (bool, int, float, str, list, tuple, dict, set, frozenset, min, max)
_COLLECTIONS = (collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque)
_FUNCTIONS = (patterns.tokens, copy.deepcopy, *river_functions())
_LISTED: dict[str, Any] = {
    **{full_name(thing): thing for thing in (*_BUILT_IN, *_COLLECTIONS, *_FUNCTIONS, numbers.Number)},
    "builtins.str.lower": str.lower,
    "numpy.array": np.array,
    "numpy.ones": np.ones,
}
_OURS: dict[str, type] = {
    full_name(kind): kind
    for kind in (
        ADWIN,
        AdaptiveLevel,
        Calendar,
        ConformalClassifier,
        ConformalRegressor,
        ErrorScale,
        KappaT,
        Lags,
        LastTarget,
        OnFields,
        RollingScores,
        StandardScaler,
    )
}
_NAMES = {id(thing): name for name, thing in _LISTED.items()}

_NOT_COPYABLE = (feature_extraction.RandomTreesEmbedding,)  # it knows its leaves by their place in memory


def name_of(thing: Any) -> str | None:
    """Return the name under which a class or function can be stored, or ``None`` if it is not allowed.

    Examples
    --------
    >>> name_of(float), name_of(preprocessing.StandardScaler), name_of(eval)
    ('builtins.float', 'river.preprocessing.scale.StandardScaler', None)
    """
    listed = _NAMES.get(id(thing))
    if listed is not None:
        return listed
    if isinstance(thing, type):
        name = full_name(thing)
        return name if _class_named(name) is thing else None
    return None


def object_named(name: str) -> Any:
    """Return the class or function with a stored name.

    Raise `ValueError` if the name is not allowed.

    Examples
    --------
    >>> object_named("builtins.float")
    <class 'float'>
    >>> object_named("os.system")
    Traceback (most recent call last):
    ValueError: "os.system" is not allowed in a checkpoint
    """
    thing = _LISTED.get(name) or _class_named(name)
    if thing is None:
        raise ValueError(f'"{name}" is not allowed in a checkpoint')
    return thing


def class_named(name: str) -> type:
    """Return the class with a stored name; raise a ValueError unless a checkpoint may hold instances of it."""
    kind = _class_named(name)
    if kind is None or not is_plain(kind):
        raise ValueError(f'"{name}" is not a class allowed in a checkpoint')
    return kind


def is_plain(kind: type) -> bool:
    """Return whether an instance's attributes are its whole state, as pickle would see it.

    Examples
    --------
    >>> is_plain(preprocessing.StandardScaler), is_plain(collections.Counter)
    (True, False)
    """
    methods = ("__new__", "__getstate__", "__reduce__", "__reduce_ex__")
    return all(getattr(kind, name) is getattr(object, name) for name in methods)


def method(owner: Any, name: str) -> MethodType:
    """Return a method of an instance or of a class, from the few that River's objects refer to.

    Raise `ValueError` if the method is not allowed.

    Examples
    --------
    >>> sampler = feature_extraction.RBFSampler(seed=1)
    >>> method(sampler, "_random_weights") == sampler._random_weights
    True
    """
    bound: Any = getattr(owner if isinstance(owner, type) else type(owner), name, None)
    function = getattr(bound, "__func__", bound)
    if function not in river_methods():
        raise ValueError(f'The method "{name}" of a {type(owner).__name__} is not allowed in a checkpoint')
    return bound if isinstance(bound, MethodType) else MethodType(function, owner)


def _class_named(name: str) -> type | None:
    """Return the allowed class that is defined under exactly this name."""
    if isinstance(name, str) and name in _OURS:
        return _OURS[name]
    module, _, attribute = name.rpartition(".")
    if not any(module == package or module.startswith(f"{package}.") for package in _PACKAGES):
        return None
    kind: Any = vars(sys.modules[module]).get(attribute) if module in sys.modules else None
    if not isinstance(kind, type) or kind in _NOT_COPYABLE:
        return None
    return kind if (kind.__module__, kind.__qualname__) == (module, attribute) else None
