"""Topics as sources and sinks, on real brokers."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import brokers
import pytest
from topics import made, produce_to, rows, values
from waiting import LIMIT

from streamkernel.connectors import (
    CommitRefusedError,
    Event,
    KafkaDeadLetters,
    KafkaSink,
    KafkaSource,
    KafkaTransactions,
    Refusal,
    TopicMissingError,
    UnavailableError,
)
from streamkernel.connectors.kafka import Options, Writer
from streamkernel.connectors.kafka.clients import Partition
from streamkernel.connectors.kafka.sink import LONGEST

REFUSAL = Refusal("Expected more", "unreadable", "streamkernel.errors.InputError")


def drained(source, close=True):
    found = []
    end = time.monotonic() + LIMIT
    while (events := source.poll(0.2)) is not None:
        found += events
        assert time.monotonic() < end
    if close:
        source.close()
    return found


def test_records_are_in_order_and_have_positions(servers, options, topic):
    brokers.produce(servers, topic, rows(1500))
    events = drained(KafkaSource(options, topic, until="latest"))
    assert values(events) == list(range(1500))
    assert {event.stream for event in events} == {f"{topic}:0"}
    assert [event.resume for event in events] == list(range(1, 1501))
    assert (events[7].key, events[7].raw, events[7].error) == (b"7", b'{"n": 7}', None)
    assert [event.origin["offset"] for event in events] == list(range(1500))
    assert {(event.origin["topic"], event.origin["partition"]) for event in events} == {(topic, 0)}


def test_events_have_the_time_of_their_record(servers, options, topic):
    from kafka import KafkaProducer

    times = [int(1000 * time.time()) - before for before in (60_000, 90_000)]
    producer = KafkaProducer(bootstrap_servers=servers)
    for time_ms in times:
        producer.send(topic, b"{}", timestamp_ms=time_ms)
    producer.flush()
    producer.close()
    events = drained(KafkaSource(options, topic, until="latest"))
    assert [event.origin["timestamp"] for event in events] == times


def test_unreadable_records_are_events_with_errors(servers, options, topic):
    bad = [b"{", b"[1]", b"\xff", b""]
    brokers.produce(servers, topic, [{"n": 1}, *bad, {"n": 2}])
    events = drained(KafkaSource(options, topic, until="latest"))
    assert [event.record for event in events] == [{"n": 1}, *[None] * len(bad), {"n": 2}]
    assert [event.raw for event in events[1:-1]] == [value or b"" for value in bad]
    expected = ["valid JSON", "a JSON object, got an array", "UTF-8", "valid JSON"]
    for event, what, offset in zip(events[1:-1], expected, itertools.count(1), strict=False):
        if what != "UTF-8":
            assert f"Expected {what}" in event.error
        assert event.error.endswith(f" - at {topic}:0, offset {offset}")


def test_custom_decoders_and_keys(servers, options, topic):
    def decoder(value):
        if value == b"boom":
            raise KeyError("boom")
        return {"n": len(value)} if value != b"list" else [1]

    brokers.produce(servers, topic, [b"abc", b"boom", b"list"])
    events = drained(KafkaSource(options, topic, until="latest", decoder=decoder, key="id"))
    assert events[0].record == {"id": "0", "n": 3}
    assert events[1].error.startswith("KeyError: 'boom' - at ")
    assert events[2].error.startswith("Expected a dict from the decoder, got list - at ")


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compressed_records_are_read(servers, options, topic, codec):
    brokers.produce(servers, topic, rows(300), compression_type=codec)
    assert values(drained(KafkaSource(options, topic, until="latest"))) == list(range(300))


def test_start_and_end(servers, options, topic):
    brokers.produce(servers, topic, rows(50))
    time.sleep(0.05)
    moment = dt.datetime.now(dt.UTC)
    time.sleep(0.05)
    brokers.produce(servers, topic, rows(50, first=50))
    for start, until, first, last in [
        ("earliest", "latest", 0, 100),
        (30, 60, 30, 60),
        (moment, "latest", 50, 100),
        ("earliest", moment.isoformat(), 0, 50),
    ]:
        source = KafkaSource(options, topic, start=start, until=until)
        assert values(drained(source)) == list(range(first, last)), (start, until)
    (event,) = drained(KafkaSource(options, topic, start="latest", until="latest"))
    assert (event.is_position_only, event.resume) == (True, 100)


def test_later_records_are_read_too_and_count_in_the_lag(servers, options, topic):
    brokers.produce(servers, topic, rows(100))
    source = KafkaSource(options, topic)
    assert source.lag() == {}
    found = []
    while len(found) < 100:
        found += source.poll(0.2)
        if found and len(found) < 100:
            assert source.lag() == {(topic, "0"): 100 - len(found)}
    assert source.poll(0.1) == []
    brokers.produce(servers, topic, rows(1, first=100))
    while len(found) < 101:
        found += source.poll(0.2)
    assert values(found) == list(range(101))
    source.close()


def test_it_continues_from_positions(servers, options):
    topic = made(servers, partitions=3)
    brokers.produce(servers, topic, rows(600), partitions=3)
    source, positions, first = KafkaSource(options, topic), {}, []
    while len(first) < 200:
        events = source.poll(0.2)
        first += events
        positions |= {event.stream: event.resume for event in events}
    source.close()
    other = KafkaSource(options, topic, until="latest")
    other.seek(positions)
    assert sorted(values(first) + values(drained(other))) == list(range(600))


def test_selected_partitions(servers, options):
    topic = made(servers, partitions=3)
    brokers.produce(servers, topic, rows(30), partitions=3)
    assert sorted(values(drained(KafkaSource(options, topic, partitions=[0, 2], until="latest")))) == [
        n for n in range(30) if n % 3 != 1
    ]
    with pytest.raises(ValueError, match=f'a partition from 0 to 2 of "{topic}", got 3'):
        KafkaSource(options, topic, partitions=[3]).poll(0.1)


def test_many_topics(servers, options):
    topics = [made(servers), made(servers)]
    for i, topic in enumerate(topics):
        brokers.produce(servers, topic, rows(20, first=20 * i))
    assert sorted(values(drained(KafkaSource(options, topics, until="latest")))) == list(range(40))


def test_committed_offsets_take_precedence_unless_rewound(servers, options, topic):
    brokers.produce(servers, topic, rows(30))
    group, stream = uuid.uuid4().hex, f"{topic}:0"
    source = KafkaSource(options, topic, group=group, member="one", until="latest")
    assert len(drained(source, close=False)) == 30
    source.acknowledge({stream: 20})
    source.close()
    for told, first in [({}, 20), ({stream: 5}, 20)]:
        source = KafkaSource(options, topic, group=group, member="one", until="latest")
        source.seek(told)
        assert values(drained(source)) == list(range(first, 30))
    source = KafkaSource(options, topic, group=group, member="one", until="latest")
    source.rewind({stream: 5})
    assert values(drained(source, close=False)) == list(range(5, 30))
    source.again({stream: 5})  # once it has started there, the committed offsets count
    assert values(drained(source)) == list(range(20, 30))


def test_a_rewound_partition_may_be_assigned_again_before_it_is_read_to_the_committed_offset(
    servers, options, topic, monkeypatch
):
    brokers.produce(servers, topic, rows(1500))
    group, partition, stream = uuid.uuid4().hex, Partition(topic, 0), f"{topic}:0"
    given = {"group": group, "partitions": [0], "until": "latest"}
    source = KafkaSource(options, topic, **given)
    assert len(drained(source, close=False)) == 1500
    source.acknowledge({stream: 1200})
    source.close()
    source, found = KafkaSource(options, topic, **given), []
    source.rewind({stream: 5})
    with monkeypatch.context() as nothing:
        nothing.setattr(source.client, "poll", lambda seconds: {})
        assert source.poll(0.0) == []  # it has begun, and returned no event
    for count in (1, 600):  # then it is assigned before it has returned an event, and when some are returned
        source.on_revoked([partition])
        source.on_assigned([partition])
        while len(found) < count:
            found += source.poll(0.2)
    assert source.is_repeating
    source.on_revoked([partition])
    source.on_assigned([partition])
    assert values(found + drained(source)) == list(range(5, 1500))


@pytest.mark.parametrize("stop", [0, 1, 64, 250])
def test_deterministic_order_does_not_depend_on_stops(servers, options, stop):
    topic = made(servers, partitions=3)
    uneven = [b'{"n": %d}' % n for n in range(450)]
    for number, (first, last) in enumerate([(0, 200), (200, 300), (300, 450)]):
        for n in range(3):  # in batches that come one after the other
            part = uneven[first + n * (last - first) // 3 : first + (n + 1) * (last - first) // 3]
            brokers.produce(servers, topic, part, partitions=1) if number == 0 else produce_to(
                servers, topic, part, number
            )
    in_turn = [
        n for turn in itertools.zip_longest(range(200), range(200, 300), range(300, 450)) for n in turn if n is not None
    ]
    source = KafkaSource(options, topic, order="deterministic", until="latest")
    assert values(drained(source)) == in_turn
    source, events = KafkaSource(options, topic, order="deterministic", until="latest"), []
    while len(events) < stop:
        events += source.poll(0.2)
    source.close()
    events = events[:stop]
    other = KafkaSource(options, topic, order="deterministic", until="latest")
    other.seek({event.stream: event.resume for event in events})
    assert values(events + drained(other)) == in_turn


def test_deterministic_order_of_many_records_in_few_large_pieces(servers):
    """Each partition is paused and resumed many times, and none is forgotten."""
    topic = made(servers, partitions=4)
    brokers.produce(servers, topic, rows(60_000), partitions=4)
    source = KafkaSource(servers, topic, order="deterministic", until="latest")
    assert values(drained(source)) == list(range(60_000))


def test_turns_are_kept_when_partitions_are_revoked_and_assigned_again(servers):
    topic = made(servers, partitions=3)
    brokers.produce(servers, topic, rows(6000), partitions=3)
    source = KafkaSource(servers, topic, group=uuid.uuid4().hex, order="deterministic", until="latest")
    events = []
    source.listen(lambda *_: source.acknowledge({event.stream: event.resume for event in events}), print)
    while len(events) < 100 or len(events) % 3 == 0:
        events += source.poll(0.2)
    partitions = [Partition(topic, number) for number in range(3)]
    for _ in range(2):  # the second time before anything was read again
        source.on_revoked(partitions)
        source.on_assigned(partitions)
    assert values(events + drained(source)) == list(range(6000))


def test_members_of_a_group_share_the_partitions(servers, options):
    topic, group = made(servers, partitions=4), uuid.uuid4().hex
    brokers.produce(servers, topic, rows(400), partitions=4)
    told = []
    one = KafkaSource(options, topic, group=group, member="one")
    one.listen(lambda streams, _: told.append(("revoked", streams)), lambda streams: told.append(("lost", streams)))
    found = []
    while len(found) < 400:
        found += one.poll(0.2)
    two, others = KafkaSource(options, topic, group=group, member="two"), []
    end = time.monotonic() + LIMIT
    with ThreadPoolExecutor(1) as pool:
        while len(others) < 200 and time.monotonic() < end:
            waiting = pool.submit(one.poll, 0.2)
            others += two.poll(0.2)
            waiting.result()
    assert told[0][0] == "revoked"
    assert sorted(told[0][1]) == [f"{topic}:{n}" for n in range(4)]
    assert len({event.stream for event in others}) == 2  # the group has committed nothing: from the start
    assert sorted(values(others)) == [n for n in range(400) if f"{topic}:{n % 4}" in {e.stream for e in others}]
    one.close()
    two.close()


def test_records_that_were_deleted_unread_are_reported(servers, options):
    from kafka import KafkaAdminClient, TopicPartition

    topic = made(servers, partitions=2)
    brokers.produce(servers, topic, rows(200), partitions=2)
    source = KafkaSource(options, topic, until="latest")
    source.seek({f"{topic}:0": 10})
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_records({TopicPartition(topic, 0): 40})
    admin.close()
    events = drained(source)
    (gone,) = [event.error for event in events if event.error]
    assert gone == f"Expected a record, got 30 records deleted unread - at {topic}:0, offset 10"
    found = [(event.stream, event.record["n"]) for event in events if event.record]
    assert [n for stream, n in found if stream == f"{topic}:0"] == list(range(80, 200, 2))
    assert [n for stream, n in found if stream == f"{topic}:1"] == list(range(1, 200, 2))


def test_a_missing_topic_is_named(servers, options):
    message = f'Expected a topic, got "nowhere", which does not exist - at {servers}'
    with pytest.raises(TopicMissingError, match=message):
        KafkaSource(options, "nowhere").poll(0.1)


@pytest.mark.parametrize(
    ("client", "given", "reason"),
    [
        ("kafka-python", {"bootstrap_timeout_ms": 300}, "KafkaConnectionError: 111 ECONNREFUSED"),
        ("confluent-kafka", {"socket.connection.setup.timeout.ms": 1000}, "_TRANSPORT: .*: Connection refused"),
    ],
)
def test_unavailable_brokers_are_named(client, given, reason):
    options = Options("127.0.0.1:1", given, client)
    with pytest.raises(UnavailableError, match=rf"Kafka at 127\.0\.0\.1:1 cannot be reached: {reason}"):
        KafkaSource(options, "t").poll(0.1)
    with pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:1 cannot be reached: "):
        options.producer()


def test_a_transaction_shows_nothing_before_it_is_committed(servers, options):
    topic, out, group = made(servers), made(servers), uuid.uuid4().hex
    brokers.produce(servers, topic, rows(10))
    source = KafkaSource(options, topic, group=group, until="latest")
    transactions = KafkaTransactions(source, f"{group}-x", 60.0)
    assert transactions.newest() == (0, "")
    sink, letters = KafkaSink(transactions, out), KafkaDeadLetters(transactions, out)
    events = drained(source, close=False)
    for event in events:
        sink.write(event.record, event.key)
    letters.write(Event("s", [3, 1], b"\xff\x00", key=b"k", headers=(("a", b"1"),)), REFUSAL, "me")
    sink.flush()
    assert brokers.committed(servers, out) == []
    transactions.commit(3, "me", {f"{topic}:0": 10})
    found = brokers.committed(servers, out)
    assert [json.loads(record.value) for record in found[:-1]] == rows(10)
    assert [record.key for record in found[:-1]] == [event.key for event in events]
    assert (found[-1].key, found[-1].value) == (b"k", b"\xff\x00")
    assert dict(found[-1].headers) == {
        "a": b"1",
        "streamkernel.stream": b"s",
        "streamkernel.position": b"[3,1]",
        "__connect.errors.connector.name": b"streamkernel",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.exception.class.name": b"streamkernel.errors.InputError",
        "__connect.errors.exception.message": b"Expected more",
        "__streams.errors.exception": b"streamkernel.errors.InputError",
        "__streams.errors.message": b"Expected more",
        "streamkernel.kind": b"unreadable",
        "streamkernel.member": b"me",
    }
    assert transactions.newest() == (3, "me")
    source.close()
    again = KafkaSource(options, topic, group=group, until="latest")
    assert drained(again) == []
    sink.close()


def test_records_that_are_written_together_are_there_once_and_in_order(servers, options):
    topic, out, group, n = made(servers), made(servers, partitions=2), uuid.uuid4().hex, 4000
    source = KafkaSource(options, topic, group=group, until="latest")
    transactions = KafkaTransactions(source, group, 60.0)
    sink = KafkaSink(transactions, out)
    long = "x" * 200
    for number in (1, 2):  # the second transaction starts again
        records = [{"n": number * n + i, "long": long} for i in range(n)]
        keys = [b"k%d" % (i % 7) if i % 50 == 3 else None for i in range(n)]
        for first in range(0, n, 300):
            sink.write_all(records[first : first + 300], keys[first : first + 300])
        transactions.commit(number, "me", {})
        found = brokers.committed(servers, out)
        assert sorted(json.loads(record.value)["n"] for record in found) == list(range(n, (number + 1) * n))
        for partition in range(2):
            order = [json.loads(record.value)["n"] for record in found if record.partition == partition]
            assert order == sorted(order)
        of_keys = {record.key: {r.partition for r in found if r.key == record.key} for record in found if record.key}
        assert len(of_keys) == 7
        assert all(len(numbers) == 1 for numbers in of_keys.values())
    assert transactions.newest() == (2, "me")
    sink.close()
    source.close()


def test_uncommitted_records_are_never_visible(servers, options):
    topic, out, name = made(servers), made(servers), uuid.uuid4().hex
    brokers.produce(servers, topic, rows(1))
    source = KafkaSource(options, topic)
    old = KafkaTransactions(source, name, 60.0)
    KafkaSink(old, out).write({"n": 1})
    old.flush()
    new = KafkaTransactions(source, name, 60.0)
    assert new.newest() == (0, "")
    with pytest.raises(CommitRefusedError):
        old.commit(1, "me", {})
    KafkaSink(new, out).write({"n": 2})
    new.commit(1, "me", {})
    assert [json.loads(record.value) for record in brokers.committed(servers, out)] == [{"n": 2}]
    for one in (source, old, new):
        one.close()


@pytest.mark.java
@pytest.mark.parametrize("servers", ["given" if os.environ.get(brokers.SERVERS) else "apache"], indirect=True)
def test_a_fenced_producer_refuses_records_that_are_written_together_and_can_be_closed(servers, options):
    """The small broker lets kafka-python take the name again."""
    topic, out, name = made(servers), made(servers), uuid.uuid4().hex
    old, new = (KafkaTransactions(KafkaSource(options, topic), name, 60.0) for _ in range(2))
    sink, records = KafkaSink(old, out), rows(300)
    sink.write_all(records, [None] * 300)
    old.flush()
    assert new.newest() == (0, "")
    with suppress(CommitRefusedError):  # the client may have noticed
        for _ in range(20):
            sink.write_all(records, [None] * 300)
    with pytest.raises(CommitRefusedError):
        old.commit(1, "me", {})
    old.close()  # its records and its error are still waiting to be reported
    KafkaSink(new, out).write({"n": 2})
    new.commit(1, "me", {})
    assert [json.loads(record.value) for record in brokers.committed(servers, out)] == [{"n": 2}]
    new.close()


@pytest.mark.java
@pytest.mark.parametrize("servers", ["given" if os.environ.get(brokers.SERVERS) else "apache"], indirect=True)
def test_an_evicted_member_commits_nothing(servers, options):
    """A member whose session has expired: the group has continued without it. The small broker does not check."""
    topic, group = made(servers), uuid.uuid4().hex
    brokers.produce(servers, topic, rows(20))
    source = KafkaSource(options, topic, group=group, member="one", until="latest")
    lost = []
    source.listen(lambda *_: None, lost.append)
    transactions = KafkaTransactions(source, f"{group}-one", 60.0)
    assert len(drained(source, close=False)) == 20
    from kafka import KafkaAdminClient
    from kafka.admin import MemberToRemove

    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.remove_group_members(group, [MemberToRemove(group_instance_id="one")])
    admin.close()
    with pytest.raises(CommitRefusedError):
        transactions.commit(1, "me", {f"{topic}:0": 20})
    assert transactions.newest() == (0, "")
    source.close()
    assert len(drained(KafkaSource(options, topic, group=group, until="latest"))) == 20
    transactions.close()


def test_a_sink_that_writes_at_once(servers, options, topic):
    sink = KafkaSink(Writer(options), topic)
    sink.write({"n": 1}, b"k")
    assert sink.flush() is None
    assert [(record.key, record.value) for record in brokers.committed(servers, topic)] == [(b"k", b'{"n":1}')]
    sink.close()


def test_dead_letters_report_truncated_parts_and_sizes(servers, options, topic):
    letters = KafkaDeadLetters(Writer(options), topic)
    letters.write(Event("s", 1, b"x" * 2_000_000, key=b"k", headers=(("a", None),)), REFUSAL)
    longest = {part: b"x" * size for part, size in LONGEST.items()}
    event = Event("é" * 40_000, 1, longest["value"], None, "", longest["key"], (("a", longest["headers"][1:]),))
    letters.write(event, REFUSAL._replace(reason="é" * 40_000))
    letters.write(event._replace(key=event.key + b"x", headers=(("a", longest["headers"]),)), REFUSAL)
    letters.flush()
    cut, whole, left = brokers.committed(servers, topic)
    headers = [dict(record.headers) for record in (cut, whole, left)]
    assert (cut.value, cut.key, headers[0]["a"]) == (longest["value"], b"k", b"")
    assert headers[0]["streamkernel.truncated"] == b"value"
    assert headers[0]["streamkernel.value.size"] == b"2000000"
    assert (whole.value, whole.key, headers[1]["a"]) == (event.raw, event.key, event.headers[0][1])
    assert headers[1]["__connect.errors.exception.message"] == ("é" * 5000).encode()
    assert "streamkernel.truncated" not in headers[1]
    assert (left.value, left.key, "a" in headers[2]) == (event.raw, None, False)
    assert headers[2]["streamkernel.truncated"] == b"key,headers"
    assert headers[2]["streamkernel.key.size"] == headers[2]["streamkernel.headers.size"] == b"25001"
    letters.close()
