"""The classes that the tables of a configuration can name, and the values that their parameters take."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from river import base, feature_extraction, linear_model, preprocessing
from river import datasets as river_datasets
from river import metrics as river_metrics

from streamkernel.engine.checkpoint import allowlist
from streamkernel.engine.config.messages import ConfigError, did_you_mean, expectation, to_toml
from streamkernel.engine.monitoring.kappa_t import KappaT

OBJECTS = {  # parameters that are objects, and the modules of streamkernel with their classes
    **dict.fromkeys(("kernel", "left", "right"), ("a kernel", "kernels")),  # a Sum has a left and a right one
    "loss": ("a loss", "losses"),
    "rule": ("a coordinate rule", "rules"),
    "step_size": ("a step size", "step_sizes"),
    "learner": ("a learner", "learners"),
    "pruning": ("a pruning", "upkeep"),
    "refit": ("a refit", "upkeep"),
}
_ONLY = {"pruning": "Pruning", "refit": "Refit"}
_BASES = ("Kernel", "Loss", "Rule", "Step")
_NOT_A_NUMBER = (river_metrics.ConfusionMatrix, river_metrics.ClassificationReport)
_NOT_IN_TABLES = ("cm",)  # the confusion matrix that metrics can share
_FEW, _SOME = 8, 24


@dataclass(frozen=True)
class Catalogue:
    """The classes that a table of one kind can name. `kind` is the kind of the classes, with an article, for errors."""

    kind: str
    classes: Mapping[str, type]


@functools.cache
def models() -> Catalogue:
    """Return the models that a run can use."""
    from streamkernel.estimators.classifier import KernelClassifier
    from streamkernel.estimators.gaussian_process import GaussianProcessRegressor
    from streamkernel.estimators.regressor import KernelRegressor
    from streamkernel.estimators.several_targets import KernelMultiLabelClassifier, KernelMultiTargetRegressor

    one = KernelClassifier, KernelRegressor, GaussianProcessRegressor
    kinds = *one, KernelMultiTargetRegressor, KernelMultiLabelClassifier
    return Catalogue("a model", {model.__name__: model for model in kinds})


@functools.cache
def baselines() -> Catalogue:
    """Return River's linear models that learn one event at a time.

    Examples
    --------
    >>> "LogisticRegression" in baselines().classes, "base" in baselines().classes
    (True, False)
    """
    named = {name: getattr(linear_model, name) for name in linear_model.__all__}
    kinds = base.Classifier, base.Regressor
    return Catalogue(
        "a linear model of River",
        {name: kind for name, kind in named.items() if isinstance(kind, type) and issubclass(kind, kinds)},
    )


@functools.cache
def transformers() -> Catalogue:
    """Return the transformers, River's and ours, that a table can describe and a checkpoint can store.

    Examples
    --------
    >>> list(transformers().classes)[:3]
    ['AdaptiveStandardScaler', 'Binarizer', 'FeatureHasher']
    """
    from streamkernel.estimators.random_features import RandomFeatures
    from streamkernel.estimators.standard_scaler import StandardScaler
    from streamkernel.time_series import Calendar, Lags, LastTarget

    classes = {
        name: kind
        for module in (preprocessing, feature_extraction)
        for name in module.__all__
        if issubclass(kind := getattr(module, name), base.Transformer)
        and allowlist.name_of(kind) is not None
        and _is_describable(kind)
    }
    ours = RandomFeatures, Calendar, Lags, LastTarget
    classes |= {kind.__name__: kind for kind in ours} | {"streamkernel.StandardScaler": StandardScaler}
    return Catalogue("a River transformer", classes)


@functools.cache
def metrics() -> Catalogue:
    """Return River's metrics with a single number as value, and Kappa-T.

    Examples
    --------
    >>> "ROCAUC" in metrics().classes, "ConfusionMatrix" in metrics().classes
    (True, False)
    """
    named = {name: getattr(river_metrics, name, None) for name in river_metrics.__all__}
    return Catalogue(
        "a River metric",
        {
            name: kind
            for name, kind in named.items()
            if isinstance(kind, type) and issubclass(kind, river_metrics.base.Metric) and kind not in _NOT_A_NUMBER
        }
        | {"KappaT": KappaT},
    )


@functools.cache
def datasets() -> Catalogue:
    """Return River's data sets.

    Examples
    --------
    >>> datasets().classes["synth.Friedman"]
    <class 'river.datasets.synth.friedman.Friedman'>
    """
    classes = {
        prefix + name: kind
        for prefix, module in (("", river_datasets), ("synth.", river_datasets.synth))
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, river_datasets.base.Dataset) and not inspect.isabstract(kind)
    }
    return Catalogue("one of River's data sets", classes)


def find_kind(name: Any, catalogue: Catalogue, where: str) -> type:
    """Return the class with a given name, or raise a `ConfigError` that proposes the nearest name."""
    names = catalogue.classes
    if isinstance(name, str) and name in names:
        return names[name]
    nearest = did_you_mean(name, names)
    few = f" ({', '.join(names)})" if len(names) <= (_FEW if nearest else _SOME) else ""
    raise ConfigError(f"{where}: expected {catalogue.kind}{few}, got {to_toml(name)}{nearest}")


def objects_for(name: str) -> Catalogue:
    """Return the classes that a parameter with one of the names in `OBJECTS` accepts.

    Examples
    --------
    >>> list(objects_for("step_size").classes)
    ['Constant', 'InverseTime', 'PowerDecay']
    """
    kind, module_name = OBJECTS[name]
    module = import_module(f"streamkernel.{module_name}")
    names = [_ONLY[name]] if name in _ONLY else [item for item in module.__all__ if item not in _BASES]
    public = {item: getattr(module, item) for item in names}
    return Catalogue(kind, {item: cls for item, cls in public.items() if isinstance(cls, type)})


def settable(kind: type) -> dict[str, inspect.Parameter]:
    """Return the parameters that a table can set; classes, such as Binarizer's dtype, it cannot.

    Examples
    --------
    >>> list(settable(preprocessing.Binarizer))
    ['threshold']
    """
    return {
        name: parameter
        for name, parameter in parameters_of(kind).items()
        if name not in _NOT_IN_TABLES
        and (parameter.default is parameter.empty or not isinstance(parameter.default, type))
    }


def _is_describable(kind: type) -> bool:
    """Return whether a table can set all required arguments of a class; it cannot set ``*args``."""
    parameters = parameters_of(kind)
    needed = [p for p in parameters.values() if p.default is p.empty]
    return len(parameters) == len(inspect.signature(kind).parameters) and all(
        expectation(parameter.annotation) for parameter in needed
    )


_BY_DEFAULT: dict[type, Any] = {bool: bool, int: int | float, float: int | float, str: str}
_ANYTHING = ("pos_val",)  # a label: its default, True, says nothing of its type


def parameters_of(kind: Any) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a class, with resolved annotations.

    Without an annotation, the type is the default's. What cannot be resolved is ``Any``.

    Examples
    --------
    >>> class Scale:
    ...     def __init__(self, x: "int | None", y: "Unheard", center=True, *rest) -> None: ...
    >>> [parameter.annotation for parameter in parameters_of(Scale).values()]
    [int | None, typing.Any, <class 'bool'>]
    """
    parameters = inspect.signature(kind).parameters
    return {
        name: parameter.replace(annotation=_resolve(parameter, kind.__init__))
        for name, parameter in parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _resolve(parameter: inspect.Parameter, function: Any) -> Any:
    if parameter.annotation is parameter.empty:
        return Any if parameter.name in _ANYTHING else _BY_DEFAULT.get(type(parameter.default), Any)
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=function.__globals__)[parameter.name]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return Any


def takes_paths(annotation: Any) -> bool:
    """Return whether paths fit an annotation.

    Examples
    --------
    >>> takes_paths(str | Path), takes_paths(str | os.PathLike[str]), takes_paths(str | None)
    (True, True, False)
    """
    is_path = annotation is Path or get_origin(annotation) is os.PathLike
    return is_path or any(map(takes_paths, get_args(annotation)))


def fit_value(value: Any, annotation: Any) -> Any:
    """Return a value in the type of the annotation: a list can become a set, 1 can become 1.0.

    ``True`` is not an integer, and ``"5"`` is not a number. A value whose type cannot be checked is passed unchanged.
    Raise `ValueError` if it does not fit; the message names the expected type.

    Examples
    --------
    >>> fit_value(["the", "a"], tuple[str, ...] | None)
    ('the', 'a')
    >>> fit_value("5", int)
    Traceback (most recent call last):
    ValueError: an integer
    """
    if isinstance(value, (dt.date, dt.time)) and annotation is not Any:
        raise ValueError(expectation(annotation))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except Exception:  # pydantic has many ways to say that it does not know a type
        return value
    try:
        return adapter.validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError:
        raise ValueError(expectation(annotation)) from None
