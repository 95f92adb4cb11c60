"""Values of a configuration from the environment and from files, and the variables of OpenTelemetry."""

from __future__ import annotations

import errno
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamkernel.engine.config.messages import ConfigError

PREFIX = "STREAMKERNEL__"
"""How a variable begins that sets a key: ``STREAMKERNEL__KAFKA__GROUP`` sets ``group`` of ``[kafka]``."""

LARGEST = 16 << 20
"""The most bytes of a configuration, and of a file that it refers to for a text: a device need not end."""

LONG = 6
"""Characters of a text that is hidden wherever it occurs; a shorter one is where it is a whole value."""

_REFERENCE = re.compile(r"\$(\$\{)|\$\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*))\}")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
PROTOCOL = "http/protobuf"

SAMPLER, ARGUMENT, INTERVAL = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_METRIC_EXPORT_INTERVAL"

FIXED = {"parentbased_always_on": 1.0, "parentbased_always_off": 0.0}
BY_RATIO = "parentbased_traceidratio"


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


def check_address(address: str) -> str:
    """Return the address of a collector.

    Raise `ValueError` if it is none, or has a login or a query in it, which could be secrets.

    Examples
    --------
    >>> check_address("http://localhost:4318/")
    'http://localhost:4318'
    """
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "expected an address without login and query; OTEL_EXPORTER_OTLP_HEADERS is for credentials, got another"
        )
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        is_address = False
    if not is_address:
        raise ValueError(f'expected an address as "http://localhost:4318", got "{address}"')
    return address.rstrip("/")


def ratio_of(environ: Mapping[str, str]) -> float:
    """Return the share of records without a trace that begin one, by the sampler that the environment names.

    Raise `ValueError` if it is not one of the samplers that follow the decision of a trace.

    Examples
    --------
    >>> ratio_of({}), ratio_of({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"})
    (0.0, 0.01)
    """
    sampler = environ.get(SAMPLER) or "parentbased_always_off"
    if sampler in FIXED:
        return FIXED[sampler]
    if sampler != BY_RATIO:
        raise ValueError(f'{SAMPLER}: expected {", ".join(FIXED)} or {BY_RATIO}, got "{sampler}"')
    ratio = _number(environ.get(ARGUMENT) or "1")
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f'{ARGUMENT}: expected a share from 0 to 1, got "{environ[ARGUMENT]}"')
    return ratio


def interval_of(environ: Mapping[str, str]) -> float:
    """Return the seconds between two exports of the metrics.

    Raise `ValueError` if the environment has another value than milliseconds.

    Examples
    --------
    >>> interval_of({}), interval_of({"OTEL_METRIC_EXPORT_INTERVAL": "5000"})
    (60.0, 5.0)
    """
    milliseconds = _number(environ.get(INTERVAL) or "60000")
    if not 0.0 < milliseconds < math.inf:
        raise ValueError(f'{INTERVAL}: expected milliseconds above 0, got "{environ[INTERVAL]}"')
    return milliseconds / 1000.0


def problems_of(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variable that has another value than a run can follow; logins are not in it."""
    for name in PROTOCOLS:
        if (protocol := environ.get(name)) and protocol != PROTOCOL:
            yield f'{name}: expected {PROTOCOL}, got "{protocol}"'
    for name in ENDPOINTS:
        if address := environ.get(name):
            try:
                check_address(address)
            except ValueError as error:
                yield f"{name}: {error}"
    for read in (ratio_of, interval_of):
        try:
            read(environ)
        except ValueError as error:
            yield str(error)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
