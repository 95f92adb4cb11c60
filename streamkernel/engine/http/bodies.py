"""Bodies of requests: JSON, compressed or not, of limited size, within a time limit, and the records in them."""

from __future__ import annotations

import asyncio
import zlib

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

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
    streamkernel.engine.http.bodies.UnknownCodingError: Expected content-encoding gzip or deflate, got "br"
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise UnknownCodingError(f'Expected content-encoding gzip or deflate, got "{coding[:60]}"')
    reader, content = zlib.decompressobj(CODINGS[coding]), bytearray()
    try:
        for begin in range(0, len(body), _PIECE):
            rest = body[begin : begin + _PIECE]
            while rest:
                if reader.eof:
                    reader = zlib.decompressobj(CODINGS[coding])
                content += reader.decompress(rest, most + 1 - len(content))
                if len(content) > most:
                    raise TooLongError(f"Expected a body of at most {most:,} bytes when decompressed, got more")
                rest = reader.unused_data
    except zlib.error as error:
        raise ValueError(f"Expected a body in {coding}, got other bytes: {error}") from None
    if not reader.eof:
        raise ValueError(f"Expected a complete body in {coding}, got a part of it")
    return bytes(content)


LARGEST_BODY = 1 << 20
"""Largest size of a body in bytes, as it is sent and decompressed."""

BODY_SECONDS = 10.0
"""Seconds in which a body has to arrive."""


async def json_body(request: Request) -> bytes:
    """Return the decompressed body of a request.

    Raises
    ------
    HTTPException
        If it is not declared as JSON, has an unknown coding, or is damaged, too long or too slow.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Expected a body of content-type application/json")
    too_long = HTTPException(413, f"Expected a body of at most {LARGEST_BODY:,} bytes, got more")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LARGEST_BODY:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY:
                    raise too_long
    except TimeoutError:
        raise HTTPException(408, f"Expected a body within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "Expected a complete body, got a part of it") from None
    try:
        return decompress(bytes(body), ", ".join(request.headers.getlist("content-encoding")), LARGEST_BODY)
    except UnknownCodingError as error:
        raise HTTPException(415, str(error), {"accept-encoding": "gzip, deflate"}) from None
    except TooLongError as error:
        raise HTTPException(413, str(error)) from None
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
