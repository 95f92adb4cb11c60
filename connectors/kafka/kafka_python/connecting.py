"""Connections of kafka-python, which only logs the reason of a failure and leaves a thread and open files behind."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from kafka import TopicPartition, __version__, errors
from kafka.structs import OffsetAndMetadata

from streamkernel.connectors.kafka.clients import (
    CONNECT_SECONDS,
    Failure,
    Partition,
    describe_error,
    refuses_certificate,
    unavailable,
)

TRIED = ("3.0.12",)
"""The versions with which records are encoded and decoded together: the tests have passed with them."""

log = logging.getLogger("streamkernel")


def private() -> ModuleType | None:
    """Return the module that uses private names, or ``None`` if kafka-python has other ones."""
    if not is_tried():
        _announce("records are read and written one by one, which is slower")
    try:
        from streamkernel.connectors.kafka.kafka_python import private as found
    except (ImportError, AttributeError) as missing:
        _announce(f"defects of its connections are not avoided, and new partitions are read later: {missing}")
        return None
    return found


def is_tried() -> bool:
    """Return whether this version was tried."""
    return __version__ in TRIED


@functools.cache
def _announce(effect: str) -> None:
    log.warning("kafka-python %s was not tried, %s was: %s", __version__, ", ".join(TRIED), effect)


def to_client(partitions: Iterable[Partition]) -> list[Any]:
    """Return partitions as kafka-python's objects."""
    return [TopicPartition(*partition) for partition in partitions]


def from_client(partitions: Iterable[Any]) -> list[Partition]:
    """Return kafka-python's partitions as ours, in order."""
    return [Partition(*partition) for partition in sorted(partitions)]


def with_note(offsets: Mapping[Partition, int], note: str) -> dict[Any, Any]:
    """Return offsets to commit, with a note for people."""
    return {TopicPartition(*one): OffsetAndMetadata(offset, note, -1) for one, offset in offsets.items()}


def arguments(kind: Any, servers: str, options: Mapping[str, Any], **ours: Any) -> dict[str, Any]:
    """Return the arguments of a client class: the servers, the options that it has, and our own."""
    existing = {name: value for name, value in options.items() if name in kind.DEFAULT_CONFIG}
    return {"bootstrap_servers": [server.strip() for server in servers.split(",")]} | existing | ours


class TokenError(OSError):
    """There is no token; it can be asked for again."""


class Tokens:
    """The provider of tokens that an option names: a class without arguments, whose ``token()`` returns a token."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        from kafka.net.sasl.oauth import AbstractTokenProvider  # kafka-python refuses other classes

        AbstractTokenProvider.register(Tokens)
        self._provider = kind()

    def token(self) -> str:
        """Return a token, or raise a `TokenError`."""
        try:
            return str(self._provider.token())
        except Exception as error:  # of a user's class
            raise TokenError(f"Expected a token, got {describe_error(error)}") from error

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the token."""
        extensions: dict[str, str] = getattr(self._provider, "extensions", dict)()
        return extensions


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


def connect(kind: Any, servers: str, options: Mapping[str, Any], **ours: Any) -> Any:
    """Return a connected client of one of kafka-python's classes.

    Raise `UnavailableError` if no broker accepts us; `ValueError` if options cannot be combined.
    """
    made: list[Any] = []
    if (names := private()) is not None:
        ours["kafka_client"] = names.network(made)
    with causes() as logged:
        try:
            return kind(**arguments(kind, servers, {**DEFAULTS, **options}, **ours))
        except errors.KafkaError as error:
            for one in made:
                one.close()
            if isinstance(error, errors.KafkaConfigurationError):
                raise ValueError(f"Expected options that can be combined, got {error}") from error
            cause = max(logged, key=_kind_of, default=error)
            raise unavailable(servers, _kind_of(cause), describe_error(cause), FILES) from error


@contextmanager
def causes() -> Iterator[list[Exception]]:
    """Collect the errors that kafka-python logs while it connects, instead of logging them."""
    logged: list[Exception] = []

    def collect(line: logging.LogRecord) -> bool:
        logged.extend(one for one in line.args or () if isinstance(one, Exception))
        return False

    for logger in LOGGERS:
        logger.addFilter(collect)
    try:
        yield logged
    finally:
        for logger in LOGGERS:
            logger.removeFilter(collect)


def _kind_of(error: Exception) -> Failure:
    if isinstance(error, REJECTED):
        return Failure.REJECTED
    if refuses_certificate(str(error)):
        return Failure.CERTIFICATE
    return Failure.UNTRUSTED if "Handshake failed" in str(error) else Failure.UNREACHABLE
