"""The source that the table [source] of a configuration describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors import DatasetSource, FileSource
from connectors.registry import source_class
from streamkernel.engine.config import build
from streamkernel.engine.config.coercion import parameters_of, takes_paths
from streamkernel.engine.config.kafka import kafka_source
from streamkernel.engine.config.messages import ConfigError, of_error

if TYPE_CHECKING:
    from connectors import Source
    from streamkernel.engine.config.settings import Settings


def build_source(settings: Settings, member: str | None = None) -> Source:
    """Return the source of records; a consumer group knows it as `member`.

    Raises
    ------
    ConfigError
        If it cannot be opened, or there is no such data set.
    """
    source = settings.source
    if source.key not in type(source).model_fields:
        return _of_parameters(source.key, source.parameters, settings.folder)
    if source.topics is not None:
        return kafka_source(settings, member)
    if source.path is None:
        known = build.datasets()
        build.find_kind(source.dataset, known, "source.dataset")
        dataset = build.build({**source.params, "type": source.dataset}, known, "source.params")
        return DatasetSource(dataset, label=settings.labels[0], limit=source.limit)
    try:
        return FileSource(source.path, format=source.format, follow=source.follow)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(of_error("source.path", error)) from error


def _of_parameters(key: str, given: dict[str, Any], folder: Path) -> Source:
    """Return a source whose table has the parameters of its class; relative paths are relative to `folder`."""
    try:
        kind = source_class(key)
        paths = {name for name, parameter in parameters_of(kind).items() if takes_paths(parameter.annotation)}
        spec = {name: str(folder / value) if name in paths else value for name, value in given.items()}
        found: Source = build.build(
            {**spec, "type": kind.__name__}, build.Catalogue(key, {kind.__name__: kind}), "source"
        )
    except (ImportError, OSError) as error:
        raise ConfigError(of_error(f"source.{key}", error)) from error
    return found
