"""confluent-kafka as :class:`~streamkernel.connectors.kafka.clients.Client`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

try:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import Producer as AnyProducer
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:
    raise ImportError("confluent-kafka is needed: pip install 'streamkernel[confluent]'") from error

from streamkernel.connectors.base import UnavailableError
from streamkernel.connectors.kafka.clients import ANSWER_SECONDS, COMMIT_SECONDS, Consumer, Producer
from streamkernel.connectors.kafka.confluent.client_mapping import describe_error, reach, settings
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
    _make(servers, lambda: _create_topics(servers, options, partitions))


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    return _make(servers, lambda: _topic_settings(servers, options, topic))


def _make(servers: str, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except KafkaException as error:
        if error.args[0].code() == KafkaError._INVALID_ARG:
            raise ValueError(f"Expected options that can be combined, got {describe_error(error)}") from error
        raise UnavailableError(f"Expected a Kafka broker at {servers}, got {describe_error(error)}") from error


def _create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    admin = _connected(servers, options)
    new = [NewTopic(topic, -1 if count is None else count) for topic, count in partitions.items()]
    for topic, made in admin.create_topics(new, request_timeout=COMMIT_SECONDS).items():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise OSError(f'the brokers refused to create the topic "{topic}": {describe_error(error)}') from error


def _topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    admin = _connected(servers, options)  # while it lives, there is an answer
    (answer,) = admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=ANSWER_SECONDS
    ).values()
    try:
        return {name: setting.value for name, setting in answer.result().items()}
    except KafkaException:  # such as for want of a permission
        return {}


def _connected(servers: str, options: Mapping[str, Any]) -> AdminClient:
    reasons: deque[KafkaError] = deque(maxlen=10)
    admin = AdminClient(settings(servers, options) | {"error_cb": reasons.append})
    reach(admin, servers, options, reasons)
    return admin
