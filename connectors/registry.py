"""The sources and sinks that a configuration can name: in this package, and in others by entry points."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

SOURCES = {
    "path": "streamkernel.connectors.files.source:FileSource",
    "dataset": "streamkernel.connectors.datasets:DatasetSource",
    "topics": "streamkernel.connectors.kafka.source:KafkaSource",
    "http": "streamkernel.connectors.http.source:HttpSource",
}
"""The module and class for each key of [source]. The class's parameters are the keys of the table, one of which selects
it."""

SINKS: dict[str, str] = {
    # files and topics have keys of [sink] instead
}
"""Those for each key of [sink.predictions], likewise."""

TABLES = {
    "streamkernel.sources": {"nats": "streamkernel.connectors.nats.source:NatsSource"},
    "streamkernel.sinks": {
        "nats": "streamkernel.connectors.nats.sink:NatsSink",
        "parquet": "streamkernel.connectors.files.parquet_sink:ParquetSink",
        "webhook": "streamkernel.connectors.http.webhook:WebhookSink",
    },
}
"""Those for each table [source.NAME] and [sink.predictions.NAME], by the group of entry points that adds others."""


def installed(group: str) -> dict[str, str]:
    """Return the module and class for each name of a group; no other package replaces a name of `TABLES`.

    Examples
    --------
    >>> installed("streamkernel.sources")["nats"]
    'streamkernel.connectors.nats.source:NatsSource'
    """
    return {entry.name: entry.value for entry in entry_points(group=group)} | TABLES[group]


def class_at(place: str) -> type:
    """Return the class of a source or a sink; its module, and any library that it needs, is imported now.

    Raises
    ------
    ImportError
        If such a library is not installed.

    Examples
    --------
    >>> class_at(SOURCES["dataset"]).__name__
    'DatasetSource'
    """
    module, _, name = place.partition(":")
    kind: type = getattr(import_module(module), name)
    return kind
