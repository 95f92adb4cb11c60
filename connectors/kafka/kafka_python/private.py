"""Records that are added to an open batch of kafka-python together, without the preparations for each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from streamkernel.connectors.kafka.clients import OutRecord
from streamkernel.connectors.kafka.kafka_python.encoding import encode

Report = Callable[[int, Exception], None]
"""A function that is called with the place of a record among those that were added, and its error."""


class _Deliveries:
    """Takes the place of the futures of records that were added to a batch together."""

    def __init__(self, report: Report, first: int, count: int) -> None:
        self._report, self._first, self._count = report, first, count

    def watch(self, batch: Any) -> None:
        """Report errors of the records of a batch."""
        batch._add_cb_eb(self._complete, lambda error: self._fail(lambda index: error))

    def rebind(self, batch: Any, index: int) -> None:
        """Do the same for a part of the batch, into which kafka-python has moved a record.

        Which records are in which part is not known: an error of one part is reported for all records.
        """
        self.watch(batch)

    def _complete(self, result: tuple[Any, Any, Callable[[int], Exception] | None]) -> None:
        _, _, error_of = result
        if error_of is not None:
            self._fail(error_of)

    def _fail(self, error_of: Callable[[int], Exception]) -> None:
        """Report the errors of all records, once."""
        for place in range(self._count):
            self._report(place, error_of(self._first + place))
        self._count = 0


def extend(kafka: Any, first: Any, records: Sequence[OutRecord], report: Report) -> int:
    """Add records to the batch of another record, as long as it has room, and return how many.

    Parameters
    ----------
    kafka
        The producer.
    first
        The future of the other record, which has just been sent.
    records
        The records; all belong to the same partition as the other one.
    report
        The function that is called with errors of the brokers.
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
        added = _append(batches[partition][-1], records, report)
    if added < len(records):
        wake()
    return added


def _append(batch: Any, records: Sequence[OutRecord], report: Report) -> int:
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
        deliveries = _Deliveries(report, place, count)
        batch._record_futures += [deliveries] * count
        deliveries.watch(batch.produce_future)
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
