"""confluent-kafka as :class:`~streamkernel.connectors.kafka.clients.Client`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

try:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import Producer as AnyProducer
except ImportError as error:
    raise ImportError("confluent-kafka is needed: pip install 'streamkernel[confluent]'") from error

from streamkernel.connectors.base import UnavailableError
from streamkernel.connectors.kafka.clients import Consumer, Producer
from streamkernel.connectors.kafka.confluent import admin
from streamkernel.connectors.kafka.confluent.client_mapping import describe_error
from streamkernel.connectors.kafka.confluent.consumer import ConfluentConsumer
from streamkernel.connectors.kafka.confluent.producer import ConfluentProducer

SEPARATOR = "."

PATHS = (
    "https.ca.location", "sasl.kerberos.keytab", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.assertion.private.key.file", "ssl.ca.location",
    "ssl.certificate.location", "ssl.crl.location", "ssl.engine.location", "ssl.key.location", "ssl.keystore.location",
)  # fmt: skip

FUNCTIONS = {"oauth_cb": lambda function: function}

Made = TypeVar("Made")

_ALONE = {"log_level": 0, "sasl.mechanism": "PLAIN", "sasl.username": "-", "sasl.password": "-"}
"""A configuration that connects to nothing and is valid with any other single option."""


def check(name: str, value: Any) -> None:
    try:
        AnyProducer({**_ALONE, name: value})
    except (KafkaException, TypeError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else error
        raise ValueError(f'Expected an option of librdkafka, got "{name}": {reason}') from error


def consumer(servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
    return _make(servers, lambda: ConfluentConsumer(servers, options, group, member))


def producer(servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None) -> Producer:
    return _make(servers, lambda: ConfluentProducer(servers, options, name, seconds, batch))


def create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    _make(servers, lambda: admin.create_topics(servers, options, partitions))


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    return _make(servers, lambda: admin.topic_settings(servers, options, topic))


def _make(servers: str, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except KafkaException as error:
        if error.args[0].code() == KafkaError._INVALID_ARG:
            raise ValueError(f"Expected options that can be combined, got {describe_error(error)}") from error
        raise UnavailableError(f"Expected a Kafka broker at {servers}, got {describe_error(error)}") from error
