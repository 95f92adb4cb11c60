"""Creation and settings of topics with kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streamkernel.connectors.kafka.clients import COMMIT_SECONDS
from streamkernel.connectors.kafka.kafka_python.connecting import connect
from streamkernel.connectors.kafka.timeouts import describe_error


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
