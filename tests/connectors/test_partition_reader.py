"""The number of events of a poll."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamkernel.connectors.kafka import partition_reader
from streamkernel.connectors.kafka.clients import Partition, Record
from streamkernel.connectors.kafka.events import Events
from streamkernel.connectors.kafka.offsets import StartOffsets
from streamkernel.connectors.kafka.partition_reader import PartitionReader

A = Partition("t", 0)


class Client:
    """A client that returns as many records as there are, once."""

    def __init__(self, n: int) -> None:
        self.records = [Record(i, None, b'{"n": 1}', ()) for i in range(n)]

    def poll(self, seconds: float) -> dict[Partition, list[Record]]:
        records, self.records = self.records, []
        return {A: records}

    def start(self, offsets: dict[Partition, int]) -> None:
        pass

    pause = resume = start

    def position(self, partition: Partition) -> int:
        return 0

    def waiting(self, partition: Partition, next_offset: int) -> int:
        return 0


@pytest.mark.parametrize("in_turn", [False, True])
def test_events_that_are_processed_quickly_come_in_larger_numbers(
    monkeypatch: pytest.MonkeyPatch, in_turn: bool
) -> None:
    now = 100.0
    monkeypatch.setattr(partition_reader, "time", SimpleNamespace(monotonic=lambda: now))
    starts = StartOffsets("earliest", in_group=False)
    starts.own[A] = 0
    reader = PartitionReader(starts, Events(), until=None, in_turn=in_turn)
    reader.add([A])
    client, found = Client(2500), []
    for seconds in (0.01, 0.01, 0.2, 0.01, 1.5, 0.3, 0.01, 0.01, 0.01, 0.01, 0.01):
        now += seconds
        found.append(len(reader.poll(client, 0.0) or ()))
    assert found == [128, 256, 512, 512, 128, 128, 256, 512, 68, 0, 0]
