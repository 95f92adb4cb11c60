"""Encoding of records for a sink, which refuses records that its format cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from streamkernel.connectors.base import RecordsRefusedError
from streamkernel.connectors.json_text import RECORD, to_json

Refused = tuple[Mapping[str, Any], bytes | None, str]
"""A record, its key, and the reason."""


class Encoded(NamedTuple):
    """A record with its key, kept for the case that the service refuses it, and the bytes to send."""

    record: Mapping[str, Any]
    key: bytes | None
    content: bytes


def encode_each(
    encode: Callable[[Mapping[str, Any]], bytes],
    records: Iterable[Mapping[str, Any]],
    keys: Iterable[bytes | None],
) -> tuple[list[Encoded], list[Refused]]:
    r"""Return the records that can be encoded, and the ones that cannot.

    Parameters
    ----------
    encode
        Returns the bytes of a record, or raises a `TypeError` or `ValueError` with the reason.
    records, keys
        The records, each with a key.

    Examples
    --------
    >>> encoded, refused = encode_each(lambda record: bytes([record["y"]]), [{"y": 1}, {"y": 256}], [None, b"k"])
    >>> [one.content for one in encoded], refused
    ([b'\x01'], [({'y': 256}, b'k', 'bytes must be in range(0, 256)')])
    """
    encoded: list[Encoded] = []
    refused: list[Refused] = []
    for record, key in zip(records, keys, strict=True):
        try:
            encoded.append(Encoded(record, key, encode(record)))
        except (TypeError, ValueError) as error:
            refused.append((record, key, str(error)))
    return encoded, refused


def json_or_refuse(record: Mapping[str, Any], key: bytes | None) -> bytes:
    """Return a record as JSON.

    Raises
    ------
    RecordsRefusedError
        If JSON cannot hold it.
    """
    try:
        return to_json(record, RECORD)
    except TypeError as error:
        raise RecordsRefusedError([(record, key, str(error))]) from error
