"""Records that are added to an open batch of kafka-python together, without the preparations for each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from connectors.kafka.clients import OutRecord
from connectors.kafka.kafka_python.encoding import encode

Report = Callable[[Exception], None]
"""A function that is called with an error of the brokers."""


class _Delivery:
    """Takes the place of the future of a record, or of those of several."""

    def __init__(self, report: Report, index: int) -> None:
        self._report, self._index = report, index

    def watch(self, batch: Any) -> None:
        """Report an error of the batch that a future belongs to."""
        batch._add_cb_eb(self._complete, self._report)

    def rebind(self, batch: Any, index: int) -> None:
        """Do the same for a part of the batch, into which kafka-python has moved a record."""
        self._index = index
        self.watch(batch)

    def _complete(self, result: tuple[Any, Any, Callable[[int], Exception] | None]) -> None:
        _, _, error_of = result
        if error_of is not None:
            self._report(error_of(self._index))


def extend(kafka: Any, first: Any, records: Sequence[OutRecord], reports: Sequence[Report]) -> int:
    """Add records to the batch of another record, as long as it has room, and return how many.

    Parameters
    ----------
    kafka
        The producer.
    first
        The future of the other record, which has just been sent.
    records
        The records; all belong to the same partition as the other one.
    reports
        The function of each record that is called with an error of the brokers; or one function for all.
    """
    try:
        partition = first._produce_future.topic_partition
        accumulator, wake = kafka._accumulator, kafka._sender.wakeup
        lock, batches = accumulator._tp_lock(partition), accumulator._batches
    except AttributeError:  # another version of kafka-python
        return 0
    with lock:
        if accumulator._closed or not batches.get(partition):
            return 0
        added = _append(batches[partition][-1], records, reports)
    if added < len(records):
        wake()
    return added


def _append(batch: Any, records: Sequence[OutRecord], reports: Sequence[Report]) -> int:
    """Append records to a batch, as long as it has room, and return how many."""
    place, now = batch.records.next_offset(), int(1000 * time.time())
    try:
        builder = batch.records._builder
        data, after, room = builder._buffer, now - builder._first_timestamp, builder._batch_size - builder.size()
    except AttributeError:  # it is being sent, or this is another version of kafka-python
        return 0
    encoded, count, largest = encode(records, place, after, room)
    if count:
        data += encoded
        builder._num_records += count
        builder._last_offset = place + count - 1
        builder._max_timestamp = max(builder._max_timestamp, now)
        batch.records._next_offset += count
        deliveries = [_Delivery(report, place + i) for i, report in enumerate(reports[:count])]
        batch._record_futures += deliveries * (count if len(reports) == 1 else 1)
        for delivery in deliveries:
            delivery.watch(batch.produce_future)
        batch.max_record_size, batch.last_append = max(batch.max_record_size, largest), time.monotonic()
    return count


def by_partition(kafka: Any, topic: str, records: Sequence[OutRecord]) -> dict[int, list[int]]:
    """Return the places of the records for each partition; records without a key all belong to the same one."""
    partitions = kafka.partitions_for(topic)
    if len(partitions) == 1:
        return {number: list(range(len(records))) for number in partitions}
    of_key: dict[bytes | None, int] = {}
    places: dict[int, list[int]] = {}
    for place, (value, key, _) in enumerate(records):
        number = of_key.get(key)
        if number is None:
            number = of_key[key] = kafka._partition(topic, None, key, value, key, value)
        places.setdefault(number, []).append(place)
    return places
