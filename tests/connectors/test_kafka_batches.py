"""Records that are added to a batch of kafka-python together: it takes what fits, and errors are reported."""

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.producer.record_accumulator import RecordAccumulator

from connectors.kafka.kafka_python.batches import extend

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def kafka():
    woken = []
    sender = SimpleNamespace(wakeup=lambda: woken.append(True))
    return SimpleNamespace(_accumulator=RecordAccumulator(batch_size=2000), _sender=sender, woken=woken)


def sent(kafka, reports, count):
    first, *_ = kafka._accumulator.append(PARTITION, None, None, b"first", [])
    records = [(b"%099d" % i, None if i % 2 else b"key", ()) for i in range(count)]
    return extend(kafka, first, records, reports.append), kafka._accumulator._batches[PARTITION][-1]


def test_a_batch_takes_what_fits(kafka):
    added, batch = sent(kafka, [], 5)
    assert (added, batch.record_count, len(batch._record_futures), kafka.woken) == (5, 6, 6, [])
    added, batch = sent(kafka, [], 50)
    assert 0 < added < 50
    assert kafka.woken
    batch.records.close()
    assert batch.records.size_in_bytes() <= 2000


@pytest.mark.parametrize("is_split", [False, True])
def test_an_error_is_reported_also_for_parts_of_a_batch(kafka, is_split):
    reports, error = [], OSError("refused")
    _, batch = sent(kafka, reports, 5)
    batch.records.close()
    batches = [batch]
    if is_split:
        kafka._accumulator._batches[PARTITION].clear()
        assert kafka._accumulator.split_and_reenqueue(batch) == 2
        batches = list(kafka._accumulator._batches[PARTITION])
    for one in batches:
        reports.clear()
        one.complete_exceptionally(error, lambda index: error)
        assert set(reports) == {error}


def test_a_batch_that_is_written_reports_nothing(kafka):
    reports = []
    _, batch = sent(kafka, reports, 5)
    batch.complete(0, -1)
    assert reports == []
