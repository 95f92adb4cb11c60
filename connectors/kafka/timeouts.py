"""Requests to brokers with a timeout, and errors that describe the result."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from enum import IntEnum

from streamkernel.connectors.base import UnavailableError


class Failure(IntEnum):
    """The reason of a failed connection; of several reasons, the largest value is the most specific."""

    UNREACHABLE = 0
    UNTRUSTED = 1
    CERTIFICATE = 2
    REJECTED = 3


def run_within(seconds: float, task: Callable[[], None]) -> Exception | None:
    """Run a task with a time limit, and abandon it afterwards: some client calls wait without end.

    The result says how it failed, ``None`` if it did not.

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
    """Return the error for a failed connection, with its reason.

    `failure` and `cause` are the kind of failure, and the client's message. `options` are the client's names for the
    file with the certificates that it trusts, and for that with its own.

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
