"""A request for predictions, and its response, in which each of several records is answered or refused alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from streamkernel.connectors.json_values import JSON_NAMES, json_object, put_digits
from streamkernel.connectors.nested import flatten
from streamkernel.engine.explanations import is_explainable
from streamkernel.engine.pipelines import last_step, name_of
from streamkernel.engine.serving_copy import PublishedModel
from streamkernel.errors import InputError

MOST_ROWS = 1000
"""Largest number of records in a request."""

MOST_EXPLAINED = 32
"""Records that are explained for one request at most."""

MOST_NAMES = 4096
"""Largest number of fields in a record; the first prediction of a record with this many new names takes about 0.1 s."""

SHORT_BYTES = 2048
"""Largest size in bytes of a short request for one record."""


def question_in(body: bytes, texts: Collection[str] = ()) -> Any:
    """Return the list of records that a request asks to predict, or its only record; none is checked yet.

    Parameters
    ----------
    body
        The body of the request.
    texts
        Fields in which integers beyond 64 bits are texts.

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
        found = json_object(body)
    except UnicodeDecodeError:
        raise ValueError("Expected UTF-8, got other bytes") from None
    if list(found) != ["x"]:
        got = ", ".join(orjson.dumps(name[:60]).decode() for name in list(found)[:5]) or "nothing"
        raise ValueError(f'Expected a field "x" and no other, got {got}')
    put_digits(found, body, texts)
    x = found["x"]
    if isinstance(x, list) and not 1 <= len(x) <= MOST_ROWS:
        raise ValueError(f"Expected 1 to {MOST_ROWS:,} records, got {len(x):,} - at x")
    return x


def is_explanation_wanted(query: Mapping[str, str]) -> bool:
    """Return whether the query of a request asks for explanations.

    Raises
    ------
    ValueError
        If it has another value than true or false.

    Examples
    --------
    >>> is_explanation_wanted({"explain": "true"}), is_explanation_wanted({})
    (True, False)
    """
    given = query.get("explain", "false")
    if given not in ("true", "false"):
        raise ValueError(f"Expected explain=true or explain=false, got {orjson.dumps(given[:60]).decode()}")
    return given == "true"


def answer_to(question: Any, published: PublishedModel, *, explained: bool = False) -> dict[str, Any]:
    """Return the prediction for a record, or for each of several a prediction or the reason why there is none.

    Parameters
    ----------
    question
        The result of `question_in`.
    published
        The model.
    explained
        Whether each prediction has the contributions of the inputs.

    Raises
    ------
    ValueError
        If the only record cannot be used or explained, or none can.
    """
    if explained and not is_explainable(type(last_step(published.model))):
        raise ValueError(f"Expected a model with explain_one to explain, got {name_of(published.model)}")
    if not isinstance(question, list):
        return _answer(question, published, "x", explained)
    if explained and len(question) > MOST_EXPLAINED:
        raise ValueError(f"Expected at most {MOST_EXPLAINED} records to explain, got {len(question):,} - at x")
    return {"predictions": [_in_place(record, published, f"x[{i}]", explained) for i, record in enumerate(question)]}


def _in_place(record: Any, published: PublishedModel, where: str, explained: bool) -> dict[str, Any]:
    """Return the prediction for one of several records, or an object with the error."""
    try:
        return _answer(record, published, where, explained)
    except ValueError as error:
        return {"error": str(error)}


def _record(record: Any, where: str) -> dict[str, Any]:
    """Return a record with its nested fields as a run reads them."""
    if not isinstance(record, dict):
        raise ValueError(f"Expected an object, got {JSON_NAMES[type(record)]} - at {where}")
    try:
        fields = flatten(record)
    except ValueError as error:
        raise ValueError(f"{error} - in {where}") from None
    if len(fields) > MOST_NAMES:
        raise ValueError(f"Expected at most {MOST_NAMES:,} fields, got {len(fields):,} - at {where}")
    return fields


def _answer(record: Any, published: PublishedModel, where: str, explained: bool) -> dict[str, Any]:
    fields = _record(record, where)
    try:
        return published.answer(fields, explained=explained)
    except InputError as error:
        raise ValueError(f"{error} - in {where}") from None
    except Exception as error:  # whatever a step of the pipeline raises about this record
        raise ValueError(f"{type(error).__name__}: {error} - in {where}") from None
