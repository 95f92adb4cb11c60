"""Sources and sinks in the registry of connectors, whose tables have the parameters of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connectors.registry import class_at
from streamkernel.engine.config import build
from streamkernel.engine.config.coercion import parameters_of, takes_paths
from streamkernel.engine.config.messages import ConfigError, of_error


def build_registered(registry: Mapping[str, str], given: dict[str, Any], where: str, folder: Path) -> Any:
    """Return the object that a table describes.

    Parameters
    ----------
    registry
        The registry.
    given
        The table, which has a key of the registry.
    where
        The path of the table in the configuration.
    folder
        The folder that relative paths are relative to.

    Raises
    ------
    ConfigError
        If a parameter is wrong or unknown, or the object cannot be opened.
    """
    try:
        return build.build(*_spec(registry, given, where, folder), where)
    except OSError as error:
        raise ConfigError(of_error(f"{where}.{_key(registry, given)}", error)) from error


def check_registered(registry: Mapping[str, str], given: dict[str, Any], where: str, folder: Path) -> None:
    """Raise the ConfigError of :func:`build_registered` for wrong and unknown parameters, without opening anything."""
    build.check(*_spec(registry, given, where, folder), where)


def _key(registry: Mapping[str, str], given: dict[str, Any]) -> str:
    return next(key for key in registry if key in given)


def _spec(
    registry: Mapping[str, str], given: dict[str, Any], where: str, folder: Path
) -> tuple[dict[str, Any], build.Catalogue]:
    key = _key(registry, given)
    try:
        kind = class_at(registry[key])
    except ImportError as error:
        raise ConfigError(of_error(f"{where}.{key}", error)) from error
    paths = {name for name, parameter in parameters_of(kind).items() if takes_paths(parameter.annotation)}
    spec = {name: str(folder / value) if name in paths else value for name, value in given.items()}
    return {**spec, "type": kind.__name__}, build.Catalogue(key, {kind.__name__: kind})
