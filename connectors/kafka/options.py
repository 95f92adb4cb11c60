"""The options of the Kafka client: passed through as they are, from a table and the environment, and checked."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

import orjson

PREFIX = "STREAMKERNEL_KAFKA_"
"""What the name of an environment variable begins with: ``STREAMKERNEL_KAFKA_SASL_PLAIN_PASSWORD``."""

SECRET = ("password", "secret", "token", "key")
"""What the name of an option has in it whose value is never shown."""

OURS = {
    "group_id": "group",
    "group_instance_id": "member",
    "auto_offset_reset": "start",
    "enable_auto_commit": "delivery",
    "transactional_id": "delivery",
    "enable_idempotence": "delivery",
    "acks": "delivery",
    "value_deserializer": "decoder",
    "key_deserializer": "decoder",
    "isolation_level": "delivery",
}
"""Options that follow from something else, by what that is called."""


class Options:
    """Options for consumers and producers of kafka-python.

    Parameters
    ----------
    servers
        Addresses of brokers, ``"host:port"``, separated by commas.
    given
        Options by kafka-python's names: ``security_protocol``, ``sasl_mechanism``, ``ssl_cafile``, ``linger_ms``, ... A
        variable of the environment that is called ``STREAMKERNEL_KAFKA_`` and an option's name in capitals counts for
        more, so that secrets need not stand in a file.

    Raises
    ------
    ValueError
        If there is no such option, or another setting decides it.

    Examples
    --------
    >>> options = Options("localhost:9092", {"sasl_plain_password": "s3cret", "linger_ms": 5})
    >>> options
    Options('localhost:9092', sasl_plain_password='***', linger_ms=5)
    >>> options.producer()["linger_ms"], "linger_ms" in options.consumer()
    (5, False)
    >>> Options("localhost:9092", {"sasl_mechanim": "PLAIN"})
    Traceback (most recent call last):
    ValueError: Expected an option of kafka-python, got "sasl_mechanim" - did you mean "sasl_mechanism"?
    """

    def __init__(self, servers: str, given: Mapping[str, Any] | None = None) -> None:
        self._servers = servers
        self._options = {**(given or {}), **_of_environment(os.environ)}
        known = {**_consumer_options(), **_producer_options()}
        for name in self._options:
            if name in OURS:
                raise ValueError(f'Expected an option that is passed through, got "{name}" - "{OURS[name]}" decides it')
            if name not in known or name == "bootstrap_servers":
                raise _unknown(name, known)

    def consumer(self, **own: Any) -> dict[str, Any]:
        """Return the arguments of a consumer."""
        return self._those_of(_consumer_options()) | own

    def producer(self, **own: Any) -> dict[str, Any]:
        """Return the arguments of a producer."""
        return self._those_of(_producer_options()) | own

    def admin(self) -> dict[str, Any]:
        """Return the arguments of an administrator."""
        from kafka import KafkaAdminClient

        return self._those_of(KafkaAdminClient.DEFAULT_CONFIG)

    def get(self, name: str, default: Any) -> Any:
        """Return the value of an option."""
        return self._options.get(name, default)

    @property
    def servers(self) -> str:
        """The addresses of brokers."""
        return self._servers

    def __repr__(self) -> str:
        shown = (f"{name}={'***' if is_secret(name) else value!r}" for name, value in self._options.items())
        return f"Options({', '.join([repr(self._servers), *shown])})"

    def _those_of(self, known: Mapping[str, Any]) -> dict[str, Any]:
        servers = [server.strip() for server in self._servers.split(",")]
        return {"bootstrap_servers": servers} | {n: v for n, v in self._options.items() if n in known}


def is_secret(name: str) -> bool:
    """Return whether the value of an option is not to be shown.

    Examples
    --------
    >>> is_secret("sasl_plain_password"), is_secret("client_id")
    (True, False)
    """
    return any(part in name for part in SECRET)


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that variables give: JSON values, or else text."""
    found: dict[str, Any] = {}
    for variable, text in environ.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            try:
                found[name] = text if is_secret(name) else orjson.loads(text)
            except orjson.JSONDecodeError:
                found[name] = text
    return found


def _unknown(name: str, known: Mapping[str, Any]) -> ValueError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f' - did you mean "{near[0]}"?' if near else ""
    return ValueError(f'Expected an option of kafka-python, got "{name}"{hint}')


def _consumer_options() -> Mapping[str, Any]:
    from kafka import KafkaConsumer

    return dict(KafkaConsumer.DEFAULT_CONFIG)


def _producer_options() -> Mapping[str, Any]:
    from kafka import KafkaProducer

    return dict(KafkaProducer.DEFAULT_CONFIG)
