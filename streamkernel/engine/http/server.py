"""The HTTP server, in a thread beside the one that learns, and its routes.

Requests to learn have events that are durable before they are confirmed, and learned by the loop in their order.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.connectors.base import Position
from streamkernel.connectors.http.request_log import KeyConflictError, Stored
from streamkernel.connectors.http.request_log import Request as LearningRequest
from streamkernel.connectors.http.source import BacklogError, NotReadyError, positions_of
from streamkernel.connectors.json_values import JSON_NAMES, flatten, json_object, put_digits
from streamkernel.connectors.owner import Owner
from streamkernel.engine.http import openapi
from streamkernel.engine.http.applications import FILES, application_of, json_answer, json_body, page_answer
from streamkernel.engine.http.listening import Certificate, Server, listen
from streamkernel.engine.http.predictions import MOST_NAMES, MOST_ROWS, Worker, answer_prediction, version_headers
from streamkernel.engine.telemetry.status import model_rows, registry_of, status_of
from streamkernel.field_types.declared import ByPath

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine


NOTHING = ByPath({})
_KEY = re.compile(r"[ -~]{1,255}")
_SOON, _LATER = {"retry-after": "1"}, {"retry-after": "10"}


def learning_route(
    submit: Callable[[LearningRequest], Future[Stored]], texts: Collection[str], ignored: Mapping[str, bool]
) -> Route:
    """Return the route of requests to learn; `texts` and `ignored` are as in :func:`events_in`."""

    async def learn(request: Request) -> Response:
        body = await json_body(request)
        try:
            key, parsed = key_of(request.headers.getlist("idempotency-key")), events_in(body, texts, ignored)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        events = [event for event in parsed if isinstance(event, bytes)]
        if not events:
            text = f"Expected an event that can be stored, got none of {len(parsed):,}"
            return json_answer({"error": text, "results": _results(parsed, [])}, 400)
        try:
            stored = await asyncio.wrap_future(submit(LearningRequest(key, b"[%b]" % b",".join(events))))
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
        return json_answer(answer | {"results": _results(parsed, positions)}, 202)

    return Route("/learn", learn, methods=["POST"])


def events_in(
    body: bytes, texts: Collection[str] = (), ignored: Mapping[str, bool] = NOTHING
) -> list[bytes | ValueError]:
    """Return the events of a request as JSON, and in the place of one of several that cannot be stored its error.

    `texts` are fields in which integers beyond 64 bits are texts, and `ignored` says of a field whether its values do
    not matter: an infinite one is stored as null. Raise `ValueError` if the body has none, or its only
    event cannot be stored.

    Examples
    --------
    >>> events_in(b'{"event": {"age": 31, "bought": true}}')
    [b'{"age":31,"bought":true}']
    >>> events_in(b'{"events": [{"age": 31}, 5]}')
    [b'{"age":31}', ValueError('Expected an object, got a number - at events[1]')]
    """
    try:
        content = json_object(body)
    except UnicodeDecodeError:
        raise ValueError("Expected UTF-8, got other bytes") from None
    put_digits(content, body, texts)
    if list(content) == ["event"]:
        return [_event(content["event"], "event", ignored)]
    events = content.get("events")
    if list(content) != ["events"] or not isinstance(events, list):
        got = ", ".join(orjson.dumps(name[:60]).decode() for name in list(content)[:5]) or "nothing"
        raise ValueError(f'Expected a field "event" with an object, or "events" with an array of objects, got {got}')
    if not 1 <= len(events) <= MOST_ROWS:
        raise ValueError(f"Expected 1 to {MOST_ROWS:,} events, got {len(events):,} - at events")
    return [_in_place(event, f"events[{i}]", ignored) for i, event in enumerate(events)]


def key_of(values: list[str]) -> str | None:
    """Return the name that a client gives its request, or ``None`` if it has no name.

    Raise `ValueError` if there are several, or it is not usable.
    """
    if not values:
        return None
    if len(values) > 1 or _KEY.fullmatch(values[0]) is None:
        raise ValueError("Expected one Idempotency-Key of 1 to 255 printable ASCII characters, got another")
    return values[0]


def _results(parsed: list[bytes | ValueError], positions: list[Position]) -> list[dict[str, Any]]:
    """Return the position of each event that was stored, and the error of each other one, in their places."""
    places = iter(positions)
    return [{"error": str(one)} if isinstance(one, ValueError) else {"position": next(places)} for one in parsed]


def _in_place(event: Any, where: str, ignored: Mapping[str, bool]) -> bytes | ValueError:
    try:
        return _event(event, where, ignored)
    except ValueError as error:
        return error


def _event(event: Any, where: str, ignored: Mapping[str, bool]) -> bytes:
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
        if isinstance(value, float) and math.isinf(value) and not ignored[name]:
            raise ValueError(f'Expected a finite number, got {value} - at field "{name}" - in {where}')
    return text


def serve(
    engine: Engine, host: str, port: int, token: str | None = None, certificate: Certificate | None = None
) -> int:
    """Start the server in a thread of its own, and return the port (chosen by the system if `port` is 0).

    Raise `OSError` if the port is in use.
    """
    listening = listen(host, port)
    engine.publisher.wanted = True
    server = Server(application(engine, token), certificate)
    server.owner = Owner("live page", listening.close)  # a child has no thread that answers
    threading.Thread(target=server.run, args=([listening],), daemon=True, name="http").start()
    return int(listening.getsockname()[1])


def application(engine: Engine, token: str | None) -> Starlette:
    """Return the ASGI application of an engine."""
    worker = Worker()
    learning = learning_route(engine.source.submit, engine.texts, engine.ignored) if engine.source.submit else None

    async def healthz(request: Request) -> Response:
        reason = engine.ill()
        return json_answer({"status": reason or "ok"}, 503 if reason else 200)

    async def readyz(request: Request) -> Response:
        published = engine.publisher.newest
        reason = engine.ill() or ("" if published else "no model has been published yet")
        return json_answer(
            {"status": reason or "ok"} | ({"model": published.origin} if published else {}), 503 if reason else 200
        )

    async def model(request: Request) -> Response:
        published = _published_model(engine)
        return json_answer(
            {
                "version": published.version,
                "events": published.events,
                "origin": published.origin,
                "about": dict(model_rows(published.model)),
            },
            headers=version_headers(published),
        )

    async def status(request: Request) -> Response:
        return json_answer(status_of(engine))

    async def predict(request: Request) -> Response:
        return await answer_prediction(request, _published_model(engine), worker)

    routes = [Route(path, page_answer) for path in FILES]
    routes += [Route("/healthz", healthz), Route("/readyz", readyz), Route("/model", model), Route("/status", status)]
    routes += [Route("/predict", predict, methods=["POST"]), *([] if learning is None else [learning])]
    description = openapi.description(needs_token=token is not None, learns=learning is not None)
    return application_of(routes, token, registry_of(engine), description)


def _published_model(engine: Engine) -> Any:
    published = engine.publisher.newest
    if published is None:
        raise HTTPException(503, "No model has been published yet; retry", {"retry-after": "1"})
    return published
