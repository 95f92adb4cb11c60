"""Objects of Python that a configuration names: sources, sinks, decoders, and sources of tokens for a login."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

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
    "streamkernel.sources": {"nats": "streamkernel.connectors.nats:NatsSource"},
    "streamkernel.sinks": {
        "nats": "streamkernel.connectors.nats:NatsSink",
        "parquet": "streamkernel.connectors.files.sinks:ParquetSink",
        "webhook": "streamkernel.connectors.http.webhook:WebhookSink",
    },
}
"""Those for each table [source.NAME] and [sink.predictions.NAME], by the group of entry points that adds others."""


def installed(group: str) -> dict[str, str]:
    """Return the module and class for each name of a group; no other package replaces a name of `TABLES`.

    Examples
    --------
    >>> installed("streamkernel.sources")["nats"]
    'streamkernel.connectors.nats:NatsSource'
    """
    return {entry.name: entry.value for entry in entry_points(group=group)} | TABLES[group]


def class_at(place: str) -> type:
    """Return the class of a source or a sink, or raise an `ImportError` if a library that it needs is not installed.

    Examples
    --------
    >>> class_at(SOURCES["dataset"]).__name__
    'DatasetSource'
    """
    module, _, name = place.partition(":")
    kind: type = getattr(importlib.import_module(module), name)
    return kind


def function_at(name: str, folder: Path) -> Callable[..., Any]:
    """Return a function or a class, ``"package.module:name"``, of an installed module, or of a file in a folder.

    The folder is searched last, so that no file in it hides a module. Raise `ValueError` if there is no such function.

    Examples
    --------
    >>> function_at("json:loads", Path())("[1]")
    [1]
    """
    module, _, attribute = name.partition(":")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    try:
        value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'Expected a function, "package.module:name", got "{name}": {error}') from error
    if not callable(value):
        raise ValueError(f'Expected a function, got {type(value).__name__} at "{name}"')
    called: Callable[..., Any] = value
    return called
