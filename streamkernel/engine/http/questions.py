"""A request for predictions, and its response."""

from __future__ import annotations

from typing import Any

import orjson

from connectors.formats import JSON_NAMES, JsonLines
from streamkernel.engine.serving_copy import PublishedModel
from streamkernel.errors import InputError

MOST_ROWS = 1000
"""Records that are predicted for one request at most."""

MOST_NAMES = 4096
"""Fields that a record of a request may have: the first prediction for so many new names takes about 0.1 s."""

SHORT_BYTES = 2048
"""Bytes of a request of one record up to which it is short."""


def question_in(body: bytes) -> list[dict[str, Any]] | dict[str, Any]:
    """Return the record or the records of a request for predictions.

    Raises
    ------
    ValueError
        If the body is not one.

    Examples
    --------
    >>> question_in(b'{"x": {"age": 31}}')
    {'age': 31}
    >>> question_in(b'{"xs": [1]}')
    Traceback (most recent call last):
    ValueError: Expected a field "x" and no other, got "xs"
    """
    try:
        found = JsonLines().parse(body)
    except UnicodeDecodeError:
        raise ValueError("Expected UTF-8, got other bytes") from None
    if list(found) != ["x"]:
        got = ", ".join(orjson.dumps(name[:60]).decode() for name in list(found)[:5]) or "nothing"
        raise ValueError(f'Expected a field "x" and no other, got {got}')
    x = found["x"]
    if not isinstance(x, list):
        return _record(x, "x")
    if not 1 <= len(x) <= MOST_ROWS:
        raise ValueError(f"Expected 1 to {MOST_ROWS:,} records, got {len(x):,} - at x")
    return [_record(record, f"x[{i}]") for i, record in enumerate(x)]


def answer_to(question: list[dict[str, Any]] | dict[str, Any], published: PublishedModel) -> dict[str, Any]:
    """Return the prediction for a record, or for each of several.

    Raises
    ------
    ValueError
        If a record cannot be used.
    """
    if isinstance(question, dict):
        return _answer(question, published, "x")
    return {"predictions": [_answer(record, published, f"x[{i}]") for i, record in enumerate(question)]}


def _record(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError(f"Expected an object, got {JSON_NAMES[type(record)]} - at {where}")
    if len(record) > MOST_NAMES:
        raise ValueError(f"Expected at most {MOST_NAMES:,} fields, got {len(record):,} - at {where}")
    return record


def _answer(record: dict[str, Any], published: PublishedModel, where: str) -> dict[str, Any]:
    try:
        return published.answer(record)
    except InputError as error:
        raise ValueError(f"{error} - in {where}") from None
    except Exception as error:  # whatever a step of the pipeline raises about this record
        raise ValueError(f"{type(error).__name__}: {error} - in {where}") from None
