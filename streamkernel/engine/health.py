"""Incidents of a run, retries of calls to unavailable services, and whether the main loop advances."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

from streamkernel.connectors import GaveUpError, Source, TopicMissingError, Trouble, UnavailableError

log = structlog.get_logger("streamkernel")

INCIDENTS = (
    "rebalance", "commit_refused", "record_refused", "write_forbidden", "unreachable", "topic_missing",
    "checkpoint_failed", "stalled", "worker_lost", "not_shared",
)  # fmt: skip
"""Kinds of incidents from which a run recovers."""

STALLED_SECONDS = 60.0
"""Seconds without an event, despite a lag, after which that is reported."""

ILL_SECONDS = 300.0
"""Seconds without a turn of the main loop after which the process is unhealthy."""


class Health:
    """Counts incidents, and records the last turn of the main loop and the arrival of the last events.

    `incidents` are incidents of this process by kind.

    Examples
    --------
    >>> health = Health()
    >>> health.count("rebalance")
    >>> health.incidents["rebalance"], health.ill()
    (1, '')
    """

    def __init__(self) -> None:
        self.incidents = dict.fromkeys(INCIDENTS, 0)
        self._alive = self._moved = time.monotonic()

    def turn(self) -> None:
        """Record that the main loop turns, or waits for a known reason."""
        self._alive = time.monotonic()

    def count(self, incident: str) -> None:
        """Count an incident; a loop that reports incidents is not stuck."""
        self.incidents[incident] += 1
        self.turn()

    def note_events(self) -> None:
        """Record the arrival of events."""
        self._moved = time.monotonic()

    def watch(self, source: Source, has_come: bool) -> None:
        """Report a source with unread records that returns none."""
        if has_come or not any(source.lag().values()):
            self.note_events()
        elif time.monotonic() - self._moved > STALLED_SECONDS:
            self.note_events()
            self.count("stalled")
            log.error("the lag is not 0, and nothing has been read for a minute", lag=sum(source.lag().values()))

    def ill(self) -> str:
        """Return the reason why this process should be restarted, or an empty string."""
        silent = time.monotonic() - self._alive
        return f"the main loop has not advanced for {silent:.0f} s" if silent > ILL_SECONDS else ""


FIRST_PAUSE = 0.5
"""Pause in seconds after the first failed attempt, doubled after each further one."""

LONGEST_PAUSE = 30.0
"""Longest pause in seconds."""

LOOK_SECONDS = 0.1
"""Seconds between two checks for a request to stop."""

REPORT_SECONDS = 60.0
"""Seconds between two reports of the same problem."""


T = TypeVar("T")


class StoppedError(UnavailableError):
    """The run is stopped while the service is still unavailable."""


class Retries:
    """Retries calls to brokers up to the configured time limit, and reports failures.

    `count` is called with the kind of each failure. `give_up_after` is the time to retry for, in seconds;
    ``None`` is without end.
    """

    def __init__(self, count: Callable[[str], None], give_up_after: float | None) -> None:
        self._count, self._limit = count, math.inf if give_up_after is None else give_up_after
        self._last: tuple[str, float] | None = None  # the trouble that was reported last, and when

    def ask(self, call: Callable[[], T], stopping: Callable[[], bool]) -> T | None:
        """Retry a call until it succeeds, and return its result, or ``None`` if the run is stopped first.

        A call raises `UnavailableError` if the service is unavailable. Raise `GaveUpError` after the time limit.
        """

        def left(attempt: RetryCallState) -> float:
            return self._limit - (attempt.seconds_since_start or 0.0)

        def end(attempt: RetryCallState) -> None:
            if not stopping():
                raise self._gave_up(error_of(attempt))

        retrying = Retrying(
            retry=retry_if_exception_type(UnavailableError),
            wait=lambda attempt: min(wait_exponential(max=LONGEST_PAUSE)(attempt), max(left(attempt), 0.0)),
            stop=lambda attempt: stopping() or left(attempt) <= 0.0,
            before_sleep=lambda attempt: self._report_failure(error_of(attempt), times=attempt.attempt_number),
            sleep=lambda seconds: pause(seconds, stopping),
            retry_error_callback=end,
        )
        return retrying(call)

    def ask_aside(self, call: Callable[[], T], stopping: Callable[[], bool]) -> T | None:
        """Retry a call in its own thread, so that the run can stop during the call, whose result is then ignored.

        Examples
        --------
        >>> Retries(print, None).ask_aside(lambda: 1 + 1, stopping=lambda: False)
        2
        """

        def run() -> T:
            answer: Future[T] = Future()

            def task() -> None:
                try:
                    answer.set_result(call())
                except BaseException as error:
                    answer.set_exception(error)

            threading.Thread(target=task, daemon=True, name="kafka-call").start()
            while not wait([answer], LOOK_SECONDS).done:
                if stopping():
                    raise StoppedError("stopped before the response arrived")
            return answer.result()

        return self.ask(run, stopping)

    def report(self, trouble: Trouble | None) -> GaveUpError | None:
        """Report problems with brokers and topics that a source finds, first at once and then once a minute.

        The result is the error that must end the run, if the problem has lasted longer than the configured time.
        """
        now, last = time.monotonic(), self._last
        if trouble is None:
            self._last = None
            return None
        if last is None or last[0] != str(trouble.error) or now - last[1] >= REPORT_SECONDS:
            self._last = str(trouble.error), now
            self._report_failure(trouble.error)
        return self._gave_up(trouble.error) if time.monotonic() - trouble.since >= self._limit else None

    def _gave_up(self, error: BaseException | None) -> GaveUpError:
        return GaveUpError(f"{_who(error)} was unavailable for {self._limit:g} s (kafka.give_up_after): {error}")

    def _report_failure(self, error: BaseException | None, **more: Any) -> None:
        self._count("topic_missing" if isinstance(error, TopicMissingError) else "unreachable")
        log.warning(f"{_who(error)} is unavailable; retrying", reason=str(error), **more)


def _who(error: BaseException | None) -> str:
    return error.service if isinstance(error, UnavailableError) else UnavailableError.service


def error_of(attempt: RetryCallState) -> BaseException | None:
    """Return the error behind a failed call."""
    return attempt.outcome.exception() if attempt.outcome else None


def pause_after(times: int, longest: float = LONGEST_PAUSE) -> float:
    """Return the pause in seconds after a number of failed attempts."""
    return min(longest, FIRST_PAUSE * 2.0 ** min(times, 30))


def pause(seconds: float, stopping: Callable[[], bool]) -> None:
    """Wait, unless the run is stopped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stopping():
        time.sleep(LOOK_SECONDS)
