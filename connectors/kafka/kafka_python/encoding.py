"""Records as Kafka's batches contain them, encoded together."""

from __future__ import annotations

from collections.abc import Iterable

from streamkernel.connectors.kafka.clients import Headers, OutRecord

MOST_KEPT = 1 << 14
"""Number of integers whose bytes are kept."""

NONE = b"\x01"
"""The length of a key or a value that is none: -1."""


class _Integers(dict[int, bytes]):
    """Integers in as few bytes as they need, the small ones computed once.

    Examples
    --------
    >>> [_Integers()[n].hex() for n in (0, 1, 63, 64, 300)]
    ['00', '02', '7e', '8001', 'd804']
    """

    def __missing__(self, n: int) -> bytes:
        rest, found = 2 * n if n >= 0 else -2 * n - 1, bytearray()
        while rest > 0x7F:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        found.append(rest)
        if 0 <= n < MOST_KEPT:
            self[n] = bytes(found)
        return bytes(found)


_INTEGERS = _Integers()


def encode(records: Iterable[OutRecord], first: int, after: int, room: int) -> tuple[bytes, int, int]:
    r"""Encode the first records, as many as fit.

    Parameters
    ----------
    records
        The records.
    first
        The place of the first one in the batch.
    after
        The time since the first record of the batch in milliseconds, which is that of all of them.
    room
        The largest number of bytes.

    Returns
    -------
    data : bytes
        The encoded records.
    count : int
        Their number.
    largest : int
        The size of the largest one.

    Examples
    --------
    >>> encode([(b"ab", None, ()), (b"c", b"k", [("h", b"1")])], 3, 0, 100)
    (b'\x10\x00\x00\x06\x01\x04ab\x00\x18\x00\x00\x08\x02k\x02c\x02\x02h\x021', 2, 13)
    >>> encode([(b"ab", None, ())], 3, 0, 8)
    (b'', 0, 0)
    """
    integers, largest = _INTEGERS, 0
    parts: list[bytes] = []
    begin = b"\0" + integers[after]
    for place, (value, key, headers) in enumerate(records, first):
        of_key = NONE if key is None else integers[len(key)] + key
        of_headers = _encode_headers(headers) if headers else b"\0"
        record = b"".join((begin, integers[place], of_key, integers[len(value)], value, of_headers))
        size = integers[len(record)]
        taken = len(size) + len(record)
        room -= taken
        if room < 0:
            break
        parts += size, record
        if taken > largest:
            largest = taken
    return b"".join(parts), len(parts) // 2, largest


def _encode_headers(headers: Headers) -> bytes:
    found = [_INTEGERS[len(headers)]]
    for name, value in headers:
        text = name.encode()
        found += _INTEGERS[len(text)], text, _INTEGERS[len(value)], value
    return b"".join(found)
