"""kafka-python as :class:`~streamkernel.connectors.kafka.clients.Client`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from streamkernel.connectors.kafka.clients import Consumer, Producer
from streamkernel.connectors.kafka.kafka_python import admin
from streamkernel.connectors.kafka.kafka_python.consumer import PythonConsumer
from streamkernel.connectors.kafka.kafka_python.producer import PythonProducer
from streamkernel.connectors.kafka.kafka_python.tokens import Tokens

SEPARATOR = "_"

PATHS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")

FUNCTIONS = {"sasl_oauth_token_provider": Tokens}


def check(name: str, value: Any) -> None:
    if name in ("group_protocol", "partition_assignment_strategy"):
        needs = 'it needs client = "confluent-kafka"'
        raise ValueError(f'Expected an option that is passed through, got "{name}" - {needs}')
    known = KafkaConsumer.DEFAULT_CONFIG.keys() | KafkaProducer.DEFAULT_CONFIG.keys()
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f' - did you mean "{near[0]}"?' if near else ""
        raise ValueError(f'Expected an option of kafka-python, got "{name}"{hint}')


def consumer(servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
    return PythonConsumer(servers, options, group, member)


def producer(servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None) -> Producer:
    return PythonProducer(servers, options, name, seconds, batch)


def create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    admin.create_topics(servers, options, partitions)


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    return admin.topic_settings(servers, options, topic)
