"""Encoding of values with the id of their schema in front; the schema is registered before the first value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamkernel.connectors.schema_registry.reading import HEAD, KINDS
from streamkernel.connectors.schema_registry.registry import Registry

Write = Callable[[Mapping[str, Any]], bytes]
"""Encodes fields as the bytes after the id."""


class ValueWriter:
    """Writes values of one schema.

    Parameters
    ----------
    registry : Registry
        The registry of the schema.
    subject : str
        The subject of the schema; for the values of a topic, its name with ``-value``.
    form : {"avro", "protobuf", "json-schema"}
        The format.
    schema : str
        The schema, in the language of the format.
    write : callable
        Encodes fields as bytes of this schema.
    """

    def __init__(self, registry: Registry, subject: str, form: str, schema: str, write: Write) -> None:
        self._registry, self._subject, self._kind, self._schema = registry, subject, KINDS[form], schema
        self._write = write
        self._head = b""

    def open(self) -> None:
        """Register the schema.

        Raises
        ------
        ValueError
            If the registry refuses it.
        RegistryUnavailableError
            If the registry is unavailable.
        """
        if not self._head:
            self._head = HEAD.pack(0, self._registry.register(self._subject, self._schema, self._kind))

    def __call__(self, record: Mapping[str, Any]) -> bytes:
        """Return the bytes of a record.

        Raises
        ------
        ValueError
            If it does not fit the schema.
        RegistryUnavailableError
            If the schema is not registered yet, and the registry is unavailable.
        """
        self.open()
        return self._head + self._write(record)


def record_writer(registry: Registry, topic: str, form: str, fields: Mapping[str, str]) -> ValueWriter:
    """Return the writer of records with the given fields to a topic.

    Parameters
    ----------
    registry : Registry
        The registry, where the schema's subject is the name of the topic with ``-value``.
    topic : str
        The topic.
    form : {"avro", "protobuf", "json-schema"}
        The format.
    fields : dict of str to str
        The kinds of the fields, one of `streamkernel.connectors.schema_registry.record_schemas.KINDS`.
    """
    from streamkernel.connectors.schema_registry.record_schemas import schema_and_write

    return ValueWriter(registry, f"{topic}-value", form, *schema_and_write(form, fields))
