"""Objects from the tables of a configuration: ``{ type = "StandardScaler", with_std = false }``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from river import base, feature_extraction, preprocessing
from river import datasets as river_datasets
from river import metrics as river_metrics

from streamkernel.engine import allowed
from streamkernel.engine.annotations import expectation, fitted, parameters_of, takes_strings
from streamkernel.engine.fields import OnFields
from streamkernel.engine.problems import ConfigError, did_you_mean, of_error, shown, unknown_key

Spec = str | dict[str, Any]
"""The name of a class, or a table with its name as ``type`` and its parameters."""

_OBJECTS = {
    "kernel": ("a kernel", "kernels"),
    "loss": ("a loss", "losses"),
    "rule": ("a coordinate rule", "rules"),
    "step": ("a step size", "steps"),
}
_ON_STRINGS = (preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder)
_NOT_A_NUMBER = (river_metrics.ConfusionMatrix, river_metrics.ClassificationReport)
_NOT_IN_TABLES = ("cm",)  # the confusion matrix that metrics can share
_FEW = 8


@dataclass(frozen=True)
class Catalogue:
    """The classes that one kind of table can name.

    Parameters
    ----------
    kind
        What they are, with an article.
    classes
        The classes by name.
    """

    kind: str
    classes: Mapping[str, type]


def models() -> Catalogue:
    """Return the models that can be run."""
    from streamkernel import KernelClassifier, KernelRegressor

    return Catalogue("a model", {"KernelClassifier": KernelClassifier, "KernelRegressor": KernelRegressor})


def transformers() -> Catalogue:
    """Return River's transformers that a table can describe and a checkpoint can hold, and our own.

    Examples
    --------
    >>> list(transformers().classes)[:3]
    ['AdaptiveStandardScaler', 'Binarizer', 'FeatureHasher']
    """
    from streamkernel import RandomFeatures

    classes = {
        name: kind
        for module in (preprocessing, feature_extraction)
        for name in module.__all__
        if issubclass(kind := getattr(module, name), base.Transformer)
        and allowed.name_of(kind) is not None
        and _is_describable(kind)
    }
    return Catalogue("a River transformer", {**classes, "RandomFeatures": RandomFeatures})


def metrics() -> Catalogue:
    """Return River's metrics that are one number.

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
        },
    )


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


def build(spec: Spec, catalogue: Catalogue, where: str) -> Any:
    """Return the object that a table describes.

    Parameters
    ----------
    spec
        The table, or only the name.
    catalogue
        What can be named.
    where
        The path of the table in the configuration.

    Raises
    ------
    ConfigError
        If there is no such object; all problems of the table are in it.

    Examples
    --------
    >>> build({"type": "StandardScaler", "with_std": False}, transformers(), "preprocessing[0]")
    StandardScaler (
      with_std=False
      window_size=None
    )
    >>> build("StandardScalr", transformers(), "preprocessing[0].type")
    Traceback (most recent call last):
    streamkernel.engine.problems.ConfigError: preprocessing[0].type: expected a River transformer,
    got "StandardScalr"; did you mean "StandardScaler"?
    """
    kind, given = _kind_and_parameters(spec, catalogue, where)
    parameters = _parameters(kind)
    problems = [unknown_key(where, key, parameters) for key in given if key not in parameters]
    arguments = {}
    for name, parameter in parameters.items():
        try:
            if name in given:
                arguments[name] = _argument(given[name], parameter, f"{where}.{name}")
            elif parameter.default is parameter.empty:
                wanted = _OBJECTS[name][0] if name in _OBJECTS else expectation(parameter.annotation)
                problems.append(f"{where}.{name}: {kind.__name__} needs it; expected {wanted}, got nothing")
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    try:
        return kind(**arguments)
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        raise ConfigError(of_error(where, error)) from error


