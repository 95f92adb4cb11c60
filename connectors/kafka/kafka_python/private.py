"""Everything that uses private names of kafka-python: :func:`.connecting.private` returns this module, or none.

Records are decoded together, and added to an open batch together, without kafka-python's steps for each of them, with a
version that was tried. The other functions avoid defects of kafka-python 3.0.12; without the names they do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch

from streamkernel.connectors.kafka.clients import OutRecord, Record
from streamkernel.connectors.kafka.kafka_python.record_batches import decode, encode

NETWORK = {"slow_task_threshold_secs": 0}
"""Without it, kafka-python warns that its own steps took long when another process had the processor."""

AT_ONCE = 512
"""Largest number of records that are decoded together."""

Report = Callable[[int, Exception], None]
"""A function that is called with the place of a record among the added ones, and its error."""


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

    `first` is the future of the other record, which has just been sent to the same partition. `report` is called with
    errors of the brokers.
    """
    partition = first._produce_future.topic_partition
    accumulator, wake = kafka._accumulator, kafka._sender.wakeup
    lock, batches = accumulator._tp_lock(partition), accumulator._batches
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
        data, after, bytes_left = builder._buffer, now - builder._first_timestamp, builder._batch_size - builder.size()
    except AttributeError:  # it is being sent
        return 0
    encoded, count, largest = encode(records, place, after, bytes_left)
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


def network(made: list[Any]) -> Callable[..., Any]:
    """Return the function with which kafka-python makes its connections; they are added to a list."""

    def client(**words: Any) -> Any:
        net = NetworkSelector(**words, **NETWORK)
        made.append(KafkaNetClient(net, _Manager(net, **words), **words))
        return made[-1]

    return client


class _Manager(KafkaConnectionManager):
    """A connection manager that reads the broker's reason before the broker closes a connection.

    kafka-python 3.0.12 drops the reason if it arrives together with the end.
    """

    async def _build_transport(self, *words: Any, **more: Any) -> Any:
        transport = await super()._build_transport(*words, **more)
        receive = getattr(transport, "_sock_recv", None)
        if receive is None:
            return transport

        def receive_data() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, None if data else error  # which is raised at the next call

        transport._sock_recv = receive_data
        return transport


def _if_there(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function return ``None`` if kafka-python has not the names that it uses."""

    def call(*arguments: Any) -> Any:
        with suppress(AttributeError):
            return function(*arguments)

    return call


@_if_there
def position(kafka: Any, partition: Any) -> int:
    """Return the position in a partition, -1 without one; the public method asks the brokers, and waits for them."""
    state = kafka._subscription.assignment.get(partition)
    return -1 if state is None or state.position is None else int(state.position.offset)


@_if_there
def request_metadata(kafka: Any) -> Any:
    """Ask the brokers for the partitions of topics, and return the future of the response."""
    return kafka._cluster.request_update()


def known_partitions(kafka: Any, topic: str) -> Iterable[int]:
    """Return the partitions in the last response; for an unknown topic, the public method waits for another one."""
    return kafka._cluster.partitions_for_topic(topic) or ()


@_if_there
def let_go(kafka: Any) -> None:
    """Release a fetch whose records have all been returned.

    kafka-python 3.0.12 keeps it until the next fetch, and behind it, perhaps without end, the fetched records of a
    partition that was paused then and no longer is.
    """
    if not kafka._fetcher._next_partition_records:
        kafka._fetcher._next_partition_records = None


@_if_there
def go_on_joining(kafka: Any) -> None:
    """Continue a rejoin of the group that kafka-python has dropped.

    kafka-python 3.0.12 starts to rejoin when a topic is new or has more partitions. A second notice during the
    rejoin makes it assume that the rejoin is done: it is no longer a member, without noticing.
    """
    coordinator = kafka._coordinator
    if coordinator.rejoining and not coordinator.need_rejoin():
        coordinator.request_rejoin()


@_if_there
def keep_joins(kafka: Any) -> None:
    """Have a consumer keep the partitions of a join that ended while no `poll` was waiting for it.

    kafka-python 3.0.12 joins the group again then: all other members have to join again too, each with the same risk.
    """
    coordinator = kafka._coordinator
    join, is_joining = coordinator._do_join_and_sync_async, coordinator.rebalance_in_progress
    kept: list[bytes] = []  # the partitions that the last join gave us, if it succeeded

    async def join_once() -> bytes:
        if not (kept and is_joining()):  # a `poll` has taken them, or we are no longer a member
            kept.clear()
            kept.append(await join())
        return kept[0]

    coordinator._do_join_and_sync_async = join_once


@_if_there
def is_fenced(kafka: Any) -> bool:
    """Return whether a heartbeat was fenced: kafka-python 3.0.12 sends no more then, but keeps the partitions."""
    coordinator = kafka._coordinator
    return coordinator.stable() and not coordinator.need_rejoin() and not coordinator._heartbeat_enabled


@_if_there
def join_again(kafka: Any) -> bool:
    """Join the group as a new member after another one had our name, and return true."""
    kafka._coordinator.reset_generation()
    kafka._coordinator._async_commit_fenced = False
    return True


def decode_together(kafka: Any) -> None:
    """Have a consumer decode many records at once."""
    kafka._fetcher.PartitionRecords = _PartitionRecords


class _PartitionRecords(Fetcher.PartitionRecords):
    """Fetched batches, whose transactions and checksums are left to kafka-python."""

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Iterator[Any]:
        for one in super()._unpack_records(tp, _Batches(records._buffer), *deserializers):
            if type(one.value) is not list:
                yield one
                continue
            self.records_read += len(one.value) - 1
            for record in one.value:
                self.next_fetch_offset = record.offset + 1
                yield record


class _Batches(MemoryRecords):
    """Batches that are decoded by `_Batch`."""

    def next_batch(self, *limits: Any) -> Any:
        batch = super().next_batch(*limits)
        return _Batch(batch._buffer) if type(batch) is DefaultRecordBatch else batch  # else from before Kafka 0.11


class _Batch(DefaultRecordBatch):
    """A batch that is iterated as records that each stand for many, and from the first unusual one by kafka-python."""

    _pos: int

    def __iter__(self) -> Iterator[Any]:
        super().__iter__()  # decompresses
        data = bytes(self._buffer)
        while self._next_record_index < self._num_records:
            records, end = self._decode(data)
            if not records:
                break
            size, self._pos = end - self._pos, end
            self._next_record_index += len(records)
            yield _Together(records, size)
        yield from iter(lambda: next(self, None), None)

    def _decode(self, data: bytes) -> tuple[list[Record], int]:
        latest = self.max_timestamp if self.timestamp_type == self.LOG_APPEND_TIME else None
        most = min(AT_ONCE, self._num_records - self._next_record_index)
        return decode(data, self._pos, most, (self.base_offset, self.first_timestamp, latest))


class _Together:
    """Several records, with the attributes of one that kafka-python reads; the value is a list of records."""

    key = checksum = timestamp_type = None
    headers = ()

    def __init__(self, records: list[Record], size: int) -> None:
        self.value, self.size_in_bytes = records, size
        self.offset, self.timestamp = records[-1].offset, records[-1].timestamp

    def validate_crc(self) -> bool:
        """Return true, because a batch has one checksum for all its records."""
        return True
