"""The OpenAPI description of the HTTP server."""

from __future__ import annotations

from typing import Any

from streamkernel.engine.http.predictions import MOST_EXPLAINED, MOST_NAMES, MOST_ROWS
from streamkernel.engine.pipelines import MOST_INPUTS

VALUE = {"type": ["number", "string", "boolean", "null"], "description": "null counts as missing"}
RECORD = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": MOST_NAMES,
    "additionalProperties": VALUE,
    "examples": [{"age": 31, "town": "Graz"}],
}
RECORDS = {"type": "array", "items": RECORD, "minItems": 1, "maxItems": MOST_ROWS}


def _object(properties: dict[str, Any], *, is_closed: bool = False) -> dict[str, Any]:
    """Return the schema of an object with these properties, and with no others if it is closed."""
    schema = {"type": "object", "required": list(properties), "properties": properties}
    return schema | ({"additionalProperties": False} if is_closed else {})


def _bound(does: str, what: str) -> dict[str, Any]:
    return {
        "type": ["number", "null", "object"],
        "additionalProperties": {"type": ["number", "null"]},
        "description": f"where the interval {does}; null if it has no {what}; of several targets an object by field",
    }


ANSWER = {
    "type": "object",
    "required": ["prediction"],
    "properties": {
        "prediction": {
            "type": ["number", "string", "boolean", "object", "null"],
            "additionalProperties": {"type": ["number", "boolean"]},
            "description": "null before any class; of several targets an object by field",
        },
        "probabilities": {
            "type": "object",
            "additionalProperties": {"type": ["number", "object"], "additionalProperties": {"type": "number"}},
            "description": "by class; of several labels by field, then by class",
        },
        "lower": _bound("begins", "beginning"),
        "upper": _bound("ends", "end"),
        "set": {
            "type": ["array", "object"],
            "items": {"type": ["number", "string", "boolean"]},
            "additionalProperties": {"type": "array", "items": {"type": "boolean"}},
            "description": "likely classes, the most likely first; of several labels an object by field",
        },
        "explanation": {
            "type": "object",
            "additionalProperties": {"type": ["number", "object"], "additionalProperties": {"type": "number"}},
            "description": "with explain=true: what each input adds to the score, compared with its mean; "
            "of several targets by field, then by input",
        },
    },
    "additionalProperties": False,
}
EXPLAIN = {
    "name": "explain",
    "in": "query",
    "schema": {"type": "string", "enum": ["true", "false"], "default": "false"},
    "description": "whether the contributions of the inputs are wanted, of a model with explain_one and of at most "
    f"{MOST_EXPLAINED} records of {MOST_INPUTS} inputs",
}
ERROR = _object({"error": {"type": "string"}})
STATUS = _object({"status": {"type": "string"}})
BODIES = {
    400: "an incomplete or damaged body",
    408: "a body that took too long",
    413: "a body that is too large, as it is sent or decompressed",
    415: "a body that is not JSON, or not compressed by gzip or deflate",
}
EARLY = {503: "no model yet, or too many requests are waiting; retry later"}
VERSIONS = {
    "streamkernel-version": {"schema": {"type": "integer"}, "description": "which copy of the model answered"},
    "streamkernel-events": {"schema": {"type": "integer"}, "description": "events that it had learned"},
}


def description(*, needs_token: bool, learns: bool = False) -> dict[str, Any]:
    """Return the description of a run's server, which may take events.

    Examples
    --------
    >>> sorted(description(needs_token=False)["paths"])
    ['/healthz', '/metrics', '/model', '/predict', '/readyz', '/status']
    """
    guarded = _guarded(needs_token)
    status = _get("The data of the live page", "the run", guarded)
    paths = {"/predict": _predict(guarded), "/model": _model(guarded), "/status": status}
    return _document(paths | ({"/learn": _learning(guarded)} if learns else {}), needs_token)


