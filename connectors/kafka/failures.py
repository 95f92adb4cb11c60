"""Failures of both clients: requests that time out, connections that fail, and members that brokers have fenced."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable
from enum import IntEnum

from streamkernel.connectors.base import UnavailableError

log = logging.getLogger(__name__)

RIVAL_SECONDS = 60.0
"""Seconds within which a second fence shows that another process has the same name."""


class Failure(IntEnum):
    """The reason of a failed connection; of several reasons, the largest value is the most specific."""

    UNREACHABLE = 0
    UNTRUSTED = 1
    CERTIFICATE = 2
    REJECTED = 3


def run_within(seconds: float, task: Callable[[], None]) -> Exception | None:
    """Run a task with a time limit, abandon it afterwards, and return how it failed: some calls wait without end.

    Examples
    --------
    >>> run_within(1.0, lambda: None)
    >>> run_within(0.01, lambda: threading.Event().wait(1.0))
    TimeoutError('timed out after 0.01 s')
    """
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            task()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True, name="kafka-answer")
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else TimeoutError(f"timed out after {seconds:g} s")


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an error.

    Examples
    --------
    >>> describe_error(KeyError("a")), describe_error(OSError())
    ("KeyError: 'a'", 'OSError')
    """
    name, text = type(error).__name__, str(error)
    return text if name in text else f"{name}: {text}".rstrip(": ")


def refuses_certificate(cause: str) -> bool:
    """Return whether an error is a broker's answer to the certificate of a client, or to a client without one.

    Examples
    --------
    >>> refuses_certificate("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate")
    True
    >>> refuses_certificate("certificate verify failed: certificate has expired")
    False
    """
    return bool(re.search("alert.*(certificate|unknown.ca)|certificate.required", cause, re.IGNORECASE))


def unavailable(servers: str, failure: Failure, cause: str, options: tuple[str, str]) -> UnavailableError:
    """Return the error for a failed connection, with the client's message.

    `options` are the client's names for the file with the certificates that it trusts, and for the file with its own.

    Examples
    --------
    >>> print(unavailable("kafka:9092", Failure.UNREACHABLE, "connection refused",
    ...     ("ssl_cafile", "ssl_certfile")))
    Kafka at kafka:9092 cannot be reached: connection refused
    """
    what = {
        Failure.UNREACHABLE: "cannot be reached",
        Failure.UNTRUSTED: f"cannot be trusted (option {options[0]})",
        Failure.CERTIFICATE: f"rejects the certificate of the client (option {options[1]})",
        Failure.REJECTED: "rejects the login",
    }
    return UnavailableError(f"Kafka at {servers} {what[failure]}: {cause}")


class Fences:
    """Decides whether a fenced member joins again.

    The first time it does. The other member may be gone, and there need not be one: when brokers respond again after a
    session timeout, librdkafka sends a heartbeat without its id, for which it is fenced (its issue 3437). That happens
    at most once in a session timeout, but another process that runs joins again within seconds. So a second fence
    within a minute is an error: both would take the partitions from each other without end. `member` is the name of the
    member in the group.

    Examples
    --------
    >>> fences = Fences("one")
    >>> fences.add()
    >>> fences.add()
    Traceback (most recent call last):
    OSError: Expected one process with the name 'one' (group.instance.id) in the group, got another one beside this
    process; stop one of them, or give it a state directory of its own
    """

    def __init__(self, member: str | None) -> None:
        self._member, self._last = member, -math.inf

    def add(self) -> None:
        """Record a fence; raise an `OSError` if it shows that another process has the name."""
        now = time.monotonic()
        if now - self._last < RIVAL_SECONDS:
            raise OSError(
                f"Expected one process with the name {self._member!r} (group.instance.id) in the group, got another "
                "one beside this process; stop one of them, or give it a state directory of its own"
            )
        self._last = now
        log.warning("the brokers have fenced this member of the group; joining again under the same name")
