"""JSON text of any values that a stream contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import repeat
from typing import Any

import orjson

RECORD = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
"""The options for a record: names that are no strings, and numbers of NumPy."""


def to_json(value: Any, option: int) -> bytes:
    r"""Return a value as JSON; characters that UTF-8 cannot represent, as in some file names, are escaped.

    Parameters
    ----------
    value
        The value.
    option
        Options of orjson.

    Raises
    ------
    TypeError
        If JSON cannot hold the value.

    Examples
    --------
    >>> to_json({"stream": b"caf\xe9.csv".decode(errors="surrogateescape")}, 0)
    b'{"stream":"caf\\\\udce9.csv"}'
    """
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        return orjson.dumps(_escape(value), option=option)


def all_to_json(values: Iterable[Any], option: int) -> list[bytes]:
    """Return each value as `to_json` does, faster, and twice as fast where all names are strings."""
    values = list(values)
    for attempt in dict.fromkeys((option & ~orjson.OPT_NON_STR_KEYS, option)):
        with suppress(TypeError):
            return list(map(orjson.dumps, values, repeat(None), repeat(attempt)))
    return [to_json(value, option) for value in values]  # one of them has characters that have to be escaped


def printable(text: str) -> str:
    """Return a text without characters that UTF-8 cannot represent."""
    return text.encode(errors="backslashreplace").decode()


def _escape(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {_escape(key): _escape(item) for key, item in value.items()}
    return [_escape(item) for item in value] if isinstance(value, (list, tuple)) else value
