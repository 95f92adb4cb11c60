"""Avro: values decoded with their writer schema, optionally into a reader schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro

from streamkernel.connectors.schema_registry.registry import Registry


def reader_of(registry: Registry, number: int, schema: Any, reader_schema: str | None) -> Callable[[bytes], Any]:
    """Return the decoder of values with a schema."""
    written = parsed(schema.schema_str, _named(registry, schema.references, {}))
    wanted = None if reader_schema is None else parsed(reader_schema)

    def read(value: bytes) -> Any:
        stream = BytesIO(value)
        decoded = fastavro.schemaless_reader(stream, written, wanted)
        if rest := len(value) - stream.tell():
            raise ValueError(f"{rest} bytes are left behind the record")
        return decoded

    return read


def parsed(text: str, named: dict[str, Any] | None = None) -> Any:
    """Return a schema as parsed by fastavro; raise a `ValueError` if it is invalid.

    Examples
    --------
    >>> parsed('{"type": "record"}')
    Traceback (most recent call last):
    ValueError: Expected a schema of Avro, got SchemaParseException: "name" is a required field missing ...
    """
    try:
        return fastavro.parse_schema(json.loads(text), named_schemas={} if named is None else named)
    except Exception as error:
        raise ValueError(f"Expected a schema of Avro, got {type(error).__name__}: {error}") from error


def _named(registry: Registry, references: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas that another one refers to, by name."""
    for reference in references or ():
        if reference.name not in named:
            other = registry.version(reference.subject, reference.version)
            parsed(other.schema_str, _named(registry, other.references, named))
    return named
