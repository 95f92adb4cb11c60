"""Kafka: topics as sources and sinks, and transactions over both."""

from connectors.kafka.options import Options
from connectors.kafka.partitioned import PartitionedTopics
from connectors.kafka.sink import KafkaDeadLetters, KafkaSink
from connectors.kafka.source import KafkaSource
from connectors.kafka.transactions import KafkaTransactions
from connectors.kafka.writer import Writer

__all__ = [
    "KafkaDeadLetters",
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "Options",
    "PartitionedTopics",
    "Writer",
]
