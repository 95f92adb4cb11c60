"""Brokers, client and client options, passed through unchanged from a table and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

from streamkernel.connectors.kafka.clients import Client, Consumer, Producer, describe_error
from streamkernel.connectors.registry import function_at

CLIENTS = {
    "kafka-python": "streamkernel.connectors.kafka.kafka_python.client",
    "confluent-kafka": "streamkernel.connectors.kafka.confluent.client",
}
"""The client packages, and the modules that implement them."""

PREFIX = "STREAMKERNEL_KAFKA_"
"""Prefix of environment variables, as in ``STREAMKERNEL_KAFKA_SASL_PLAIN_PASSWORD``."""

SECRET = ("password", "secret", "token", "key")
"""Parts of the names of options whose values are secret."""

PROBE = "probe"
"""A value that librdkafka accepts in place of a path: it finds the certificates of the system."""

OURS = {
    "bootstrap.servers": "servers",
    "metadata.broker.list": "servers",
    "group.id": "group",
    "group.instance.id": "member",
    "auto.offset.reset": "start",
    "enable.partition.eof": "until",
    "value.deserializer": "decoder",
    "key.deserializer": "decoder",
    "transaction.timeout.ms": "checkpoint_seconds",
} | dict.fromkeys(
    (
        "enable.auto.commit",
        "enable.auto.offset.store",
        "isolation.level",
        "transactional.id",
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "delivery.report.only.error",
    ),
    "processing_guarantee",
)
"""Options that another setting determines, with the name of that setting."""


class Options:
    """The brokers, the client and its options.

    Parameters
    ----------
    servers
        Addresses of brokers, ``"host:port"``, separated by commas.
    given
        Options of the client, by its own names: ``sasl_mechanism``, ``ssl_cafile``, ``linger_ms``, ... of kafka-python;
        ``sasl.mechanism``, ``ssl.ca.location``, ``linger.ms``, ... of librdkafka. A variable of the environment that is
        called ``STREAMKERNEL_KAFKA_`` and an option's name in capitals, with underscores, takes precedence, so that
        secrets need not be in a file.
    client
        The package: ``"kafka-python"``, or ``"confluent-kafka"``, which contains librdkafka.
    folder
        The base directory of relative paths in options, such as ``ssl_cafile`` and ``ssl.ca.location``, and of the
        modules of functions that options name: ``"tokens:Tokens"`` as ``sasl_oauth_token_provider`` of kafka-python
        names a class, ``"tokens:token"`` as ``oauth_cb`` of confluent-kafka a function.

    Raises
    ------
    ValueError
        If there is no such client or option, another setting determines the option, or a file that it names cannot be
        read.
    ImportError
        If the client is not installed.

    Examples
    --------
    >>> Options("localhost:9092", {"sasl_plain_password": "s3cret", "linger_ms": 5})
    Options('localhost:9092', client='kafka-python', sasl_plain_password='***', linger_ms=5)
    >>> Options("localhost:9092", {"sasl_mechanim": "PLAIN"})
    Traceback (most recent call last):
    ValueError: Expected an option of kafka-python, got "sasl_mechanim" - did you mean "sasl_mechanism"?
    """

    def __init__(
        self, servers: str, given: Mapping[str, Any] | None = None, client: str = "kafka-python", folder: Path = Path()
    ) -> None:
        if client not in CLIENTS:
            raise ValueError(f"Expected {' or '.join(map(repr, CLIENTS))} as client, got {client!r}")
        self.servers, self._name = servers, client
        self._client: Client = import_module(CLIENTS[client])
        self.given = {**(given or {}), **_of_environment(os.environ, self._client.SEPARATOR)}
        for name, value in list(self.given.items()):
            decides = OURS.get(name.replace(self._client.SEPARATOR, "."))
            if decides is not None:
                raise ValueError(f'Expected an option that is passed through, got "{name}" - "{decides}" decides it')
            if name in self._client.PATHS and isinstance(value, str) and value != PROBE:
                self.given[name] = value = _readable(folder / value, name)
            if name in self._client.FUNCTIONS and isinstance(value, str):
                self.given[name] = value = _named(self._client.FUNCTIONS[name], value, name, folder)
            self._client.check(name, value)

    @property
    def separator(self) -> str:
        """The character between the words of an option's name."""
        return self._client.SEPARATOR

    def consumer(self, group: str | None = None, member: str | None = None) -> Consumer:
        """Return a connected consumer, in a group if one is given.

        A `member` is a permanent name (static membership): the group keeps the partitions for it during a restart.
        Raise `UnavailableError` if no broker answers; `ValueError` if options cannot be combined.
        """
        return self._client.consumer(self.servers, self.given, group, member if group else None)

    def producer(self, name: str | None = None, seconds: float = 60.0, batch: int | None = None) -> Producer:
        """Return a connected producer; errors are those of `consumer`.

        `name` is the transactional id, which fences an older producer of the same name; without one, records are
        visible to consumers at once. A transaction takes at most some `seconds`, and a `batch` at most some bytes,
        besides the options; 0 is for batches of one record.
        """
        return self._client.producer(self.servers, self.given, name, seconds, batch)

    def create_topics(self, partitions: Mapping[str, int | None]) -> None:
        """Create topics, each with a number of partitions or, for ``None``, the brokers' default.

        An existing topic does not change. Raise `OSError` if the brokers refuse; other errors are those of `consumer`.
        """
        self._client.create_topics(self.servers, self.given, partitions)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic by name, or none where the brokers do not tell them."""
        return self._client.topic_settings(self.servers, self.given, topic)

    def __repr__(self) -> str:
        shown = (f", {name}={'***' if is_secret(name) else value!r}" for name, value in self.given.items())
        return f"Options({self.servers!r}, client={self._name!r}{''.join(shown)})"


def _named(use: Callable[[Callable[..., Any]], Any], value: str, name: str, folder: Path) -> Any:
    """Return the value that an option makes of the function that it names, or raise an error."""
    try:
        return use(function_at(value, folder))
    except Exception as error:  # of a user's function
        raise ValueError(f'Expected a function as "{name}", got {describe_error(error)}') from error


def _readable(path: Path, name: str) -> str:
    """Return the path of a readable file or directory, or raise an error."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        else:
            path.open("rb").close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f'Expected a readable file as "{name}", got {reason} - at {path}') from error
    return str(path)


def is_secret(name: str) -> bool:
    """Return whether the value of an option must be hidden.

    Examples
    --------
    >>> is_secret("sasl_plain_password"), is_secret("client.id")
    (True, False)
    """
    return any(part in name for part in SECRET)


def _of_environment(environ: Mapping[str, str], separator: str) -> dict[str, Any]:
    """Return the options from environment variables: JSON values, or else text."""
    options: dict[str, Any] = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().replace("_", separator)
            try:
                options[name] = text if is_secret(name) else orjson.loads(text)
            except orjson.JSONDecodeError:
                options[name] = text
    return options
