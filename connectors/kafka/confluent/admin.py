"""Creation and settings of topics with confluent-kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from streamkernel.connectors.kafka.clients import ANSWER_SECONDS, COMMIT_SECONDS
from streamkernel.connectors.kafka.confluent.client_mapping import describe_error, reach, settings


def create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    admin = _connected(servers, options)
    new = [NewTopic(topic, -1 if count is None else count) for topic, count in partitions.items()]
    for topic, made in admin.create_topics(new, request_timeout=COMMIT_SECONDS).items():
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise OSError(f'the brokers refused to create the topic "{topic}": {describe_error(error)}') from error


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
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
