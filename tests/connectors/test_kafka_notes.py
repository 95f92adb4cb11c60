"""The note of a commit, which has the session of the checkpoint, where the client returns other bytes after it.

librdkafka copies a note without the zero at its end, so that confluent-kafka reads on in the memory behind it
(https://github.com/confluentinc/librdkafka/issues/4649).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamkernel.connectors import KafkaTransactions
from streamkernel.connectors.kafka.clients import Partition
from streamkernel.connectors.kafka.confluent.consumer import ConfluentConsumer

NAME, SESSION = "run.7", "2f0c"


class Answer:
    """An answer of confluent-kafka with the bytes that it takes for the note."""

    offset = 3

    def __init__(self, note: bytes) -> None:
        self._note = note

    @property
    def metadata(self) -> str:
        return self._note.decode()


def transactions(note: bytes) -> tuple[KafkaTransactions, list[Any]]:
    """Return transactions whose group has a note, and a list of the parts of each commit."""
    asked: Any = SimpleNamespace(_ask=lambda *_: [Answer(note)], _kafka=SimpleNamespace(committed=None))
    consumer = SimpleNamespace(
        committed_with_note=lambda partition: ConfluentConsumer.committed_with_note(asked, partition),
        close=lambda: None,
    )
    commits: list[Any] = []
    producer = SimpleNamespace(
        commit=lambda parts, seconds: commits.extend(parts), close=lambda: None, limits_of=lambda topic: None
    )
    options = SimpleNamespace(consumer=lambda group: consumer, producer=lambda *_: producer)
    source: Any = SimpleNamespace(options=options, topics=["events"], group=None)
    return KafkaTransactions(source, NAME, 60.0), commits


@pytest.mark.parametrize("others", [b"", b"\xfb\x01", b"a.b", "é".encode()[:1], b" 3 2f0c"])
def test_the_session_is_what_was_committed(others: bytes) -> None:
    writer, commits = transactions(b"")
    writer.commit(3, SESSION, {})
    ((group, offsets, note),) = commits
    assert (group, offsets) == (NAME, {Partition("events", 0): 3})
    assert transactions(note.encode() + others)[0].newest() == (3, SESSION)
