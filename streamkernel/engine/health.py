"""What keeps a run from advancing: unavailable services, calls to which are retried, and other incidents."""

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


def retry_until_answered(
    ask: Callable[[], T],
    stopping: Callable[[], bool],
    count: Callable[[str], None],
    give_up_after: float | None = None,
) -> T | None:
    """Retry a call until it succeeds, and return its result, or ``None`` if the run is stopped first.

    Raise `GaveUpError` if the service was unavailable for so long. `ask` raises `UnavailableError` if the service is
    unavailable. `stopping` says whether we have to stop. `count` is called with the kind of each failure.
    `give_up_after` is the time to retry for, in seconds.
    """

    def is_late(attempt: RetryCallState) -> bool:
        return give_up_after is not None and (attempt.seconds_since_start or 0.0) >= give_up_after

    def is_over(attempt: RetryCallState) -> bool:
        return stopping() or is_late(attempt)

    def report(attempt: RetryCallState) -> None:
        _report_failure(error_of(attempt), count, times=attempt.attempt_number)

    def end(attempt: RetryCallState) -> None:
        if not stopping():
            raise _gave_up(error_of(attempt), give_up_after or 0.0)

    def seconds_after(attempt: RetryCallState) -> float:
        seconds = wait_exponential(max=LONGEST_PAUSE)(attempt)
        left = math.inf if give_up_after is None else give_up_after - (attempt.seconds_since_start or 0.0)
        return min(seconds, max(left, 0.0))

    retrying = Retrying(
        retry=retry_if_exception_type(UnavailableError),
        wait=seconds_after,
        stop=is_over,
        before_sleep=report,
        sleep=lambda seconds: pause(seconds, stopping),
        retry_error_callback=end,
    )
    return retrying(ask)


def aside(call: Callable[[], T], stopping: Callable[[], bool]) -> Callable[[], T]:
    """Return a function that makes a call in its own thread, so that the run can stop during the call.

    It raises `StoppedError` if the run is stopped before the call returns. The call continues, and its result is
    ignored.

    Examples
    --------
    >>> aside(lambda: 1 + 1, stopping=lambda: False)()
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

    return run


class Retries:
    """Retries calls to brokers up to the configured time limit, and reports failures.

    `count` is called with the kind of each failure. `give_up_after` is the time to retry for, in seconds;
    ``None`` is without end.
    """

    def __init__(self, count: Callable[[str], None], give_up_after: float | None) -> None:
        self._count, self._give_up_after = count, give_up_after
        self._last: tuple[str, float] | None = None  # the trouble that was reported last, and when

    def ask(self, call: Callable[[], T], stopping: Callable[[], bool]) -> T | None:
        """Return the result of :func:`retry_until_answered`."""
        return retry_until_answered(call, stopping, self._count, self._give_up_after)

    def ask_aside(self, call: Callable[[], T], stopping: Callable[[], bool]) -> T | None:
        """Return the result of :func:`retry_until_answered` for a call that may take long."""
        return self.ask(aside(call, stopping), stopping)

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
            _report_failure(trouble.error, self._count)
        limit = self._give_up_after
        is_over = limit is not None and time.monotonic() - trouble.since >= limit
        return _gave_up(trouble.error, limit or 0.0) if is_over else None


def _gave_up(error: BaseException | None, seconds: float) -> GaveUpError:
    """Return the error that ends a run after the time limit."""
    return GaveUpError(f"{_who(error)} was unavailable for {seconds:g} s (kafka.give_up_after): {error}")


def _report_failure(error: BaseException | None, count: Callable[[str], None], **more: Any) -> None:
    count("topic_missing" if isinstance(error, TopicMissingError) else "unreachable")
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
