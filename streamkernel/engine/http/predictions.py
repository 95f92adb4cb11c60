"""The answer to a request for predictions, by a copy of a model."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from streamkernel.engine.http.answers import json_answer
from streamkernel.engine.http.bodies import json_body
from streamkernel.engine.http.questions import SHORT_BYTES, answer_to, is_explanation_wanted, question_in
from streamkernel.engine.http.worker import BusyError, Worker
from streamkernel.engine.serving_copy import PublishedModel


async def answer_prediction(request: Request, found: PublishedModel, worker: Worker) -> Response:
    """Return the predictions that a request asks for.

    Parameters
    ----------
    request
        The request; its state gets the number of predicted `records`.
    found
        The model.
    worker
        Runs what takes longer than a short request.

    Raises
    ------
    HTTPException
        If the request is invalid, or too many are waiting.
    """
    try:
        body = await json_body(request)
        fields = found.examples.fields
        question = question_in(body, () if fields is None else fields.texts)
        explained = is_explanation_wanted(request.query_params)

        def answered() -> Response:
            answer = answer_to(question, found, explained=explained)
            request.state.records = sum("error" not in one for one in answer.get("predictions", (answer,)))
            return json_answer(answer, headers=version_headers(found))

        is_short = not isinstance(question, list) and len(body) <= SHORT_BYTES and not explained
        return await worker.run(answered, is_short=is_short)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    except BusyError:
        raise HTTPException(503, "Too many requests are waiting; retry later", {"retry-after": "1"}) from None


def version_headers(found: PublishedModel) -> dict[str, str]:
    """Return the headers that say which model answered."""
    return {"streamkernel-version": str(found.version), "streamkernel-events": str(found.events)}
