"""Values of a configuration from the environment and from files: references in text, and variables named as keys."""

from __future__ import annotations

import errno
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamkernel.engine.config.messages import ConfigError

PREFIX = "STREAMKERNEL__"
"""How a variable begins that sets a key: ``STREAMKERNEL__KAFKA__GROUP`` sets ``group`` of ``[kafka]``."""

LARGEST = 16 << 20
"""The most bytes of a configuration, and of a file that it refers to for a text: a device need not end."""

LONG = 6
"""Characters of a text that is hidden wherever it occurs; a shorter one is where it is a whole value."""

_REFERENCE = re.compile(r"\$(\$\{)|\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")


def read_whole(path: Path) -> bytes:
    """Return the content of a file; raise an `OSError` if it is larger than `LARGEST`."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


class Resolved:
    """The content of a configuration file with values from elsewhere.

    `data` is the content of the file. `folder` is the folder that paths are relative to. `data` is the content with
    these values. `references` are the texts of the file that had references, by the texts that they became. `variables`
    are the variables that set keys, by the path of the key. `ConfigError` is raised if a variable is not set, or a file
    cannot be read.

    Examples
    --------
    >>> found = Resolved({"kafka": {"servers": "${HOST}:9092"}},
    ...     {"HOST": "broker1", "STREAMKERNEL__STATE__CHECKPOINT_SECONDS": "5"}, Path())
    >>> found.data
    {'kafka': {'servers': 'broker1:9092'}, 'state': {'checkpoint_seconds': 5}}
    """

    def __init__(self, data: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> None:
        self._environ, self._folder = environ, folder
        self._problems: list[str] = []
        self.references: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.data: dict[str, Any] = {key: self._resolve(value, key) for key, value in data.items()}
        for variable in sorted(name for name in environ if name.startswith(PREFIX)):
            self._override(variable)
        self._environ = {}  # a configuration is sent to workers, and the other variables are none of their business
        if self._problems:
            raise ConfigError(*self._problems)

    def hide(self, value: Any) -> Any:
        """Return a value with the texts of the file in place of the texts that its references became."""
        if isinstance(value, dict):
            return {key: self.hide(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.hide(item) for item in value]
        if isinstance(value, str):
            for text in sorted(self.references, key=len, reverse=True):
                original = self.references[text]
                if value == text:
                    return original
                long = len(text) >= LONG  # else it may be part of other words
                value = value.replace(text, original) if long else value.replace(f'"{text}"', f'"{original}"')
        return value

    def explain(self, problem: str) -> str:
        """Return the line of a problem without the values of references, and with the variable that it comes from."""
        path = problem.partition(":")[0]
        variable = self.variables.get(path)
        return f"{self.hide(problem)}; the variable {variable} sets it" if variable else str(self.hide(problem))

    def _resolve(self, value: Any, path: str) -> Any:
        """Return a value with what its references refer to."""
        if isinstance(value, dict):
            return {key: self._resolve(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        text = _REFERENCE.sub(lambda match: self._look_up(match, path), value)
        if text and "${" in value.replace("$${", ""):
            self.references[text] = value
        return text

    def _look_up(self, match: re.Match[str], path: str) -> str:
        escaped, file, variable = match.groups()
        if escaped:
            return "${"
        if file:
            try:
                return read_whole(Path(self._folder, file)).decode().removesuffix("\n").removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "other bytes"
                self._problems.append(f"{path}: expected a file with text, got {reason}: {file}")
                return ""
        if variable not in self._environ:
            self._problems.append(f"{path}: expected a value in the variable {variable}, which is not set")
        return self._environ.get(variable, "")

    def _override(self, variable: str) -> None:
        """Set the key that a variable is named after."""
        keys = variable.removeprefix(PREFIX).lower().split("__")
        table, path = self.data, ".".join(keys)
        for key in keys[:-1]:
            inner = table.setdefault(key, {})
            if not isinstance(inner, dict):
                self._problems.append(f"{path}: expected a key of a table, got one of another value; see {variable}")
                return
            table = inner
        table[keys[-1]] = _typed(self._environ[variable])
        self.variables[path] = variable


def _typed(text: str) -> Any:
    """Return the value that a text is in TOML, or the text if it is none.

    Examples
    --------
    >>> _typed("0.5"), _typed("true"), _typed('["a", "b"]'), _typed("clicks"), _typed('"7"')
    (0.5, True, ['a', 'b'], 'clicks', '7')
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text
