"""Errors of a configuration file, with the key, the expected and the actual value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from streamkernel.engine.config.messages import ConfigError, to_toml, unknown_key

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def syntax_problem(path: Path, text: str, message: str) -> str:
    """Return the position and the reason of a TOML syntax error."""
    found = _PLACE.fullmatch(message)
    if found is None:
        return f"{path}: {message}"
    what, line, column = found.groups()
    if line is None:
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    return f"{path}, line {line}, column {column}: {what[0].lower()}{what[1:]}"


def problems_of(error: ValidationError, data: dict[str, Any], config: type[BaseModel]) -> Iterator[str]:
    """Yield a line for each validation error."""
    for detail in error.errors():
        own = detail.get("ctx", {}).get("error")
        if isinstance(own, ConfigError):
            yield from own.problems
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
        wanted = field.description or "a table"
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
