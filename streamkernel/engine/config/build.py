"""Objects from the tables of a configuration: ``{ type = "StandardScaler", with_std = false }``."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from river import base, preprocessing

from streamkernel.engine.config.messages import ConfigError, did_you_mean, expectation, problem_at, to_toml, unknown_key
from streamkernel.engine.config.registry import (
    OBJECTS,
    Catalogue,
    find_kind,
    fit_value,
    objects_for,
    settable,
    transformers,
)
from streamkernel.engine.fields import OnFields
from streamkernel.engine.patterns import compiled, tokens
from streamkernel.time_series import Calendar, Lags, LastTarget

Spec = str | dict[str, Any]
"""The name of a class, or a table with its name as ``type`` and its parameters."""

LIMITS = {
    "batch_size": 1_000_000,
    "cache_bytes": 1 << 36,
    "features_per_seed": 1 << 20,
    "max_classes": 10_000,
    "max_features": 1 << 20,
    "maximum_size_vocabulary": 1 << 24,
    "n_components": 1 << 16,
    "n_features": 1 << 20,
    "ngram_range": 16,
    "number_of_samples": 1 << 16,
    "window": 10_000_000,
    "window_size": 10_000_000,
    "FeatureHasher.n_features": 1 << 32,
    "GaussianProcessRegressor.n_features": 1 << 14,
    "PolynomialExtender.degree": 8,
}
"""The largest numbers that fit into memory, by parameter, or by class and parameter where that has another limit."""

_ON_STRINGS = (preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder)
_ON_ALL = (Calendar, Lags, LastTarget)
_CHOICES = ("numbers", "strings", "all")


def build(spec: Spec, catalogue: Catalogue, where: str) -> Any:
    """Return the object that a table describes.

    `spec` is the table, or only the name. `catalogue` are the classes that a table can name. `where` is the path of the
    table in the configuration. Raise `ConfigError` if there is no such object; all problems of the table are in it.

    Examples
    --------
    >>> build({"type": "StandardScaler", "with_std": False}, transformers(), "preprocessing[0]")
    StandardScaler (
      with_std=False
      window_size=None
    )
    >>> build("StandardScalr", transformers(), "preprocessing[0].type")
    Traceback (most recent call last):
    streamkernel.engine.config.messages.ConfigError: preprocessing[0].type: expected a River transformer,
    got "StandardScalr"; did you mean "StandardScaler"?
    """
    return _make_object(*_kind_and_parameters(spec, catalogue, where), where)


def check(spec: Spec, catalogue: Catalogue, where: str) -> None:
    """Raise the ConfigError of :func:`build` for a table whose parameters are wrong, without making the object."""
    _arguments(*_kind_and_parameters(spec, catalogue, where), where)


def build_step(spec: Spec, where: str) -> base.Transformer:
    """Return the transformer that a table describes, limited to the fields that its key ``on`` names.

    Raise `ConfigError` if there is no such transformer; all problems of the table are in it.

    Examples
    --------
    >>> step = build_step({"type": "TFIDF", "on": ["text"]}, "preprocessing[0]")
    >>> step.learn_one({"text": "a river", "size": 3})
    >>> step.transform_one({"text": "river", "size": 3})
    {'size': 3, 'river': 1.0}
    """
    kind, parameters = _kind_and_parameters(spec, transformers(), where)
    on = parameters.pop("on", None)
    problems: list[str] = []
    if "on" in settable(kind):  # it reads the text of one field, and takes the field's name itself
        if isinstance(on, list) and len(on) == 1 and isinstance(on[0], str):
            parameters["on"] = on[0]
        else:
            got = "nothing" if on is None else to_toml(on)
            problems.append(
                f"{where}.on: {kind.__name__} reads the text of one field; "
                f'expected its name in a list, like ["text"], got {got}'
            )
    elif on is not None and not _is_choice_of_fields(on):
        problems.append(
            f'{where}.on: expected "numbers", "strings", "all" or a list of field names, got {to_toml(on)}'
            + did_you_mean(on, _CHOICES)
        )
    try:
        transformer = _make_object(kind, parameters, where, other_keys=["on"])
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return transformer_on(transformer, on)


def type_of(spec: Any) -> str:
    """Return the name of the class in a table."""
    return str(spec["type"] if isinstance(spec, dict) else spec)


def transformer_on(transformer: base.Transformer, on: str | Sequence[str] | None = None) -> base.Transformer:
    """Return a transformer limited to some fields; the others pass unchanged.

    `on` is ``"numbers"``, ``"strings"``, ``"all"`` or the fields' names. By default ``"strings"`` for `OneHotEncoder`
    and `OrdinalEncoder`, ``"all"`` for `Calendar`, `Lags` and `LastTarget`, and ``"numbers"`` for everything else.

    Examples
    --------
    >>> encoder = transformer_on(preprocessing.OneHotEncoder())
    >>> encoder.learn_one({"colour": "red", "size": 3})
    >>> encoder.transform_one({"colour": "blue", "size": 3})
    {'size': 3, 'colour_red': 0, 'colour_blue': 1}
    """
    if on is None:
        on = "strings" if type(transformer) in _ON_STRINGS else "all" if type(transformer) in _ON_ALL else "numbers"
    return transformer if on == "all" else OnFields(transformer, on)


def _kind_and_parameters(spec: Any, catalogue: Catalogue, where: str) -> tuple[type, dict[str, Any]]:
    if not isinstance(spec, dict):
        return find_kind(spec, catalogue, where), {}
    if "type" not in spec:
        raise ConfigError(f"{where}.type: expected the name of {catalogue.kind}, got nothing")
    parameters = {key: value for key, value in spec.items() if key != "type"}
    return find_kind(spec["type"], catalogue, f"{where}.type"), parameters


def _make_object(kind: type, parameters: dict[str, Any], where: str, other_keys: Sequence[str] = ()) -> Any:
    arguments = _arguments(kind, parameters, where, other_keys)
    with problem_at(where, ArithmeticError, MemoryError, TypeError, ValueError):
        return kind(**arguments)


def _arguments(kind: type, values: dict[str, Any], where: str, other_keys: Sequence[str] = ()) -> dict[str, Any]:
    parameters = settable(kind)
    keys = [*parameters, *other_keys]
    problems = [unknown_key(where, key, keys) for key in values if key not in parameters]
    arguments = {}
    for name, parameter in parameters.items():
        try:
            if name in values:
                _check_size(kind, name, values[name], where)
                arguments[name] = _argument(values[name], parameter, f"{where}.{name}")
                if name == "class_weight":
                    arguments[name] = by_label(arguments[name])
                if name == "tokenizer_pattern" and values[name] != parameter.default:
                    arguments["tokenizer"] = _tokenizer(values[name], f"{where}.{name}")
            elif parameter.default is parameter.empty:
                wanted = OBJECTS[name][0] if name in OBJECTS else expectation(parameter.annotation)
                problems.append(f"{where}.{name}: {kind.__name__} requires it; expected {wanted}, got nothing")
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return arguments


def _check_size(kind: type, name: str, value: Any, where: str) -> None:
    """Raise a ConfigError for a number, alone or in a list, with which a run would not fit into memory."""
    most = LIMITS.get(f"{kind.__name__}.{name}") or LIMITS.get(name)
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    largest = max((number for number in numbers if type(number) is int), default=0)
    if most is not None and largest > most:
        raise ConfigError(f"{where}.{name}: expected at most {most:,}, got {largest:,}")


def by_label(value: Any) -> Any:
    """Return a table by label, with the strings of its keys and with the labels that they may represent.

    Examples
    --------
    >>> by_label({"true": 2.0, "spam": 3.0})
    {'true': 2.0, True: 2.0, 'spam': 3.0}
    """
    if not isinstance(value, dict):
        return value
    items = {}
    for name, item in value.items():
        items[name] = item
        with suppress(ValueError):
            label = json.loads(name)
            items |= {label: item} if isinstance(label, (bool, int, float)) else {}
    return items


def _tokenizer(pattern: str, where: str) -> functools.partial[Iterator[str]]:
    """Return the tokenizer of a vectorizer, which takes linear time."""
    try:
        compiled(pattern)
    except ImportError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: expected a pattern of RE2, got {to_toml(pattern)}: {error}") from None
    return functools.partial(tokens, pattern=pattern)


def _argument(value: Any, parameter: inspect.Parameter, where: str) -> Any:
    annotation, wanted = parameter.annotation, expectation(parameter.annotation)
    if parameter.name in OBJECTS:
        catalogue = objects_for(parameter.name)
        is_name = isinstance(value, str) and value not in catalogue.classes and re.search(r'"|a string|a value', wanted)
        is_number = type(value) in (int, float) and re.search("a number|an integer|a value", wanted)
        if not is_name and not is_number:
            return build(value, catalogue, where)
    if not wanted:
        raise ConfigError(f"{where}: cannot be set in a configuration file")
    try:
        return fit_value(value, annotation)
    except ValueError:
        raise ConfigError(f"{where}: expected {wanted}, got {to_toml(value)}") from None


def _is_choice_of_fields(on: Any) -> bool:
    if isinstance(on, list):
        return bool(on) and all(isinstance(field, str) for field in on)
    return on in _CHOICES
