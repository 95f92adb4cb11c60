"""Requests to learn: events that are durable before they are confirmed, and learned by the loop in their order."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.connectors.base import Position
from streamkernel.connectors.http.request_log import KeyConflictError, Request, Stored
from streamkernel.connectors.http.source import BacklogError, NotReadyError, positions_of
from streamkernel.connectors.json_values import JSON_NAMES, json_object, put_digits
from streamkernel.connectors.nested import flatten
from streamkernel.engine.http.applications import json_answer
from streamkernel.engine.http.bodies import json_body
from streamkernel.engine.http.predictions import MOST_NAMES, MOST_ROWS

_KEY = re.compile(r"[ -~]{1,255}")
_SOON, _LATER = {"retry-after": "1"}, {"retry-after": "10"}


def learning_route(submit: Callable[[Request], Future[Stored]], texts: Collection[str]) -> Route:
    """Return the route of requests to learn, in which integers beyond 64 bits are texts in these fields."""

    async def learn(request: HttpRequest) -> Response:
        body = await json_body(request)
        try:
            key, found = key_of(request.headers.getlist("idempotency-key")), events_in(body, texts)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        events = [event for event in found if isinstance(event, bytes)]
        if not events:
            text = f"Expected an event that can be stored, got none of {len(found):,}"
            return json_answer({"error": text, "results": _results(found, [])}, 400)
        try:
            stored = await asyncio.wrap_future(submit(Request(key, b"[%b]" % b",".join(events))))
        except KeyConflictError as error:
            raise HTTPException(422, str(error)) from None
        except BacklogError as error:
            raise HTTPException(429, str(error), _LATER) from None
        except NotReadyError as error:
            raise HTTPException(503, str(error), _SOON) from None
        except OSError as error:
            text = f"The events could not be stored: {error.strerror or error}; retry later"
            raise HTTPException(503, text, _LATER) from None
        positions = positions_of(stored.begin, stored.position, len(events))
        answer = {"events": len(events), "position": stored.position, "is_repeated": stored.is_repeated}
        return json_answer(answer | {"results": _results(found, positions)}, 202)

    return Route("/learn", learn, methods=["POST"])


def events_in(body: bytes, texts: Collection[str] = ()) -> list[bytes | ValueError]:
    """Return the events of a request as JSON, and in the place of one of several that cannot be stored its error.

    Parameters
    ----------
    body
        The body of the request.
    texts
        Fields in which integers beyond 64 bits are texts.

    Raises
    ------
    ValueError
        If the body has none, or its only event cannot be stored.

    Examples
    --------
    >>> events_in(b'{"event": {"age": 31, "bought": true}}')
    [b'{"age":31,"bought":true}']
    >>> events_in(b'{"events": [{"age": 31}, 5]}')
    [b'{"age":31}', ValueError('Expected an object, got a number - at events[1]')]
    """
    try:
        found = json_object(body)
    except UnicodeDecodeError:
        raise ValueError("Expected UTF-8, got other bytes") from None
    put_digits(found, body, texts)
    if list(found) == ["event"]:
        return [_event(found["event"], "event")]
    events = found.get("events")
    if list(found) != ["events"] or not isinstance(events, list):
        got = ", ".join(orjson.dumps(name[:60]).decode() for name in list(found)[:5]) or "nothing"
        raise ValueError(f'Expected a field "event" with an object, or "events" with an array of objects, got {got}')
    if not 1 <= len(events) <= MOST_ROWS:
        raise ValueError(f"Expected 1 to {MOST_ROWS:,} events, got {len(events):,} - at events")
    return [_in_place(event, f"events[{i}]") for i, event in enumerate(events)]


def key_of(given: list[str]) -> str | None:
    """Return the name that a client gives its request, or ``None`` if it has no name.

    Raises
    ------
    ValueError
        If there are several, or it is not usable.
    """
    if not given:
        return None
    if len(given) > 1 or _KEY.fullmatch(given[0]) is None:
        raise ValueError("Expected one Idempotency-Key of 1 to 255 printable ASCII characters, got another")
    return given[0]


def _results(found: list[bytes | ValueError], positions: list[Position]) -> list[dict[str, Any]]:
    """Return the position of each event that was stored, and the error of each other one, in their places."""
    places = iter(positions)
    return [{"error": str(one)} if isinstance(one, ValueError) else {"position": next(places)} for one in found]


def _in_place(event: Any, where: str) -> bytes | ValueError:
    try:
        return _event(event, where)
    except ValueError as error:
        return error


def _event(event: Any, where: str) -> bytes:
    """Return an event as JSON, in which NaN is null, or raise an error."""
    if not isinstance(event, dict):
        raise ValueError(f"Expected an object, got {JSON_NAMES[type(event)]} - at {where}")
    try:
        fields, text = flatten(event), orjson.dumps(event)
    except (TypeError, ValueError) as error:  # also what JSON cannot hold, as numbers beyond 64 bits
        raise ValueError(f"{error} - in {where}") from None
    if not 1 <= len(fields) <= MOST_NAMES:
        raise ValueError(f"Expected 1 to {MOST_NAMES:,} fields, got {len(fields):,} - at {where}")
    for name, value in fields.items():
        if isinstance(value, float) and math.isinf(value):
            raise ValueError(f'Expected a finite number, got {value} - at field "{name}" - in {where}')
    return text