def build_step(spec: Spec, where: str) -> base.Transformer:
    """Return the transformer that a table describes, limited to the fields that its key ``on`` names.

    Raises
    ------
    ConfigError
        If there is no such transformer; all problems of the table are in it.

    Examples
    --------
    >>> step = build_step({"type": "TFIDF", "on": ["text"]}, "preprocessing[0]")
    >>> step.learn_one({"text": "a river", "size": 3})
    >>> step.transform_one({"text": "river", "size": 3})
    {'size': 3, 'river': 1.0}
    """
    kind, given = _kind_and_parameters(spec, transformers(), where)
    on = given.pop("on", None)
    problems: list[str] = []
    if "on" in _parameters(kind):  # it reads the text of one field, and takes the field's name itself
        if isinstance(on, list) and len(on) == 1 and isinstance(on[0], str):
            given["on"] = on[0]
        else:
            got = "nothing" if on is None else shown(on)
            problems.append(
                f"{where}.on: {kind.__name__} reads the text of one field; "
                f'expected its name in a list, like ["text"], got {got}'
            )
    elif on is not None and not _is_choice_of_fields(on):
        problems.append(
            f'{where}.on: expected "numbers", "strings", "all" or a list of field names, got {shown(on)}'
            + did_you_mean(on, ("numbers", "strings", "all"))
        )
    try:
        transformer = build({"type": kind.__name__, **given}, transformers(), where)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return transformer_on(transformer, on)


def transformer_on(transformer: base.Transformer, on: str | Sequence[str] | None = None) -> base.Transformer:
    """Return a transformer limited to some fields; the others pass by untouched.

    Parameters
    ----------
    transformer
        The transformer.
    on
        ``"numbers"``, ``"strings"``, ``"all"`` or the fields' names. By default ``"strings"`` for
        `OneHotEncoder` and `OrdinalEncoder`, and ``"numbers"`` for everything else.

    Examples
    --------
    >>> encoder = transformer_on(preprocessing.OneHotEncoder())
    >>> encoder.learn_one({"colour": "red", "size": 3})
    >>> encoder.transform_one({"colour": "blue", "size": 3})
    {'size': 3, 'colour_red': 0, 'colour_blue': 1}
    """
    if on is None:
        on = "strings" if type(transformer) in _ON_STRINGS else "numbers"
    return transformer if on == "all" else OnFields(transformer, on)


def kind_named(name: Any, catalogue: Catalogue, where: str) -> type:
    """Return the class of a name.

    Raises
    ------
    ConfigError
        If there is none; the message proposes the nearest name.
    """
    names = catalogue.classes
    if isinstance(name, str) and name in names:
        return names[name]
    few = f" ({', '.join(names)})" if len(names) <= _FEW else ""
    raise ConfigError(f"{where}: expected {catalogue.kind}{few}, got {shown(name)}{did_you_mean(name, names)}")


def _kind_and_parameters(spec: Any, catalogue: Catalogue, where: str) -> tuple[type, dict[str, Any]]:
    if not isinstance(spec, dict):
        return kind_named(spec, catalogue, where), {}
    if "type" not in spec:
        raise ConfigError(f"{where}.type: expected the name of {catalogue.kind}, got nothing")
    given = {key: value for key, value in spec.items() if key != "type"}
    return kind_named(spec["type"], catalogue, f"{where}.type"), given


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """Return the parameters that a table can give, which are none that stand for a class, like Binarizer's dtype."""
    return {
        name: parameter
        for name, parameter in parameters_of(kind).items()
        if name not in _NOT_IN_TABLES
        and (parameter.default is parameter.empty or not isinstance(parameter.default, type))
    }


def _is_describable(kind: type) -> bool:
    """Return whether a table can give all that a class needs; it cannot give ``*args``."""
    parameters = parameters_of(kind)
    needed = [p for p in parameters.values() if p.default is p.empty]
    return len(parameters) == len(inspect.signature(kind).parameters) and all(
        expectation(parameter.annotation) for parameter in needed
    )


def _argument(value: Any, parameter: inspect.Parameter, where: str) -> Any:
    annotation = parameter.annotation
    if parameter.name in _OBJECTS:
        catalogue = _objects(parameter.name)
        if not isinstance(value, str) or value in catalogue.classes or not takes_strings(annotation):
            return build(value, catalogue, where)
    wanted = expectation(annotation)
    if not wanted:
        raise ConfigError(f"{where}: cannot be set in a configuration file")
    try:
        return fitted(value, annotation)
    except ValueError:
        raise ConfigError(f"{where}: expected {wanted}, got {shown(value)}") from None


def _objects(name: str) -> Catalogue:
    import streamkernel

    kind, module_name = _OBJECTS[name]
    module = getattr(streamkernel, module_name)
    public = {item: getattr(module, item) for item in module.__all__ if item != name.capitalize()}
    return Catalogue(kind, {item: found for item, found in public.items() if isinstance(found, type)})


def _is_choice_of_fields(on: Any) -> bool:
    if isinstance(on, list):
        return bool(on) and all(isinstance(field, str) for field in on)
    return on in ("numbers", "strings", "all")
