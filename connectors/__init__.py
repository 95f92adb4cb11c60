"""Where records come from and where results go: files, data sets, and the protocols others can follow.

A source yields events that know their place in the stream, so that reading can be taken up again after any of
them. A sink can be cut back to a place it gave. Nothing in this package knows of learning.
"""

from connectors.base import (
    CommitRefused,
    DecoderUnavailableError,
    Divided,
    Event,
    GroupSource,
    Position,
    Refusal,
    Share,
    Sink,
    Source,
    TopicMissing,
    Transactions,
    Trouble,
    Unavailable,
)
from connectors.datasets import DatasetSource
from connectors.dead_letters import DeadLetters
from connectors.files.shared import DividedFiles
from connectors.files.sinks import FileSink, OutputClosedError
from connectors.files.source import FileSource, field_names
from connectors.kafka import DividedTopics, KafkaDeadLetters, KafkaSink, KafkaSource, KafkaTransactions

__all__ = [
    "CommitRefused",
    "DatasetSource",
    "DeadLetters",
    "DecoderUnavailableError",
    "Divided",
    "DividedFiles",
    "DividedTopics",
    "Event",
    "FileSink",
    "FileSource",
    "GroupSource",
    "KafkaDeadLetters",
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "OutputClosedError",
    "Position",
    "Refusal",
    "Share",
    "Sink",
    "Source",
    "TopicMissing",
    "Transactions",
    "Trouble",
    "Unavailable",
    "field_names",
]
