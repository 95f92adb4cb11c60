"""Topics for tests, and helpers that write to them."""

from __future__ import annotations

import uuid

import brokers


def made(servers, partitions=1, **config):
    name = f"t{uuid.uuid4().hex[:12]}"
    brokers.make_topics(servers, partitions=partitions, names=[name], config=config)
    return name


def produce_to(servers, topic, values, partition):
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    for value in values:
        producer.send(topic, value, partition=partition)
    producer.close()


def values(events):
    return [event.record["n"] for event in events]


def rows(n, first=0):
    return [{"n": first + i} for i in range(n)]
