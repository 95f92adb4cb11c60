"""Questions to brokers, asked until there is an answer, and which checkpoint counts by what they say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

from connectors import TopicMissing, Unavailable
from streamkernel.engine.checkpoint import StateDirectory, StateDirectoryError

FIRST_PAUSE = 0.5
"""Seconds to wait after something was first in vain; after each further time, twice as long."""

LONGEST_PAUSE = 30.0
"""Seconds to wait before the next try, at most."""

log = structlog.get_logger("streamkernel")

T = TypeVar("T")


def asked(ask: Callable[[], T], stopping: Callable[[], bool], count: Callable[[str], None]) -> T | None:
    """Return the answer, however long it takes; ``None`` if we have to stop before there is one.

    Parameters
    ----------
    ask
        Raises `Unavailable` if there is no answer yet.
    stopping
        Says whether we have to stop.
    count
        Is told of each time in vain, as what.
    """

    def tell(attempt: RetryCallState) -> None:
        error = error_of(attempt)
        count("topic_missing" if isinstance(error, TopicMissing) else "unreachable")
        log.warning("Kafka is asked again", reason=str(error), times=attempt.attempt_number)

    retrying = Retrying(
        retry=retry_if_exception_type(Unavailable),
        wait=wait_exponential(max=LONGEST_PAUSE),
        stop=lambda attempt: stopping(),
        before_sleep=tell,
        sleep=lambda seconds: pause(seconds, stopping),
        retry_error_callback=lambda attempt: None,
    )
    return retrying(ask)


def error_of(attempt: RetryCallState) -> BaseException | None:
    """Return what went wrong."""
    return attempt.outcome.exception() if attempt.outcome else None


def pause_after(times: int, longest: float = LONGEST_PAUSE) -> float:
    """Return the seconds to wait after so many times in vain before the last one."""
    return min(longest, FIRST_PAUSE * 2.0 ** min(times, 30))


def pause(seconds: float, stopping: Callable[[], bool]) -> None:
    """Wait, unless we have to stop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stopping():
        time.sleep(0.1)


def settled(state: StateDirectory, newest: int) -> dict[str, Any] | None:
    """Return the newest checkpoint that counts and is whole, ``None`` if there never was one.

    Parameters
    ----------
    state
        The directory. What was prepared there counts now, or is gone.
    newest
        The number that Kafka has, 0 for none.

    Raises
    ------
    StateDirectoryError
        If Kafka has a checkpoint that was never in this directory, or has forgotten whether a prepared one counts.
    ModelFileError
        If there are checkpoints and none is whole.
    """
    prepared, own = state.prepared(), state.newest()
    if prepared is not None and not newest and own:
        raise StateDirectoryError(
            f"Expected Kafka to know whether checkpoint {prepared} counts, got nothing: it forgets after a time "
            f"(offsets.retention.minutes) - at {state.path}; if what was written last can be read with read_committed, "
            f"rename prepared-{prepared:012d}.safetensors to checkpoint-..., and if not, delete it"
        )
    if prepared is not None and prepared == newest:
        state.promote(prepared)
        log.info("a checkpoint that was prepared counts", number=prepared)
    elif prepared is not None:
        log.info("a checkpoint that was prepared does not count", number=prepared)
    state.discard()
    if newest > state.newest():
        raise StateDirectoryError(
            f"Expected checkpoint {newest}, which Kafka has as the last one, got {state.newest()} - at {state.path}; "
            "it is a copy of a state directory that was used after"
        )
    if newest < state.newest():
        log.warning("Kafka does not know the newest checkpoint; it is gone on from", has=newest, number=state.newest())
    saved = state.read_newest()
    if saved is not None and saved["checkpoint"] < newest:
        log.error(
            "events since an older checkpoint are learnt again, and what is written for them is written twice",
            number=saved["checkpoint"],
            newest=newest,
        )
    return saved
