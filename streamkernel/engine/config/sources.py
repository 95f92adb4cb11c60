"""The source that the table [source] of a configuration describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkernel.connectors import DatasetSource, FileSource
from streamkernel.engine.config import build
from streamkernel.engine.config.kafka import kafka_source
from streamkernel.engine.config.messages import ConfigError, of_error
from streamkernel.engine.config.registered import build_registered

if TYPE_CHECKING:
    from streamkernel.connectors import Source
    from streamkernel.engine.config.settings import Settings


def build_source(settings: Settings, member: str | None = None) -> Source:
    """Return the source of records; a consumer group knows it as `member`.

    Raises
    ------
    ConfigError
        If it cannot be opened, or there is no such data set.
    """
    source = settings.source
    if source.choice is not None:
        found: Source = build_registered(source.choice, settings.folder)
        return found
    if source.topics is not None:
        return kafka_source(settings, member)
    if source.path is None:
        known = build.datasets()
        build.find_kind(source.dataset, known, "source.dataset")
        dataset = build.build({**source.params, "type": source.dataset}, known, "source.params")
        return DatasetSource(dataset, label=settings.labels[0], limit=source.limit)
    try:
        return FileSource(
            source.path,
            source.format,
            source.follow,
            csv=settings.csv,
            max_list_length=source.max_list_length,
            zones=settings.zones,
        )
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(of_error("source.path", error)) from error
