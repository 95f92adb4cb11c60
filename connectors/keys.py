"""Decoders of keys: the bytes of a record's key become the value of a field."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import orjson

Read = Callable[[bytes], Any]
"""Returns a value for the bytes of a key, or raises a `ValueError` with the reason."""


def key_reader(form: str) -> Read:
    r"""Return the decoder of keys of a format, one of `KEY_FORMATS`.

    Parameters
    ----------
    form
        ``"string"`` is text in UTF-8, ``"long"`` and ``"integer"`` are the 8 and 4 bytes that Kafka's serializers of
        these names write, ``"json"`` is a value of JSON,
        in which an integer beyond 64 bits is a text.

    Raises
    ------
    ValueError
        If there is no such format.

    Examples
    --------
    >>> key_reader("string")(b"7"), key_reader("long")(bytes([0, 0, 0, 0, 0, 0, 0, 7])), key_reader("json")(b"7")
    ('7', 7, 7)
    >>> key_reader("string")(bytes([0, 0, 0, 7]))
    Traceback (most recent call last):
    ValueError: Expected a key of UTF-8 text, got 4 bytes, 00 00 00 07: declare its key_format
    """
    if form not in _READERS:
        raise ValueError(f"Expected one of {', '.join(KEY_FORMATS)} as key_format, got {form!r}")
    return _READERS[form]


def _text(key: bytes) -> str:
    if b"\0" in key:  # valid in UTF-8, but most integers have it and no text does
        raise _not_text(key)
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise _not_text(key) from None


def _not_text(key: bytes) -> ValueError:
    return ValueError(f"Expected a key of UTF-8 text, got {_shown(key)}: declare its key_format")


def _integer_of(form: str, number: struct.Struct) -> Read:
    def read(key: bytes) -> int:
        if len(key) != number.size:
            raise ValueError(f'Expected a key of {number.size} bytes for key_format "{form}", got {_shown(key)}')
        found: int = number.unpack(key)[0]
        return found

    return read


def _json(key: bytes) -> Any:
    try:
        found = orjson.loads(key)
        is_long = type(found) is float and key.strip().removeprefix(b"-").isdigit()
        return key.strip().decode() if is_long else found
    except orjson.JSONDecodeError:
        raise ValueError(f'Expected a key of JSON for key_format "json", got {_shown(key)}') from None


def _shown(key: bytes) -> str:
    more = " ..." if len(key) > 16 else ""
    return f"{len(key)} byte{'' if len(key) == 1 else 's'}{', ' if key else ''}{key[:16].hex(' ')}{more}"


_READERS: Mapping[str, Read] = {
    "string": _text,
    "long": _integer_of("long", struct.Struct(">q")),
    "integer": _integer_of("integer", struct.Struct(">i")),
    "json": _json,
}

KEY_FORMATS = tuple(_READERS)
"""Formats of keys."""
