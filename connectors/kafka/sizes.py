"""The largest record that a producer sends, and an upper bound of the size of a record."""

from __future__ import annotations

from connectors.kafka.clients import Headers
from connectors.kafka.options import Options

LIMITS = {"max_request_size": 1_048_576, "message.max.bytes": 1_000_000}
"""Options of the clients with the largest size in bytes, and their defaults."""

OVERHEAD = 100
"""Bytes of a batch and of a record besides its parts, at most."""

LENGTH = 5
"""Bytes of the length of a part, at most."""


def largest_record(options: Options) -> int:
    """Return the largest size of a record in bytes, before compression.

    Examples
    --------
    >>> largest_record(Options("localhost:9092")), largest_record(Options("localhost:9092", {"max_request_size": 9000}))
    (1048576, 9000)
    """
    name = next(name for name in LIMITS if options.separator in name)
    return int(options.given.get(name, LIMITS[name]))


def size_of(value: bytes, key: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of the size of a record in bytes, which every client and broker accepts as such.

    Examples
    --------
    >>> size_of(b"{}", b"k", [("h", b"1")])
    125
    """
    size = OVERHEAD + 2 * LENGTH + len(value) + len(key or b"")
    return size + sum(2 * LENGTH + len(name.encode()) + len(content or b"") for name, content in headers)
