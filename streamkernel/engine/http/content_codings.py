"""Compressed bodies of requests, decompressed up to a size."""

from __future__ import annotations

import zlib

CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Values of ``Content-Encoding``, and the window bits of zlib for each."""

_PIECE = 4096  # what is copied after each member, of which a body may have thousands


class UnknownCodingError(ValueError):
    """A body has a coding that cannot be undone."""


class TooLongError(ValueError):
    """A body is longer than allowed when it is decompressed."""


def decompress(body: bytes, coding: str, most: int) -> bytes:
    """Return a body without its coding; never more than `most` bytes are decompressed.

    Parameters
    ----------
    body
        The body as it was sent.
    coding
        The value of ``Content-Encoding``; empty or ``identity`` for none.
    most
        The largest size of the result in bytes.

    Raises
    ------
    ValueError
        If the body is damaged or incomplete; `UnknownCodingError` if the coding is unknown, and `TooLongError` if the
        result has more than `most` bytes.

    Examples
    --------
    >>> import gzip
    >>> decompress(gzip.compress(b"{}"), "gzip", most=10), decompress(b"{}", "", most=10)
    (b'{}', b'{}')
    >>> decompress(b"{}", "br", most=10)
    Traceback (most recent call last):
    streamkernel.engine.http.content_codings.UnknownCodingError: Expected content-encoding gzip or deflate, got "br"
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise UnknownCodingError(f'Expected content-encoding gzip or deflate, got "{coding[:60]}"')
    reader, found = zlib.decompressobj(CODINGS[coding]), bytearray()
    try:
        for begin in range(0, len(body), _PIECE):
            rest = body[begin : begin + _PIECE]
            while rest:
                if reader.eof:
                    reader = zlib.decompressobj(CODINGS[coding])
                found += reader.decompress(rest, most + 1 - len(found))
                if len(found) > most:
                    raise TooLongError(f"Expected a body of at most {most:,} bytes when decompressed, got more")
                rest = reader.unused_data
    except zlib.error as error:
        raise ValueError(f"Expected a body in {coding}, got other bytes: {error}") from None
    if not reader.eof:
        raise ValueError(f"Expected a complete body in {coding}, got a part of it")
    return bytes(found)
