"""Private names of kafka-python: the installed version has them, and without them the public interface is enough."""

import importlib
import inspect
import logging
import re
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import brokers
import pytest
from kafka import __version__
from test_kafka import (  # noqa: F401 - they run again here, without private names
    test_a_transaction_shows_nothing_before_it_is_committed,
    test_committed_offsets_take_precedence_unless_rewound,
    test_later_records_are_read_too_and_count_in_the_lag,
    test_records_are_in_order_and_have_positions,
    test_records_that_are_written_together_are_there_once_and_in_order,
)
from test_kafka import test_members_of_a_group_share_the_partitions as share_partitions
from test_kafka_start_offsets import test_partitions_that_are_added_are_read_from_their_first_record  # noqa: F401
from waiting import wait_for

from streamkernel.connectors import KafkaSource
from streamkernel.connectors.kafka import Options, kafka_python, partition_reader
from streamkernel.connectors.kafka.kafka_python import connecting
from streamkernel.connectors.kafka.kafka_python import consumer as python_consumer

SOON = {"metadata_max_age_ms": 1000}
"""Options with which a member of a group soon hears of more partitions; by default within five minutes."""

PRIVATE = "streamkernel.connectors.kafka.kafka_python.private"

NAMES = {
    "kafka.consumer.fetcher": "PartitionRecords _next_partition_records _unpack_records records_read next_fetch_offset",
    "kafka.consumer.group": "_cluster _coordinator _fetcher _subscription",
    "kafka.consumer.subscription_state": "assignment position",
    "kafka.cluster": "partitions_for_topic request_update",
    "kafka.coordinator.base": "_do_join_and_sync_async _heartbeat_enabled need_rejoin rebalance_in_progress rejoining "
    "request_rejoin reset_generation stable",
    "kafka.coordinator.consumer": "_async_commit_fenced",
    "kafka.net.compat": "KafkaNetClient",
    "kafka.net.manager": "KafkaConnectionManager _build_transport",
    "kafka.net.selector": "NetworkSelector slow_task_threshold_secs",
    "kafka.net.transport": "_sock_recv",
    "kafka.producer.future": "_add_cb_eb _produce_future rebind topic_partition",
    "kafka.producer.kafka": "_accumulator _partition _sender",
    "kafka.producer.producer_batch": "_record_futures last_append max_record_size produce_future",
    "kafka.producer.record_accumulator": "_batches _closed _tp_lock",
    "kafka.producer.sender": "wakeup",
    "kafka.record.default_records": "_batch_size _buffer _first_timestamp _last_offset _max_timestamp "
    "_next_record_index _num_records _pos",
    "kafka.record.memory_records": "_buffer _builder _next_offset next_batch",
}
"""The names in `private.py`, by the modules that define them."""


@pytest.fixture
def options(servers, monkeypatch):
    monkeypatch.setattr(partition_reader, "LOOK_SECONDS", 0.2)
    return Options(servers, SOON, "kafka-python")


@pytest.fixture(autouse=True)
def untried(monkeypatch, request):
    if "module" not in request.fixturenames:
        monkeypatch.setattr(connecting, "TRIED", ("2.0",))
        monkeypatch.setitem(sys.modules, PRIVATE, None)
        monkeypatch.delattr(kafka_python, "private", raising=False)  # if it has been imported


def test_a_member_whose_rejoin_was_dropped_joins_again(servers, options, topic, monkeypatch):
    """kafka-python 3.0.12 drops the rejoin after the first join if a poll ends meanwhile, as most short ones do."""
    monkeypatch.setattr(python_consumer, "JOIN_SECONDS", 1.0)
    brokers.produce(servers, topic, [{"n": n} for n in range(10)])
    for _ in range(6):
        source = KafkaSource(options, topic, group=uuid.uuid4().hex, until="latest")
        assert wait_for(lambda: source.poll(0.01) is None)  # noqa: B023
        source.close()


@pytest.mark.java
@pytest.mark.parametrize("servers", ["apache"], indirect=True)
def test_members_of_a_group_share_the_partitions(servers, options):
    """Without private names, a member whose join ends between two polls joins twice, one join right after the other.

    Apache Kafka answers all waiting members together. The small broker may miss one that waits: it never answers it.
    """
    share_partitions(servers, options)


@pytest.mark.parametrize("module", NAMES)
def test_the_installed_version_has_the_private_names(module):
    source = inspect.getsource(importlib.import_module(module))
    assert [name for name in NAMES[module].split() if not re.search(rf"\b{name}\b", source)] == []
    assert __version__ in connecting.TRIED, "try it, and add it to TRIED"


def test_other_modules_use_no_private_name():
    folder = Path(inspect.getfile(connecting)).parent
    private = re.compile(
        r"_kafka\._|kafka\._\w|from kafka\.(net\.(?!sasl)|record|consumer|producer|coordinator|cluster)\b"
    )
    sources = {path.stem: path.read_text() for path in folder.glob("*.py")}
    assert [name for name, source in sources.items() if re.search(private, source)] == ["private"]


def test_a_version_that_was_not_tried_is_logged_once(caplog):
    connecting._announce.cache_clear()
    with caplog.at_level(logging.WARNING, "streamkernel"):
        assert [connecting.private() for _ in range(2)] == [None, None]
    slower, worse = (record.getMessage() for record in caplog.records)
    assert slower.startswith(f"kafka-python {__version__} was not tried, 2.0 was: records are read and written one by")
    assert worse.startswith(f"kafka-python {__version__} was not tried, 2.0 was: defects")


def test_defects_are_not_avoided_without_the_names(monkeypatch):
    monkeypatch.delitem(sys.modules, PRIVATE)
    names = connecting.private()
    without = SimpleNamespace(_fetcher=SimpleNamespace(), _coordinator=SimpleNamespace())
    for avoid in (names.let_go, names.go_on_joining, names.keep_joins, names.is_fenced, names.join_again):
        assert avoid(without) is None
    assert names.request_metadata(without) is names.position(without, None) is None
    assert vars(without._coordinator) == {}
