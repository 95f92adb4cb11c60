"""Records that a producer could not write, and the errors of brokers that are about a record or a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from connectors.kafka.clients import OutRecord

TOO_LARGE = {10: "MESSAGE_TOO_LARGE", 18: "RECORD_LIST_TOO_LARGE"}
"""Codes of errors of a record, or of the batch that it is in."""

REFUSES_RECORD = TOO_LARGE | {32: "INVALID_TIMESTAMP", 87: "INVALID_RECORD"}
"""Codes of errors that the brokers give for a record whenever it is sent."""

FORBIDDEN = {29: "TOPIC_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED", 44: "POLICY_VIOLATION"}
"""Codes of errors that the brokers give for every record of a topic."""


class Undelivered(NamedTuple):
    """A record that was not written.

    Parameters
    ----------
    topic
        The topic.
    record
        Value, key and headers.
    origin
        The source of the record, as the sender named it; ``None`` if it named none.
    code
        Kafka's code of the error; negative for an error of the client.
    reason
        The error.
    """

    topic: str
    record: OutRecord
    origin: Any
    code: int
    reason: str

    @property
    def is_refused(self) -> bool:
        """Whether the brokers refuse this record for good, or one in the same batch."""
        return self.code in REFUSES_RECORD


def forbidden(undelivered: Sequence[Undelivered]) -> str:
    """Return why nothing can be written to a topic, or an empty string."""
    return next((f"{one.reason} - for topic {one.topic}" for one in undelivered if one.code in FORBIDDEN), "")
