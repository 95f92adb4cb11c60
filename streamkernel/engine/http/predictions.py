"""Requests for predictions and their answers, computed one after the other in a thread beside the event loop.

Each of several records is answered or refused on its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from streamkernel.connectors.json_values import JSON_NAMES, flatten, json_object, put_digits
from streamkernel.engine.http.applications import json_answer, json_body
from streamkernel.engine.pipelines import is_explainable, name_of
from streamkernel.engine.telemetry.monitor import PublishedModel
from streamkernel.errors import InputError
from streamkernel.estimators.internals import last_step

MOST_ROWS = 1000
"""Largest number of records in a request."""

MOST_EXPLAINED = 32
"""Records that are explained for one request at most."""

MOST_NAMES = 4096
"""Largest number of fields in a record; the first prediction of a record with this many new names takes about 0.1 s."""

SHORT_BYTES = 2048
"""Largest size in bytes of a short request for one record."""

MAX_JOBS = 16
"""Jobs that may be queued, including the one that is running."""

QUICK_SECONDS = 0.005
"""Seconds up to which a short job runs in the event loop, measured by the last one."""

T = TypeVar("T")


def question_in(body: bytes, texts: Collection[str] = ()) -> Any:
    """Return the list of records that a request asks to predict, or its only record; none is checked yet.

    `texts` are fields in which integers beyond 64 bits are texts. Raise `ValueError` if the body is not one.

    Examples
    --------
    >>> question_in(b'{"x": {"age": 31}}')
    {'age': 31}
    >>> question_in(b'{"xs": [1]}')
    Traceback (most recent call last):
    ValueError: Expected a field "x" and no other, got "xs"
    """
    try:
        question = json_object(body)
    except UnicodeDecodeError:
        raise ValueError("Expected UTF-8, got other bytes") from None
    if list(question) != ["x"]:
        got = ", ".join(orjson.dumps(name[:60]).decode() for name in list(question)[:5]) or "nothing"
        raise ValueError(f'Expected a field "x" and no other, got {got}')
    put_digits(question, body, texts)
    x = question["x"]
    if isinstance(x, list) and not 1 <= len(x) <= MOST_ROWS:
        raise ValueError(f"Expected 1 to {MOST_ROWS:,} records, got {len(x):,} - at x")
    return x


def is_explanation_wanted(query: Mapping[str, str]) -> bool:
    """Return whether the query of a request asks for explanations.

    Raise `ValueError` if it has another value than true or false.

    Examples
    --------
    >>> is_explanation_wanted({"explain": "true"}), is_explanation_wanted({})
    (True, False)
    """
    value = query.get("explain", "false")
    if value not in ("true", "false"):
        raise ValueError(f"Expected explain=true or explain=false, got {orjson.dumps(value[:60]).decode()}")
    return value == "true"


def answer_to(question: Any, published: PublishedModel, *, explained: bool = False) -> dict[str, Any]:
    """Return the prediction for a record, or for each of several a prediction or the reason why there is none.

    `question` is the result of `question_in`. `explained` says whether each prediction has the contributions of the
    inputs. Raise `ValueError` if the only record cannot be used or explained, or none can.
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


class BusyError(Exception):
    """The queue is full."""


class Worker:
    """Runs one job at a time, in a thread, or in the event loop if the job is short.

    Passing a job to a thread and its result back takes longer than a short job. So a short job runs in the event loop
    if the last one was quick and the thread has nothing to do.

    Examples
    --------
    >>> asyncio.run(Worker().run(lambda: 6 * 7, is_short=False))
    42
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        self._n_jobs = 0  # changed by the event loop only
        self._is_quick = False
        self._thread = self._started_thread()

    async def run(self, job: Callable[[], T], *, is_short: bool) -> T:
        """Run a job, and return its result or raise its error. Raise `BusyError` if `MAX_JOBS` are queued already."""
        if is_short and self._is_quick and not self._n_jobs:
            return self._time_call(job)
        if self._n_jobs >= MAX_JOBS:
            raise BusyError
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._thread.is_alive():  # after an exception that another thread raised there
            self._thread = self._started_thread()
        self._n_jobs += 1
        self._queue.put(((lambda: self._time_call(job)) if is_short else job, future))
        return await future

    def _started_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._run_jobs, daemon=True, name="predictions")
        thread.start()
        return thread

    def _time_call(self, job: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return job()
        finally:
            self._is_quick = time.perf_counter() - began <= QUICK_SECONDS

    def _run_jobs(self) -> None:
        while True:
            job, future = self._queue.get()
            try:
                result, error = job(), None
            except Exception as raised:
                result, error = None, raised
            except BaseException as raised:  # which would end the thread here, and there the event loop
                result, error = None, RuntimeError(f"The prediction was interrupted by {type(raised).__name__}")
            future.get_loop().call_soon_threadsafe(self._finish_job, future, result, error)

    def _finish_job(self, future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._n_jobs -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


async def answer_prediction(request: Request, published: PublishedModel, worker: Worker) -> Response:
    """Return the predictions that a request asks for.

    Raise `HTTPException` if the request is invalid, or too many are waiting. `request` is the request; its state gets
    the number of predicted `records`. `worker` runs what takes longer than a short request.
    """
    try:
        body = await json_body(request)
        fields = published.examples.fields
        question = question_in(body, () if fields is None else fields.texts)
        explained = is_explanation_wanted(request.query_params)

        def answered() -> Response:
            answer = answer_to(question, published, explained=explained)
            request.state.records = sum("error" not in one for one in answer.get("predictions", (answer,)))
            return json_answer(answer, headers=version_headers(published))

        is_short = not isinstance(question, list) and len(body) <= SHORT_BYTES and not explained
        return await worker.run(answered, is_short=is_short)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    except BusyError:
        raise HTTPException(503, "Too many requests are waiting; retry later", {"retry-after": "1"}) from None


def version_headers(published: PublishedModel) -> dict[str, str]:
    """Return the headers that say which model answered."""
    return {"streamkernel-version": str(published.version), "streamkernel-events": str(published.events)}
