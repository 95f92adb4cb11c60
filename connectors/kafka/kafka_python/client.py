"""The names of :class:`~connectors.kafka.clients.Client`, for kafka-python."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from connectors.base import Unavailable
from connectors.kafka.answers import told
from connectors.kafka.clients import Consumer, Producer
from connectors.kafka.kafka_python.consumer import PythonConsumer
from connectors.kafka.kafka_python.producer import PythonProducer

SEPARATOR = "_"


def check(name: str, value: Any) -> None:
    known = KafkaConsumer.DEFAULT_CONFIG.keys() | KafkaProducer.DEFAULT_CONFIG.keys()
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f' - did you mean "{near[0]}"?' if near else ""
        raise ValueError(f'Expected an option of kafka-python, got "{name}"{hint}')


def consumer(servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
    try:
        return PythonConsumer(servers, options, group, member)
    except KafkaError as error:
        raise _unreachable(servers, error) from error


def producer(servers: str, options: Mapping[str, Any], name: str | None, seconds: float) -> Producer:
    try:
        return PythonProducer(servers, options, name, seconds)
    except KafkaError as error:
        raise _unreachable(servers, error) from error


def _unreachable(servers: str, error: KafkaError) -> Unavailable:
    return Unavailable(f"Expected a Kafka broker at {servers}, got {told(error)}")
