"""Sources of records and sinks of results: files, data sets, Kafka topics, and the protocols of others.

A source yields events that know their position in the stream, so that reading can be resumed after any of them. A
sink can be cut back to a position it gave. This package does not depend on learning.
"""

from streamkernel.connectors.base import (
    CommitRefusedError,
    DecoderUnavailableError,
    Event,
    GaveUpError,
    Position,
    PositionError,
    RecordsRefusedError,
    Refusal,
    TopicMissingError,
    Trouble,
    UnavailableError,
)
from streamkernel.connectors.csv_table import CsvOptions
from streamkernel.connectors.datasets import DatasetSource
from streamkernel.connectors.dead_letters import DeadLetters
from streamkernel.connectors.files.partitioned import PartitionedFiles
from streamkernel.connectors.files.sinks import FileSink, LinesLostError, OutputClosedError
from streamkernel.connectors.files.source import FileSource, field_names, first_records
from streamkernel.connectors.http.source import HttpSource
from streamkernel.connectors.interfaces import (
    Participant,
    PartitionedSource,
    Sink,
    Source,
    Transactions,
    WorkAssignment,
)
from streamkernel.connectors.kafka import KafkaDeadLetters, KafkaSink, KafkaSource, KafkaTransactions, PartitionedTopics

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
    "HttpSource",
    "KafkaDeadLetters",
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "LinesLostError",
    "OutputClosedError",
    "Participant",
    "PartitionedFiles",
    "PartitionedSource",
    "PartitionedTopics",
    "Position",
    "PositionError",
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