def serving_description(*, has_one: bool, needs_token: bool) -> dict[str, Any]:
    """Return the description of a server of models apart from learning, which may have one model.

    Examples
    --------
    >>> sorted(serving_description(has_one=False, needs_token=False)["paths"])
    ['/healthz', '/metrics', '/models', '/models/{name}', '/models/{name}/predict', '/readyz']
    """
    guarded = _guarded(needs_token)
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    unknown = {404: "no model of this name"}
    paths = {
        "/models": _get("The models and their checkpoints", "by name", guarded),
        "/models/{name}": {"parameters": [name], **_model(guarded | unknown)},
        "/models/{name}/predict": {"parameters": [name], **_predict(guarded | unknown)},
    }
    return _document(
        paths | ({"/predict": _predict(guarded), "/model": _model(guarded)} if has_one else {}), needs_token
    )


def _guarded(needs_token: bool) -> dict[int, str]:
    return {401: "no token, or a wrong one"} if needs_token else {403: "a request from another machine"}


def _get(summary: str, text: str, refused: dict[int, str]) -> dict[str, Any]:
    responses = {"200": _response(text, {"type": "object"}), **_errors(refused)}
    return {"get": {"summary": summary, "responses": responses}}


def _predict(refused: dict[int, str]) -> dict[str, Any]:
    predictions = {
        "type": "array",
        "items": {"oneOf": [ANSWER, ERROR]},
        "description": "in the order of the records; an error belongs to the record at its place",
    }
    question = _object({"x": {"oneOf": [RECORD, RECORDS]}}, is_closed=True)
    predict = {
        "summary": "Predict one record, or many",
        "parameters": [EXPLAIN],
        "requestBody": {"required": True, "content": _json(question)},
        "responses": {
            "200": _answer("the prediction", {"oneOf": [ANSWER, _object({"predictions": predictions})]}),
            **_errors(BODIES | {422: "an invalid request for predictions"} | refused | EARLY),
        },
    }
    return {"post": predict}


def _learning(refused: dict[int, str]) -> dict[str, Any]:
    bodies = [_object({"event": RECORD}, is_closed=True), _object({"events": RECORDS}, is_closed=True)]
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        "description": "a name of the request, with which it can be repeated and is learned once",
    }
    place = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    stored = _object(
        {
            "events": {"type": "integer", "description": "how many were stored"},
            "position": {"type": "integer", "description": "the byte of the log after the request"},
            "is_repeated": {"type": "boolean", "description": "whether it was stored before"},
            "results": {
                "type": "array",
                "items": {"oneOf": [_object({"position": place}), ERROR]},
                "description": "in the order of the events: the position of one that was stored, the error of another",
            },
        }
    )
    statuses = {
        400: "an incomplete or damaged body, or no event that can be stored",
        422: "a known Idempotency-Key with other events",
        429: "too many events wait to be learned; retry later",
        503: "the events could not be stored, or too many requests are waiting; retry later",
    }
    learn = {
        "summary": "Learn one event, or many",
        "parameters": [key],
        "requestBody": {"required": True, "content": _json({"oneOf": bodies})},
        "responses": {
            "202": _response("the events are durable, and will be learned", stored),
            **_errors(BODIES | refused | statuses),
        },
    }
    return {"post": learn}


def _model(refused: dict[int, str]) -> dict[str, Any]:
    responses = {"200": _answer("the model", {"type": "object"}), **_errors(refused | EARLY)}
    return {"get": {"summary": "The model that predicts", "responses": responses}}


def _document(paths: dict[str, Any], needs_token: bool) -> dict[str, Any]:
    """Return the description of some paths, and of the paths that every server has."""
    text = {"description": "Prometheus's text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    paths = paths | {
        "/metrics": {"get": {"summary": "Metrics", "responses": {"200": text}, "security": []}},
        "/healthz": {"get": _health("Whether the process is healthy")},
        "/readyz": {"get": _health("Whether a model can predict")},
    }
    document: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": "streamkernel", "version": "1"}, "paths": paths}
    if needs_token:
        document |= {"components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}}
        document |= {"security": [{"token": []}]}
    return document


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _response(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": _json(schema)}


def _answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "headers": VERSIONS, "content": _json(schema)}


def _errors(texts: dict[int, str]) -> dict[str, Any]:
    return {str(status): _response(text, ERROR) for status, text in texts.items()}


def _health(summary: str) -> dict[str, Any]:
    responses = {"200": _response("yes", STATUS), "503": _response("no, with the reason", STATUS)}
    return {"summary": summary, "responses": responses, "security": []}
