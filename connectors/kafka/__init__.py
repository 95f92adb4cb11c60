"""Kafka: topics as sources and sinks, and transactions over both."""

from streamkernel.connectors.kafka.options import Options
from streamkernel.connectors.kafka.partitioned import PartitionedTopics
from streamkernel.connectors.kafka.sink import KafkaDeadLetters, KafkaSink
from streamkernel.connectors.kafka.source import KafkaSource
from streamkernel.connectors.kafka.writer import KafkaTransactions, Writer

__all__ = [
    "KafkaDeadLetters",
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "Options",
    "PartitionedTopics",
    "Writer",
]
