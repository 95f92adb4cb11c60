"""Records that could not be processed, stored with the reason."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from streamkernel.connectors.base import Event, Position, Refusal
from streamkernel.connectors.interfaces import Sink, as_sink


class DeadLetters(Sink):
    """Writes records that could not be processed to a sink, so that they can be corrected and read again.

    Parameters
    ----------
    sink : Sink
        The sink.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from streamkernel.connectors import FileSink
    >>> directory = TemporaryDirectory()
    >>> path = Path(directory.name, "dead_letters.jsonl")
    >>> letters = DeadLetters(FileSink(path))
    >>> refusal = Refusal("Expected 2 fields, got 3", "unreadable", "streamkernel.errors.InputError")
    >>> letters.write(Event("ages.csv", [23, 2], raw=b"Ann,31,"), refusal)
    >>> letters.close()
    >>> print(path.read_text(), end="")
    {"reason":"Expected 2 fields, got 3","kind":"unreadable",...,"member":null,"raw":"Ann,31,"}
    >>> directory.cleanup()
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = as_sink(sink)

    def open(self) -> None:
        """Open the sink."""
        self._sink.open()

    def write(  # type: ignore[override]
        self, event: Event, refusal: Refusal, member: str | None = None
    ) -> None:
        """Write one event.

        Parameters
        ----------
        event : Event
            The event. Its bytes are written as text, or in base64 if they are not text. If there are no bytes, its
            record is written as JSON, or by ``repr`` if JSON cannot represent it.
        refusal : Refusal
            The reason.
        member : str or None, default None
            The permanent name of the process.
        """
        line = {**refusal._asdict(), **event.location, "member": member, "raw": _raw(event)}
        if event.key is not None:
            line["record_key"] = _as_json(event.key)
        if event.headers:
            line["record_headers"] = [[name, _as_json(content or b"")] for name, content in event.headers]
        self._sink.write(line)

    def flush(self) -> Position:
        """Make all written records durable and return the position after them."""
        return self._sink.flush()

    def prepare(self, deadline: float = math.inf) -> Position:
        """Prepare the sink."""
        return self._sink.prepare(deadline)

    def commit(self, number: int, session: str, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Commit the sink."""
        self._sink.commit(number, session, positions, deadline)

    def after_commit(self, number: int, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Pass on that a checkpoint counts."""
        self._sink.after_commit(number, positions, deadline)

    def seek(self, position: Position) -> None:
        """Remove the records after a position."""
        self._sink.seek(position)

    def close(self) -> None:
        """Flush and release the sink."""
        self._sink.close()


def _raw(event: Event) -> str | dict[str, str]:
    if event.raw:
        return _as_json(event.raw)
    return "" if event.record is None else record_text(event.record)


def _as_json(content: bytes) -> str | dict[str, str]:
    """Return bytes as text, or in base64 if they are not text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def record_text(record: Mapping[str, Any]) -> str:
    """Return a record as JSON, or as Python shows it if JSON cannot represent it.

    Examples
    --------
    >>> record_text({"x": 1.5, "of": {2}}), record_text({"x": float("nan")})
    ('{"x": 1.5, "of": "{2}"}', "{'x': nan}")
    """
    for show in (_json_of, repr):
        try:
            return show(record)
        except MemoryError:
            raise
        except Exception:  # such as of a class whose objects cannot be shown, or one nested too deeply
            continue
    names = ", ".join(name for name in record if isinstance(name, str))
    return f"a record whose values cannot be shown, of the fields {names}"


def _json_of(record: Mapping[str, Any]) -> str:
    return json.dumps(record, default=repr, ensure_ascii=False, allow_nan=False)
