"""Records as Kafka's batches contain them, encoded and decoded together."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from streamkernel.connectors.kafka.clients import Headers, OutRecord, Record

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
        rest, encoded = 2 * n if n >= 0 else -2 * n - 1, bytearray()
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        if 0 <= n < MOST_KEPT:
            self[n] = bytes(encoded)
        return bytes(encoded)


_INTEGERS = _Integers()


def encode(records: Iterable[OutRecord], first: int, after: int, bytes_left: int) -> tuple[bytes, int, int]:
    r"""Encode the first records, as many as fit, and return the bytes, their number, and the size of the largest.

    `first` is the place of the first one in the batch. `after` is the time since the first record of the batch in
    milliseconds, which all of them have.

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
        bytes_left -= taken
        if bytes_left < 0:
            break
        parts += size, record
        if taken > largest:
            largest = taken
    return b"".join(parts), len(parts) // 2, largest


def _encode_headers(headers: Headers) -> bytes:
    parts = [_INTEGERS[len(headers)]]
    for name, value in headers:
        text = name.encode()
        parts += _INTEGERS[len(text)], text, _INTEGERS[len(value)], value
    return b"".join(parts)


LARGEST, NONE_LENGTH = 0x7F, 1
"""The largest integer of one byte, and the length of a key or a value that is none."""


def decode(data: bytes, at: int, most: int, batch: tuple[int, int, int | None]) -> tuple[list[Record], int]:
    r"""Decode records up to the first unusual or damaged one, at most `most`, and return the end of the last one.

    `data` has the records of a batch, and `at` is where to begin. `batch` has its first offset, its first timestamp,
    and the timestamp of all its records, if they have one.

    Examples
    --------
    >>> records, end = decode(b'\x18\x00\x00\x08\x02k\x02c\x02\x02h\x021', 0, 9, (100, 5, None))
    >>> end, *records
    (13, Record(offset=104, key=b'k', value=b'c', headers=[('h', b'1')], timestamp=5))
    """
    first, began, latest = batch
    records: list[Record] = []
    new, begin = tuple.__new__, at
    with suppress(IndexError, ValueError):  # kafka-python reports damage
        for _ in range(most):
            size, at = data[at], at + 1  # small integers need one byte
            if size > LARGEST:
                size, at = _rest(data, size, at)
            end, attributes, after, at = at + (size >> 1), data[at], data[at + 1], at + 2
            if after > LARGEST:
                after, at = _rest(data, after, at)
            place, at = data[at], at + 1
            if place > LARGEST:
                place, at = _rest(data, place, at)
            key, at = (None, at + 1) if data[at] == NONE_LENGTH else _content(data, at)
            value, at = _content(data, at)
            headers, at = _headers(data, at) if data[at] else ((), at + 1)
            if at != end or attributes or (size | place) & 1:
                break
            timestamp = began + (after >> 1 ^ -(after & 1)) if latest is None else latest
            records.append(new(Record, (first + (place >> 1), key, value, headers, timestamp)))
            begin = at
    return records, begin


def _rest(data: bytes, start: int, at: int) -> tuple[int, int]:
    """Return an integer, with its sign in the last bit, and its end, given its first byte and the place of the next."""
    number = start & LARGEST
    for shift in range(7, 64, 7):
        part, at = data[at], at + 1
        number |= (part & LARGEST) << shift
        if part <= LARGEST:
            return number, at
    raise ValueError(f"Expected an integer of 64 bits, got {number}")


def _content(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the bytes behind their number, and their end."""
    size, at = data[at], at + 1
    if size > LARGEST:
        size, at = _rest(data, size, at)
    if size & 1:
        return None, at
    end = at + (size >> 1)
    return data[at:end], end


def _headers(data: bytes, at: int) -> tuple[Headers, int]:
    """Return the headers behind their number, and their end."""
    count, at = data[at], at + 1
    if count > LARGEST:
        count, at = _rest(data, count, at)
    headers: list[Any] = []
    for _ in range(count >> 1):
        name, at = _content(data, at)
        value, at = _content(data, at)
        if name is None:
            raise ValueError("Expected the name of a header, got none")
        headers.append((name.decode(), value))
    if count & 1:
        raise ValueError(f"Expected the number of headers, got {count}")
    return headers, at
