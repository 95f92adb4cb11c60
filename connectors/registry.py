"""The sources and sinks that a configuration can name, each by the key that selects it."""

from importlib import import_module

SOURCES = {
    "path": "connectors.files.source:FileSource",
    "dataset": "connectors.datasets:DatasetSource",
    "topics": "connectors.kafka.source:KafkaSource",
    "http": "connectors.http.source:HttpSource",
}
"""The module and class for each key of [source]. The class's parameters are the keys of the table, one of which selects
it."""

SINKS: dict[str, str] = {
    # files and topics have keys of [sink] instead
}
"""Those for each key of [sink.predictions], likewise."""


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
