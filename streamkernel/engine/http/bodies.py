"""Bodies of requests: JSON, compressed or not, of limited size, and within a time limit."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from streamkernel.engine.http.content_codings import TooLongError, UnknownCodingError, decompress

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
