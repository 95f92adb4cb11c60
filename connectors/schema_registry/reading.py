"""Decoding of values that begin with the id of their schema, with that schema."""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

from streamkernel.connectors.schema_registry.registry import Registry

Read = Callable[[bytes], Any]
"""Decodes the bytes after the id to an object."""

HEAD = struct.Struct(">bI")
"""Header of a value: a zero byte, and the id of its schema."""

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
"""Formats, and their names in registries."""

MODULES = {"avro": "avro", "protobuf": "protobuf", "json-schema": "json_schema"}


def registry_reader(registry: Registry, form: str, reader_schema: str | None = None) -> Read:
    """Return a function from the bytes of a value to an object.

    The schema of each id is requested once, and its decoder is kept.

    Parameters
    ----------
    registry : Registry
        The registry of the schemas.
    form : {"avro", "protobuf", "json-schema"}
        The format.
    reader_schema : str or None, default None
        The schema of Avro, as JSON, into which values are read: a field that a value lacks gets its default, and one
        that this schema lacks is left out. By default all fields are read that a value was written with.

    Returns
    -------
    callable
        It raises a `ValueError` if the value or its schema cannot be read, and `RegistryUnavailableError` if the
        registry is unavailable.
    """
    reader_of: Callable[..., Read] = import_module(f"{__package__}.{MODULES[form]}").reader_of
    readers: dict[int, Read] = {}

    def make(number: int) -> Read:
        schema = registry.schema(number)
        kind = schema.schema_type or "AVRO"
        if kind != KINDS[form]:
            raise ValueError(f"Expected a schema of {form}, got {kind} - schema {number}")
        rules = schema.rule_set
        if rules is not None and (rules.domain_rules or rules.encoding_rules):
            raise ValueError(
                f"Expected a schema without rules, got one with rules, as for encryption - schema {number}"
            )
        try:
            return reader_of(registry, number, schema, reader_schema)
        except (OSError, ValueError, MemoryError):
            raise
        except Exception as error:  # any error of the format's library
            raise ValueError(f"Expected a schema, got {type(error).__name__}: {error} - schema {number}") from error

    def read(value: bytes) -> Any:
        if len(value) < HEAD.size or value[0]:
            raise ValueError(
                f"Expected a zero byte and the id of a schema in front, got {value[: HEAD.size].hex(' ') or 'nothing'}"
            )
        number: int = HEAD.unpack_from(value)[1]
        reader = readers.get(number)
        if reader is None:
            reader = readers[number] = make(number)
        try:
            return reader(value[HEAD.size :])
        except (OSError, MemoryError):
            raise
        except Exception as error:
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            raise ValueError(f"Expected a value of schema {number}, got an error: {kind}{error}") from error

    return read
