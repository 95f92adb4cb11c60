"""Errors of a configuration: the key, the expected and the actual value, as sentences for its author."""

from __future__ import annotations

import collections.abc
import datetime as dt
import difflib
import json
import re
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

_WIDEST = 60
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "a table",
    collections.abc.Mapping: "a table",
    Path: "a path",
    **dict.fromkeys((list, tuple, set, frozenset, collections.abc.Sequence), "a list"),
}


class ConfigError(ValueError):
    """The problems of a configuration, one per line: the key's path, the expected value and the actual one.

    Examples
    --------
    >>> raise ConfigError("label: expected the field to predict, got 3")
    Traceback (most recent call last):
    streamkernel.engine.config.messages.ConfigError: label: expected the field to predict, got 3
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


def to_key(name: str) -> str:
    """Return a key as TOML writes it.

    Examples
    --------
    >>> to_key("user-id"), to_key("user.age")
    ('user-id', '"user.age"')
    """
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else to_toml(name)


def to_toml(value: Any) -> str:
    """Return a value as TOML writes it, shortened.

    Examples
    --------
    >>> print(to_toml({"type": "Gaussian", "on": [True, 1.0]}))
    {type = "Gaussian", on = [true, 1.0]}
    """
    text = _toml(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (str, bool)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    return repr(value)


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """Return the end of a sentence that proposes the most similar known name, or an empty string.

    Examples
    --------
    >>> print("unknown key" + did_you_mean("folow", ["path", "follow"]))
    unknown key; did you mean "follow"?
    """
    by_lower_case = {key.lower(): key for key in names}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1) if isinstance(name, str) else []
    return f'; did you mean "{by_lower_case[near[0]]}"?' if near else ""


def unknown_key(path: str, key: str, keys: Iterable[str]) -> str:
    """Return the problem of an unknown key.

    Examples
    --------
    >>> unknown_key("source", "wait", ["path", "follow"])
    'source.wait: unknown key; expected one of path, follow'
    """
    keys = list(keys)
    full = f"{path}.{key}" if path else key
    if not keys:
        return f"{full}: unknown key; none is expected here"
    hint = did_you_mean(key, keys) or f"; expected one of {', '.join(keys)}"
    return f"{full}: unknown key{hint}"


def of_error(where: str, error: BaseException) -> str:
    """Return the error of another library as a problem in the style of this one.

    Examples
    --------
    >>> of_error("model", ValueError("Expected l2 >= 0, got -1"))
    'model: expected l2 >= 0, got -1'
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{where}: {error.strerror.lower()}: {error.filename}"
    message = " ".join(str(error).split()) or type(error).__name__
    if message.startswith("Expected"):
        message = "e" + message.removeprefix("E")
    return f"{where}: {message}"


@contextmanager
def problem_at(where: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise an error of some kinds as the problem of a key.

    Examples
    --------
    >>> with problem_at("source.limit", ValueError):
    ...     int("many")
    Traceback (most recent call last):
    streamkernel.engine.config.messages.ConfigError: source.limit: invalid literal for int() with base 10: 'many'
    """
    try:
        yield
    except kinds as error:
        raise ConfigError(of_error(where, error)) from error


def collect_problems(*calls: Callable[[], object]) -> None:
    """Make all calls, and raise all their problems as one error.

    Examples
    --------
    >>> collect_problems(lambda: None)
    """
    problems: list[str] = []
    for call in calls:
        try:
            call()
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*dict.fromkeys(problems))


_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def syntax_problem(path: Path, text: str, message: str) -> str:
    """Return the position and the reason of a TOML syntax error."""
    match = _PLACE.fullmatch(message)
    if match is None:
        return f"{path}: {message}"
    what, line, column = match.groups()
    if line is None:
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    return f"{path}, line {line}, column {column}: {what[0].lower()}{what[1:]}"


def expectation(annotation: Any) -> str:
    """Return a description of the values that a table can hold for an annotation; empty if there are none.

    Examples
    --------
    >>> expectation(float | Literal["median"] | None), expectation(print)
    ('a number or "median"', '')
    """
    if annotation is Any:
        return "a value"
    if get_origin(annotation) in (Union, types.UnionType):
        parts = get_args(annotation)
        words = [expectation(part) for part in parts if not (part is int and float in parts)]
        return " or ".join(dict.fromkeys(filter(None, words)))
    if get_origin(annotation) is tuple and ... not in get_args(annotation):
        return f"a list of {len(get_args(annotation))}"
    if get_origin(annotation) is Literal:
        *names, last = (json.dumps(choice) for choice in get_args(annotation))
        return f"{', '.join(names)} or {last}" if names else last
    return _WORDS.get(get_origin(annotation) or annotation, "")


def expected_of(field: FieldInfo) -> str:
    """Return the description of a key, or its type with its bounds if it has none.

    Examples
    --------
    >>> from pydantic import Field
    >>> class Table(BaseModel):
    ...     every: int | None = Field(default=None, ge=1, le=10_000)
    >>> expected_of(Table.model_fields["every"])
    'an integer from 1 to 10,000'
    """
    if field.description:
        return field.description
    bounds = {name: getattr(one, name) for one in field.metadata for name in ("ge", "le") if hasattr(one, name)}
    words = expectation(field.annotation) or "a table"
    least, most = (f"{bounds.get(name, 0.0):,.15g}" for name in ("ge", "le"))
    if "ge" not in bounds:
        return words
    return f"{words} from {least} to {most}" if "le" in bounds else f"{words} of at least {least}"


def problems_of(error: ValidationError, data: dict[str, Any], config: type[BaseModel]) -> Iterator[str]:
    """Yield a line for each validation error."""
    for detail in error.errors():
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):
            yield from cause.problems
        else:
            yield _problem(detail["loc"], data, config)


def _problem(keys: tuple[int | str, ...], value: Any, config: type[BaseModel]) -> str:
    table: Any = config
    path = ""
    for key in keys:
        if isinstance(key, int):  # of a list of tables
            path, value = f"{path}[{key}]", value[key]
            continue
        fields = {field.alias or name: field for name, field in table.model_fields.items()}
        field = fields.get(key)
        if field is None:
            top = f'; "{key}" belongs above the first [table]' if path and key in config.model_fields else ""
            return f"{path}.{key}: unknown key{top}" if top else unknown_key(path, str(key), fields)
        path = f"{path}.{key}" if path else str(key)
        wanted = expected_of(field)
        if key not in value:
            return f"{path}: required; expected {wanted}, got nothing"
        table = next(filter(_is_table, (field.annotation, *get_args(field.annotation))), None)
        value = value[key]
        if table is None or not isinstance(value, (dict, list)):
            break
    got = "another" if field and SecretStr in get_args(field.annotation) else to_toml(value)
    return f"{path}: expected {wanted}, got {got}"


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
