"""kafka-python as :class:`~streamkernel.connectors.kafka.clients.Client`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streamkernel.connectors.kafka.clients import COMMIT_SECONDS, Consumer, Producer
from streamkernel.connectors.kafka.kafka_python.connecting import Tokens, connect
from streamkernel.connectors.kafka.kafka_python.consumer import PythonConsumer
from streamkernel.connectors.kafka.kafka_python.producer import PythonProducer
from streamkernel.connectors.kafka.timeouts import describe_error

SEPARATOR = "_"

PATHS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")

FUNCTIONS = {"sasl_oauth_token_provider": Tokens}


def check(name: str, value: Any) -> None:
    if name in ("group_protocol", "partition_assignment_strategy"):
        needs = 'it needs client = "confluent-kafka"'
        raise ValueError(f'Expected an option that is passed through, got "{name}" - {needs}')
    options = KafkaConsumer.DEFAULT_CONFIG.keys() | KafkaProducer.DEFAULT_CONFIG.keys()
    if name not in options:
        near = difflib.get_close_matches(name, sorted(options), n=1)
        hint = f' - did you mean "{near[0]}"?' if near else ""
        raise ValueError(f'Expected an option of kafka-python, got "{name}"{hint}')


def consumer(servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
    return PythonConsumer(servers, options, group, member)


def producer(servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None) -> Producer:
    return PythonProducer(servers, options, name, seconds, batch)


def create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    with closing(connect(KafkaAdminClient, servers, options)) as admin:
        for topic, count in partitions.items():
            try:
                with suppress(TopicAlreadyExistsError):
                    new = NewTopic(topic, -1 if count is None else count)
                    admin.create_topics([new], timeout_ms=int(1000 * COMMIT_SECONDS))
            except KafkaError as error:
                raise OSError(f'the brokers refused to create the topic "{topic}": {describe_error(error)}') from error


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    with closing(connect(KafkaAdminClient, servers, options)) as admin:
        try:
            described = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        except KafkaError:  # such as for want of a permission
            return {}
    return {name: setting["value"] for name, setting in described["topic"].get(topic, {}).items()}
