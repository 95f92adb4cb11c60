"""The sources that the table [source] of a configuration can name, each by the key that selects it."""

from importlib import import_module

SOURCES = {
    "path": "connectors.files.source:FileSource",
    "dataset": "connectors.datasets:DatasetSource",
    "topics": "connectors.kafka.source:KafkaSource",
}
"""By key, where the class is. Its parameters are the keys of the table, and one of them is the key that selects it."""


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
