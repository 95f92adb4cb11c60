"""Connections of kafka-python, which only logs the reason of a failure and leaves a thread and open files behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import errors

from streamkernel.connectors.kafka.clients import CONNECT_SECONDS
from streamkernel.connectors.kafka.kafka_python.client_mapping import arguments
from streamkernel.connectors.kafka.kafka_python.tokens import TokenError
from streamkernel.connectors.kafka.kafka_python.tried import private
from streamkernel.connectors.kafka.timeouts import Failure, describe_error, refuses_certificate, unavailable

LOGGERS = [logging.getLogger(f"kafka.net.{name}") for name in ("manager", "connection", "transport", "selector")]
"""The logger of kafka-python's connections."""

DEFAULTS = {"bootstrap_timeout_ms": int(1000 * CONNECT_SECONDS)}

REJECTED = (
    errors.AuthorizationError,
    errors.IllegalSaslStateError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    TokenError,
)


FILES = "ssl_cafile", "ssl_certfile"
"""The options for the certificates that are trusted, and for the one of the client."""


def connect(kind: Any, servers: str, options: Mapping[str, Any], **own: Any) -> Any:
    """Return a connected client of one of kafka-python's classes.

    Raises
    ------
    UnavailableError
        If no broker accepts us.
    ValueError
        If options cannot be combined.
    """
    made: list[Any] = []
    if (names := private()) is not None:
        own["kafka_client"] = names.network(made)
    with causes() as found:
        try:
            return kind(**arguments(kind, servers, {**DEFAULTS, **options}, **own))
        except errors.KafkaError as error:
            for one in made:
                one.close()
            if isinstance(error, errors.KafkaConfigurationError):
                raise ValueError(f"Expected options that can be combined, got {error}") from error
            cause = max(found, key=_kind_of, default=error)
            raise unavailable(servers, _kind_of(cause), describe_error(cause), FILES) from error


@contextmanager
def causes() -> Iterator[list[Exception]]:
    """Collect the errors that kafka-python logs while it connects, instead of logging them."""
    found: list[Exception] = []

    def collect(line: logging.LogRecord) -> bool:
        found.extend(one for one in line.args or () if isinstance(one, Exception))
        return False

    for logger in LOGGERS:
        logger.addFilter(collect)
    try:
        yield found
    finally:
        for logger in LOGGERS:
            logger.removeFilter(collect)


def _kind_of(error: Exception) -> Failure:
    if isinstance(error, REJECTED):
        return Failure.REJECTED
    if refuses_certificate(str(error)):
        return Failure.CERTIFICATE
    return Failure.UNTRUSTED if "Handshake failed" in str(error) else Failure.UNREACHABLE
