"""Sources of records and sinks of results: files, data sets, Kafka topics, and the protocols of others.

A source yields events that know their position in the stream, so that reading can be resumed after any of them. A
sink can be cut back to a position it gave. This package does not depend on learning.
"""

from connectors.base import (
    CommitRefusedError,
    DecoderUnavailableError,
    Event,
    GaveUpError,
    GroupSource,
    PartitionedSource,
    Position,
    RecordsRefusedError,
    Refusal,
    Sink,
    Source,
    TopicMissingError,
    Transactions,
    Trouble,
    UnavailableError,
    WorkAssignment,
)
from connectors.csv_table import CsvOptions
from connectors.datasets import DatasetSource
from connectors.dead_letters import DeadLetters
from connectors.files.partitioned import PartitionedFiles
from connectors.files.sinks import FileSink, LinesLostError, OutputClosedError
from connectors.files.source import FileSource, field_names, first_records
from connectors.http.source import HttpSource
from connectors.kafka import KafkaDeadLetters, KafkaSink, KafkaSource, KafkaTransactions, PartitionedTopics

__all__ = [
    "CommitRefusedError",
    "CsvOptions",
    "DatasetSource",
    "DeadLetters",
    "DecoderUnavailableError",
    "Event",
    "FileSink",
    "FileSource",
    "GaveUpError",
    "GroupSource",
    "HttpSource",
    "KafkaDeadLetters",
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "LinesLostError",
    "OutputClosedError",
    "PartitionedFiles",
    "PartitionedSource",
    "PartitionedTopics",
    "Position",
    "RecordsRefusedError",
    "Refusal",
    "Sink",
    "Source",
    "TopicMissingError",
    "Transactions",
    "Trouble",
    "UnavailableError",
    "WorkAssignment",
    "field_names",
    "first_records",
]
