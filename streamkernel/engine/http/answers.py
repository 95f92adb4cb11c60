"""Responses in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from streamkernel.connectors.json_text import to_json

_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a value of Python or numpy as JSON."""
    return Response(to_json(value, _JSON), status, headers, "application/json")
