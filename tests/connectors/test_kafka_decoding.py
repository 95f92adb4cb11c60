"""Batches that are decoded together have the records, the positions and the errors of kafka-python."""

import random
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher, IsolationLevel
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from streamkernel.connectors.kafka.kafka_python.private import AT_ONCE, _PartitionRecords

PARTITION, BEGAN = TopicPartition("t", 0), 1_700_000_000_000
HEADERS = [("name", b"value"), ("ü" * 40, b""), ("long", b"w" * 300), ("none", None)]


def batch(first, records, *, codec=0, producer=-1, latest=None):
    """Return the bytes of a batch, whose timestamps are those of the broker if `latest` is given."""
    builder = DefaultRecordBatchBuilder(2, codec, producer >= 0, producer, 0 if producer >= 0 else -1, -1, 1 << 24)
    for i, (after, key, value, headers) in enumerate(records):
        builder.append(i, BEGAN + after, key, value, headers)
    data = bytearray(builder.build())
    data[:8] = first.to_bytes(8, "big")
    if latest is not None:
        data[22] |= 8
        data[35:43] = latest.to_bytes(8, "big")
    return bytes(data)


def read(kind, data, most=500, first=0, **more):
    """Return the records of each call, the positions after them, and the error."""
    found, partition = [], kind(first, PARTITION, MemoryRecords(data), **{"check_crcs": False, **more})
    try:
        while partition:
            records = partition.take(most)
            parts = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
            found.append((parts, partition.next_fetch_offset, partition.leader_epoch))
    except Exception as error:
        return found, type(error)
    return found, partition.records_read, partition.bytes_read > 0


def check(data, **more):
    ours, expected = read(_PartitionRecords, data, **more), read(Fetcher.PartitionRecords, data, **more)
    assert ours == expected
    return expected


SIZES = (0, 1, 62, 63, 64, 127, 128, 8191, 8192, 20_000)
VARIED = [
    (after, key, None if n == 127 else b"v" * n, headers)
    for after, n in enumerate(SIZES)
    for key in (None, b"", b"k" * 70)
    for headers in ((), HEADERS)
]
PLAIN = [(i // 3, None, b"%d" % i, []) for i in range(3 * AT_ONCE + 7)]


@pytest.mark.parametrize("most", [1, 7, 500, 5000])
@pytest.mark.parametrize("codec", [0, 1])
def test_records_are_those_of_the_client(most, codec):
    data = batch(5, VARIED, codec=codec) + batch(100, PLAIN, codec=codec) + batch(9000, [(-7, b"k", b"late", [])])
    check(data, most=most, check_crcs=True)
    check(data, most=most, first=17)
    check(data, most=most, first=1000)


def test_the_time_may_be_that_of_the_broker():
    found, *_ = check(batch(0, VARIED, latest=BEGAN + 99))
    assert {timestamp for _, timestamp, *_ in found[0][0]} == {BEGAN + 99}


def test_the_end_of_a_cut_fetch_waits():
    check((batch(0, PLAIN) + batch(len(PLAIN), PLAIN))[:-5])


def test_a_wrong_checksum_is_reported():
    data = bytearray(batch(0, PLAIN) + batch(len(PLAIN), VARIED))
    data[-1] ^= 1
    assert check(bytes(data), check_crcs=True)[1:] == (CorruptRecordError,)


def test_aborted_batches_are_skipped():
    data = batch(0, PLAIN[:5], producer=7) + batch(5, VARIED, producer=8)
    aborted = [SimpleNamespace(producer_id=7, first_offset=0)]
    found, *_ = check(data, isolation_level=IsolationLevel.READ_COMMITTED, aborted_transactions=aborted)
    assert found[0][0][0][0] == 5


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_reported_as_by_the_client(seed):
    rng, few = random.Random(seed), [record for record in VARIED if len(record[2] or b"") < 200]
    whole = batch(0, few)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(61, len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        check(bytes(data), most=rng.choice((1, 3, 500)))
