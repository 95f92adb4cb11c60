"""Records that are added to an open batch of kafka-python together, without the preparations for each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from connectors.kafka.clients import Headers

OutRecord = tuple[bytes, bytes | None, Headers]
"""Value, key and headers of a record."""

Report = Callable[[Exception], None]
"""A function that is called with an error of the brokers."""


class _Deliveries:
    """Takes the place of the futures of a batch's records."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def watch(self, batch: Any) -> None:
        """Report an error of the batch that a future belongs to."""
        batch._add_cb_eb(self._complete, self._report)

    def rebind(self, batch: Any, index: int) -> None:
        """Do the same for a part of the batch, into which kafka-python has moved a record."""
        self.watch(batch)

    def _complete(self, result: tuple[Any, Any, Callable[[int], Exception] | None]) -> None:
        _, _, error_of = result
        if error_of is not None:
            self._report(error_of(0))


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
        The function that is called with an error of the brokers.
    """
    try:
        partition = first._produce_future.topic_partition
        accumulator, wake = kafka._accumulator, kafka._sender.wakeup
        lock, batches = accumulator._tp_lock(partition), accumulator._batches
    except AttributeError:  # another version of kafka-python
        return 0
    added = 0
    with lock:
        if accumulator._closed or not batches.get(partition):
            return 0
        batch = batches[partition][-1]
        append, largest = batch.records.append, batch.max_record_size
        for value, key, headers in records:
            record = append(None, key, value, headers)
            if record is None:  # there is no room, or the batch is being sent
                break
            largest = max(largest, record.size)
            added += 1
        if added:
            deliveries = _Deliveries(report)
            batch._record_futures += [deliveries] * added
            deliveries.watch(batch.produce_future)
            batch.max_record_size, batch.last_append = largest, time.monotonic()
    if added < len(records):
        wake()
    return added


def by_partition(kafka: Any, topic: str, records: Sequence[OutRecord]) -> dict[int, list[OutRecord]]:
    """Return the records for each partition in their order; records without a key all belong to the same one."""
    partitions = kafka.partitions_for(topic)
    if len(partitions) == 1:
        return {number: list(records) for number in partitions}
    of_key: dict[bytes | None, int] = {}
    found: dict[int, list[OutRecord]] = {}
    for record in records:
        value, key, _ = record
        number = of_key.get(key)
        if number is None:
            number = of_key[key] = kafka._partition(topic, None, key, value, key, value)
        found.setdefault(number, []).append(record)
    return found
