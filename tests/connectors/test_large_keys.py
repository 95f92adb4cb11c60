"""A record with a key of 1.2 MB on a real topic: its prediction becomes a dead letter, and everything is committed."""

from __future__ import annotations

import json
import uuid

import brokers
from kafka import KafkaProducer
from river import metrics
from topics import made

from connectors import KafkaDeadLetters, KafkaSink, KafkaSource, KafkaTransactions
from streamkernel import KernelClassifier
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory


def test_a_long_key_does_not_stop_the_commit(servers, options, tmp_path):
    topic, predictions, dead = made(servers, **{"max.message.bytes": "3000000"}), made(servers), made(servers)
    producer = KafkaProducer(bootstrap_servers=servers, max_request_size=3_000_000)
    for n in range(20):
        value = json.dumps({"a": n % 3, "y": n % 2 == 0}).encode()
        producer.send(topic, value, key=b"k" * (1_200_000 if n == 7 else 5))
    producer.close()
    source = KafkaSource(options, topic, group=uuid.uuid4().hex, until="latest")
    transactions = KafkaTransactions(source, uuid.uuid4().hex, 60.0)
    engine = Engine(
        KernelClassifier(learner="dsg", max_features=64),
        source,
        label="y",
        metric=metrics.Accuracy(),
        sink=KafkaSink(transactions, predictions),
        dead_letters=KafkaDeadLetters(transactions, dead),
        state=StateDirectory(tmp_path / "state"),
        transactions=transactions,
    )
    engine.run()
    assert (engine.outcomes["learned"], engine.outcomes["dead_letter"]) == (20, 1)
    assert engine.refused["output"] == 1
    assert engine.incidents["commit_refused"] == 0
    offsets = [json.loads(record.value)["offset"] for record in brokers.committed(servers, predictions)]
    assert offsets == [n for n in range(20) if n != 7]
    (letter,) = brokers.committed(servers, dead)
    headers = dict(letter.headers)
    assert (headers["__connect.errors.offset"], headers["streamkernel.kind"]) == (b"7", b"output")
    assert b"1,200,000 of key" in headers["__connect.errors.exception.message"]
