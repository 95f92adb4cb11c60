"""Records that are added to a batch of kafka-python together: it takes what fits, and errors are reported."""

import time
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from streamkernel.connectors.kafka.kafka_python import private
from streamkernel.connectors.kafka.kafka_python.private import extend

PARTITION = TopicPartition("t", 0)
HEADERS = (("name", b"value"), ("ü" * 40, b""), ("long", b"w" * 300))


@pytest.fixture
def kafka():
    woken = []
    sender = SimpleNamespace(wakeup=lambda: woken.append(True))
    return SimpleNamespace(_accumulator=RecordAccumulator(batch_size=2000), _sender=sender, woken=woken)


def sent(kafka, reports, count):
    first, *_ = kafka._accumulator.append(PARTITION, None, None, b"first", [])
    records = [(b"%099d" % i, None if i % 2 else b"key", ()) for i in range(count)]
    return extend(kafka, first, records, lambda _, error: reports.append(error)), kafka._accumulator._batches[
        PARTITION
    ][-1]


def test_a_batch_takes_what_fits(kafka):
    added, batch = sent(kafka, [], 5)
    assert (added, batch.record_count, len(batch._record_futures), kafka.woken) == (5, 6, 6, [])
    added, batch = sent(kafka, [], 50)
    assert 0 < added < 50
    assert kafka.woken
    batch.records.close()
    assert batch.records.size_in_bytes() <= 2000


def test_the_bytes_are_those_that_the_client_writes(kafka, monkeypatch):
    began, now = 1_700_000_000_000, 1_700_000_000_250
    monkeypatch.setattr(private, "time", SimpleNamespace(time=lambda: now / 1000, monotonic=time.monotonic))
    kafka._accumulator.config["batch_size"] = 1 << 20
    first, *_ = kafka._accumulator.append(PARTITION, began, None, b"first", [])
    sizes = (0, 1, 63, 64, 8191, 8192, 20_000)
    records = [(b"v" * n, key, headers) for n in sizes for key in (None, b"", b"k" * 70) for headers in ((), HEADERS)]
    expected = MemoryRecordsBuilder(2, 0, 1 << 20)
    expected.append(began, None, b"first", [])
    sizes = [expected.append(now, key, value, headers).size for value, key, headers in records]
    assert extend(kafka, first, records, print) == len(records)
    batch = kafka._accumulator._batches[PARTITION][-1]
    assert batch.max_record_size == max(sizes)
    for one in (batch.records, expected):
        one.close()
    assert bytes(batch.records.buffer()) == bytes(expected.buffer())
    read = [
        (r.value, r.key, tuple(r.headers), r.timestamp, r.offset) for r in next(MemoryRecords(batch.records.buffer()))
    ]
    assert read == [
        (b"first", None, (), began, 0),
        *((value, key, headers, now, i) for i, (value, key, headers) in enumerate(records, 1)),
    ]


@pytest.mark.parametrize("is_split", [False, True])
def test_an_error_is_reported_also_for_parts_of_a_batch(kafka, is_split):
    reports, error = [], OSError("refused")
    _, batch = sent(kafka, reports, 5)
    batch.records.close()
    parts = [batch]
    if is_split:
        kafka._accumulator._batches[PARTITION].clear()
        assert kafka._accumulator.split_and_reenqueue(batch) == 2
        parts = list(kafka._accumulator._batches[PARTITION])
    for one in parts:
        one.complete_exceptionally(error, lambda index: error)
    assert reports == [error] * 5


def test_a_batch_that_is_written_reports_nothing(kafka):
    reports = []
    _, batch = sent(kafka, reports, 5)
    batch.complete(0, -1)
    assert reports == []


def test_each_record_has_its_own_error(kafka):
    reports = []
    first, *_ = kafka._accumulator.append(PARTITION, None, None, b"first", [])
    records = [(b"%d" % i, None, ()) for i in range(5)]
    assert extend(kafka, first, records, lambda *report: reports.append(report)) == 5
    (batch,) = kafka._accumulator._batches[PARTITION]
    batch.records.close()
    batch.complete_exceptionally(OSError(), lambda index: index)
    assert reports == [(place, place + 1) for place in range(5)]
