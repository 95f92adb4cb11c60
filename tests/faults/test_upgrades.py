"""A group of version 0.1 whose members are restarted with this release, one after the other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import brokers
import pytest
from faults import members
from faults.kafka_runs import BAD_EVERY, Run, ids, records
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from waiting import LIMIT

pytestmark = pytest.mark.java

OF_0_1 = Path(__file__).parents[1] / "data" / "group_of_0.1"
"""Two members that have learned 2,000 records of "clicks", four partitions, and what they had committed to Kafka."""

HAD, N = 2000, 4000
TOPIC, PARTITIONS = "clicks", 4


def commit(servers: str, group: str, offsets: dict[str, int | None]) -> None:
    """Commit offsets for a group without members."""
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
    found = {
        TopicPartition(TOPIC, int(n)): OffsetAndMetadata(at, "", -1) for n, at in offsets.items() if at is not None
    }
    consumer.assign(list(found))
    consumer.commit(found)
    consumer.close()


def test_members_of_0_1_are_upgraded_one_after_the_other(servers, tmp_path):
    found = records(N)
    brokers.make_topics(servers, names=[TOPIC], partitions=PARTITIONS)
    brokers.produce(servers, TOPIC, found[:3000], PARTITIONS)
    run = Run(servers, tmp_path, TOPIC, source="", options=members.OPTIONS["kafka-python"], audited=True)
    for group, offsets in json.loads((OF_0_1 / "offsets.json").read_text()).items():
        commit(servers, group.replace("GROUP", run.name), offsets)
    before = {}
    for name in ("one", "two"):
        shutil.copytree(OF_0_1 / name, run.state_directory(name))
        before[name] = run.learned(name)
    assert sorted(before["one"] + before["two"]) == ids(HAD)
    processes = [run.start("one")]
    run.wait_for(lambda: run.committed() >= 3000)
    processes.append(run.start("two"))
    run.wait_for(lambda: run.members() == 2)
    brokers.produce(servers, TOPIC, found[3000:], PARTITIONS, first=3000)
    run.wait_for(lambda: run.committed() >= N)
    for process in processes:
        process.terminate()
    assert [process.wait(LIMIT) for process in processes] == [0, 0], run.log_of_all()
    after = {name: run.learned(name) for name in before}
    assert sorted(after["one"] + after["two"]) == ids(N)
    assert all(after[name][: len(before[name])] == before[name] for name in before)
    assert sorted(int(key) for key, _ in run.seen()) == [i for i in ids(N) if i >= HAD]
    assert sorted(map(int, run.dead())) == [i for i in range(5, N, BAD_EVERY) if i >= HAD]
