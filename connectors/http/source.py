"""Events that clients send over HTTP, in the order of a log on disk."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import orjson

from streamkernel.connectors.base import Event, Position, is_count, position_of
from streamkernel.connectors.http.request_log import Request, RequestLog, Stored
from streamkernel.connectors.interfaces import Source
from streamkernel.connectors.json_values import flatten
from streamkernel.connectors.owner import Owner

MOST_WAITING = 256
"""Requests that may wait to become durable."""

MOST_BACKLOG = 1 << 28
"""Bytes of durable requests that may be pending, not yet learned."""

CHECKPOINTS = 4
"""Requests after the oldest of the last four checkpoints are not deleted."""

BATCH_EVENTS = 512

STREAM = "http"


class NotReadyError(Exception):
    """The log is not open, or too many requests are not durable yet: the client may retry at once."""


class BacklogError(Exception):
    """Too many events wait to be learned: the client is faster than the model."""


class HttpSource(Source):
    """The events of requests, from a log that a server appends to by `submit`.

    A position is ``[byte, events]``: the beginning of a request in the log, and how many of its events are done.

    Parameters
    ----------
    http : str or Path
        The directory of the log. Only the process that appends to it can read it.

    Raises
    ------
    ValueError
        If it is a file.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = HttpSource(folder.name)
    >>> source.poll(timeout=0.01)
    []
    >>> source.submit(Request(None, b'[{"x":1},{"x":2}]')).result()
    Stored(begin=0, position=40, is_repeated=False)
    >>> [(event.record, event.resume) for event in source.poll(timeout=1)]
    [({'x': 1}, [0, 1]), ({'x': 2}, [40, 0])]
    >>> source.close()
    >>> folder.cleanup()
    """

    def __init__(self, http: str | Path) -> None:
        self._log = RequestLog(Path(http))
        self._owner = Owner(f"log of requests {http}", self._log.close)
        self._read = [0, 0]
        self._lines: Iterator[bytes] = iter(())
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._waiting: list[tuple[Request, Future[Stored]]] = []
        self._state = "new"
        self._writer: threading.Thread | None = None
        self._committed: deque[int] = deque(maxlen=CHECKPOINTS)

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after a position; nothing is opened or changed yet.

        Raises
        ------
        ValueError
            If the log has no such position.
        """
        position = position_of(STREAM, positions)
        if position is None:
            return
        if not (isinstance(position, (list, tuple)) and len(position) == 2 and all(map(is_count, position))):
            raise ValueError(f"Expected a position [byte, events], got {position!r} - at {self._log.folder}")
        begin, end = self._log.bounds()
        if not begin <= position[0] <= end:
            raise ValueError(
                f"Expected a log that has byte {position[0]:,}, got {begin:,} to {end:,} - at {self._log.folder}: "
                "it is not the one that was read"
            )
        self._read = list(position)

    def poll(self, timeout: float) -> Sequence[Event] | None:
        """Return the next events, which are durable; there is no end.

        Raises
        ------
        OSError
            If the log cannot be opened, which the first call does.
        """
        self._owner.check()
        self._open()
        if self._state == "open" and not cast(threading.Thread, self._writer).is_alive():
            raise RuntimeError("Expected a thread that stores requests, but it has ended; start the run again")
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._log.end > self._read[0], timeout)
        while len(self._events) < BATCH_EVENTS and self._read[0] < self._log.end:
            self._events.extend(self._next())
        return [self._events.popleft() for _ in range(min(BATCH_EVENTS, len(self._events)))]

    def submit(self, request: Request) -> Future[Stored]:
        """Append a request; any thread may call it.

        Parameters
        ----------
        request : Request
            The request.

        Returns
        -------
        Future of Stored
            Done when the request is durable. Its error is an `OSError` if that failed, and a `KeyConflictError` if
            its key is known with other events.

        Raises
        ------
        NotReadyError, BacklogError
            If it has to be sent again later.
        """
        self._owner.check()
        with self._changed:
            if self._state != "open":
                raise NotReadyError("The run is starting or ending; retry")
            if len(self._waiting) >= MOST_WAITING:
                raise NotReadyError("Too many requests are waiting; retry later")
            if self._log.end - self._read[0] > MOST_BACKLOG:
                raise BacklogError(f"More than {MOST_BACKLOG:,} bytes of events wait to be learned; retry later")
            future: Future[Stored] = Future()
            self._waiting.append((request, future))
            self._changed.notify_all()
            return future

    def goes_back(self, before: Position, position: Position) -> bool:
        """Return whether an event of the log is before an earlier one."""
        return list(position) < list(before)

    def after_commit(self, number: int, positions: Mapping[str, Position], deadline: float = math.inf) -> None:
        """Delete old requests that several checkpoints have learned."""
        if STREAM in positions:
            self._committed.append(positions[STREAM][0])
            if len(self._committed) == CHECKPOINTS:
                self._log.release(self._committed[0])

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the bytes of requests that were not read yet, as ``("http", "0")``."""
        return {(STREAM, "0"): max(0, self._log.end - self._read[0])}

    def close(self) -> None:
        """Refuse further requests, store the queued ones, and release the log."""
        if not self._owner.is_here:
            return
        with self._changed:
            self._state = "closed"
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join()
        self._log.close()

    def _open(self) -> None:
        if self._state != "new":
            return
        self._log.open()
        self._writer = threading.Thread(target=self._write, daemon=True, name="request log")
        self._state = "open"
        self._writer.start()

    def _next(self) -> list[Event]:
        """Return the events of the next request that are not processed yet."""
        line = next(self._lines, None)
        if line is None:  # the end of the durable requests when the log was opened
            self._lines = self._log.read(self._read[0])
            line = next(self._lines)
        begin, done = self._read
        end = begin + len(line) + 1
        self._read = [end, 0]
        try:
            events = orjson.loads(line)["events"]
        except (ValueError, KeyError, TypeError) as error:
            return [Event(STREAM, [end, 0], line, error=f"Expected a request, got an error: {error} - at byte {begin}")]
        places = positions_of(begin, end, len(events))
        return [_event(event, place) for event, place in zip(events[done:], places[done:], strict=True)]

    def _write(self) -> None:
        """Append requests in order of arrival, all queued ones at once."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._state == "closed")
                batch, self._waiting = self._waiting, []
            if not batch:
                return
            results: Sequence[Stored | Exception]
            try:
                results = self._log.append([request for request, _ in batch])
            except Exception as error:  # the thread goes on, and each client is answered
                results = [error] * len(batch)
            with self._changed:
                self._changed.notify_all()
            for (_, future), result in zip(batch, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)


def positions_of(begin: int, end: int, n_events: int) -> list[Position]:
    """Return the position after each event of a request, which lies between two bytes of the log.

    Examples
    --------
    >>> positions_of(40, 90, 3)
    [[40, 1], [40, 2], [90, 0]]
    """
    return [*([begin, i] for i in range(1, n_events)), [end, 0]]


def _event(event: dict[str, Any], position: Position) -> Event:
    try:
        return Event(STREAM, position, orjson.dumps(event), flatten(event))
    except (AttributeError, TypeError, ValueError) as error:
        return Event(STREAM, position, orjson.dumps(event), error=str(error))
