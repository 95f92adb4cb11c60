"""The sources that the table [source] of a configuration can name, each by the key that selects it."""

from importlib import import_module

SOURCES = {
    "path": "connectors.files.source:FileSource",
    "dataset": "connectors.datasets:DatasetSource",
    "topics": "connectors.kafka.source:KafkaSource",
}
"""The module and class for each key. The class's parameters are the keys of the table, one of which selects it."""


def source_class(key: str) -> type:
    """Return the class of a source; its module, and any library that it needs, is imported now.

    Raises
    ------
    ImportError
        If such a library is not installed.

    Examples
    --------
    >>> source_class("dataset").__name__
    'DatasetSource'
    """
    module, _, name = SOURCES[key].partition(":")
    kind: type = getattr(import_module(module), name)
    return kind
