"""Topics that several processes read together, on real brokers."""

from __future__ import annotations

import itertools
import json
import pickle
import time
import uuid

import brokers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topics import made, produce_to, rows, values
from waiting import LIMIT, wait_for

from streamkernel.connectors import PartitionedTopics, TopicMissingError, UnavailableError, WorkAssignment
from streamkernel.connectors.kafka import Options, partitioned
from streamkernel.connectors.kafka.clients import Partition
from streamkernel.connectors.kafka.offsets import TopicReplacedError
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.connectors.kafka.partitioned import split


@pytest.fixture
def divided(options):
    """Return a function that creates sources, which are closed at the end."""
    sources = []

    def make(topics, **words):
        sources.append(PartitionedTopics(options, topics, **words))
        return sources[-1]

    yield make
    for source in sources:
        source.close()


def read(source, assignment):
    """Return the events of an assignment as another process would read it."""
    found, end = [], time.monotonic() + LIMIT
    for events in source.read(pickle.loads(pickle.dumps(assignment))):
        found += events
        assert time.monotonic() < end
    assert sum(not event.is_position_only for event in found) <= assignment.events
    return found


def after(positions, events):
    return json.loads(json.dumps(positions | {event.stream: event.resume for event in events}))


def wait_for_end(source, offset):
    """Wait for the transaction markers, which are written after the commit."""
    wait_for(lambda: source.plan({}, 1, 1000)[0].events >= offset)


def delete(servers, topic, number, offset):
    from kafka import KafkaAdminClient, TopicPartition

    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_records({TopicPartition(topic, number): offset})
    admin.close()


def test_an_assignment_is_one_of_each_partition_in_turn(servers, divided):
    topic = made(servers, partitions=5)
    for number, (first, last) in enumerate([(0, 100), (100, 110), (200, 300), (300, 400), (400, 403)]):
        produce_to(servers, topic, [b'{"n": %d}' % n for n in range(first, last)], number)
    source = divided(topic)
    one, two = source.plan({}, 2, 50)
    assert one == WorkAssignment(
        {f"{topic}:{n}": 0 for n in (0, 2, 4)}, {f"{topic}:0": 23, f"{topic}:2": 24, f"{topic}:4": 3}, 50
    )
    assert two == WorkAssignment({f"{topic}:{n}": 0 for n in (1, 3)}, {f"{topic}:1": 10, f"{topic}:3": 40}, 50)
    for assignment, parts in [
        (one, [range(23), range(200, 224), range(400, 403)]),
        (two, [range(100, 110), range(300, 340)]),
    ]:
        events = read(divided(topic), assignment)
        assert values(events) == [n for turn in itertools.zip_longest(*parts) for n in turn if n is not None]
        assert after({}, events) == assignment.end
        assert all(type(event.resume) is int for event in events)


def test_every_event_is_read_once_in_any_rounds(servers, divided):
    """Workers come and go; each assignment that is read again, by any worker, yields the same events."""
    topics = [made(servers, partitions=3), made(servers)]
    for at, topic in enumerate(topics):
        brokers.produce(servers, topic, rows(3000, first=3000 * at), partitions=3 - 2 * at)
    driver, workers, positions, found = divided(topics, until="latest"), [divided(topics) for _ in range(3)], {}, []
    sizes = itertools.cycle([(1, 100), (3, 500), (3, 500), (2, 1000), (1, 3), (3, 1)])
    for number in itertools.count():
        if (assignments := driver.plan(positions, *next(sizes))) is None:
            break
        brokers.produce(servers, topics[0], rows(3, first=-3), partitions=3)  # They are not in it.
        for worker, assignment in enumerate(assignments):
            events = read(workers[worker], assignment)
            if number % 4 == 0:
                assert read(workers[worker], assignment) == read(workers[worker - 1], assignment) == events
            found += events
            positions = after(positions, events)
    assert sorted(values(found)) == list(range(6000))
    assert not any(event.is_position_only for event in found)


def test_an_assignment_that_was_left_unfinished_is_read_from_its_beginning(servers, divided, topic):
    brokers.produce(servers, topic, rows(500))
    source = divided(topic)
    (assignment,) = source.plan({}, 1, 300)
    slices = source.read(assignment)
    while not next(slices):
        pass
    slices.close()
    assert values(read(source, assignment)) == list(range(300))


def test_partitions_of_an_earlier_share_are_read_no_more(servers, divided, options):
    topic = made(servers, partitions=3)
    brokers.produce(servers, topic, rows(60_000), partitions=3)
    source = divided(topic)
    (assignment,) = source.plan({}, 1, 30)
    positions = after({}, read(source, assignment))
    _, two, _ = source.plan(positions, 3, 9000)
    fetched, poll = set(), source._reader.poll

    def spied(seconds):
        found = poll(seconds)
        fetched.update(partition.number for partition, records in found.items() if records)
        return found

    source._reader.poll = spied
    assert values(read(source, two)) == list(range(31, 27_031, 3))
    assert fetched == {1}
    (assignment,) = source.plan(after(positions, []) | {f"{topic}:1": 9010}, 1, 30)
    assert sorted(values(read(source, assignment))) == sorted(
        [*range(30, 60, 3), *range(32, 62, 3), *range(27_031, 27_061, 3)]
    )


def test_records_fetched_beyond_an_assignment_are_not_fetched_again(servers, divided, topic):
    """A record that was fetched with those of one round is read in the next one."""
    brokers.produce(servers, topic, rows(300))
    source, positions, started = divided(topic), {}, []
    reader = source._reader = source._connect()
    start = reader.start
    reader.start = lambda places: started.append(places) or start(places)
    for number in range(10):
        (assignment,) = source.plan(positions, 1, 30)
        events = read(source, assignment)
        assert values(events) == list(range(30 * number, 30 * number + 30))
        positions = after(positions, events)
    assert started == [{Partition(topic, 0): 0}]
    (assignment,) = source.plan(positions, 1, 30)
    assert (assignment.events, read(source, assignment)) == (0, [])
    brokers.produce(servers, topic, rows(3, first=300))
    (assignment,) = source.plan(positions, 1, 30)
    assert values(read(source, assignment)) == [300, 301, 302]
    assert len(started) == 1


def test_offsets_without_a_record_are_skipped(servers, divided, options, topic):
    """Each transaction ends with a marker, and aborted records are not visible."""
    name, expected = uuid.uuid4().hex, []
    for n in range(6):
        producer = options.producer(name)  # It aborts the uncommitted transaction of the one before.
        for i in range(3):
            producer.send(topic, b'{"n": %d}' % (10 * n + i), None, ())
        producer.flush()
        if n % 2 == 0:
            producer.commit([])
            expected += [10 * n + i for i in range(3)]
    options.producer(name).close()
    wait_for_end(divided(topic), 24)
    for most in (1, 2, 5, 100):
        driver, worker, positions, found = divided(topic, until="latest"), divided(topic), {}, []
        while (assignments := driver.plan(positions, 1, most)) is not None:
            events = read(worker, assignments[0])
            assert after(positions, events) == assignments[0].end
            assert [event.is_position_only for event in events[:-1]] == [False] * len(events[:-1])
            positions = after(positions, events)
            found += [event for event in events if not event.is_position_only]
        assert values(found) == expected
        assert positions == {f"{topic}:0": 24}


def test_open_transactions_are_not_planned(servers, divided, options, topic):
    brokers.produce(servers, topic, rows(5))
    producer = options.producer(uuid.uuid4().hex)
    producer.send(topic, b'{"n": 5}', None, ())
    producer.flush()
    source = divided(topic)
    (assignment,) = source.plan({}, 1, 100)
    assert assignment.end == {f"{topic}:0": 5}
    (latest,) = divided(topic, start="latest").plan({}, 1, 100)
    assert (latest.begin, latest.events) == (assignment.end, 0)
    assert values(read(source, assignment)) == list(range(5))
    producer.commit([])
    wait_for_end(source, 7)
    (assignment,) = source.plan(assignment.end, 1, 100)
    assert assignment.end == {f"{topic}:0": 7}
    assert [event.is_position_only for event in read(source, assignment)] == [False, True]
    producer.close()


def test_start_and_end(servers, divided, topic):
    brokers.produce(servers, topic, rows(50))
    for start, until, positions, first, last in [
        ("earliest", "latest", {}, 0, 50),
        (30, 40, {}, 30, 40),
        (30, 40, {f"{topic}:0": 35}, 35, 40),
    ]:
        source = divided(topic, start=start, until=until)
        assignments = source.plan(positions, 2, 100)
        assert values(read(source, assignments[0])) == list(range(first, last))
        assert assignments[1] == WorkAssignment({}, {}, 0)
        assert source.plan(assignments[0].end, 2, 100) is None


def test_records_after_the_first_start_are_read_from_latest(servers, divided, topic):
    brokers.produce(servers, topic, rows(50))
    source = divided(topic, start="latest")
    (assignment,) = source.plan({}, 1, 100)
    assert (assignment.events, read(source, assignment)) == (0, [])
    brokers.produce(servers, topic, rows(10, first=50))
    (assignment,) = source.plan({}, 1, 100)
    assert values(read(source, assignment)) == list(range(50, 60))


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_plan_has_the_start_of_every_partition(servers, divided, start):
    """So records that arrive while the driver is down are read, also in partitions without an event before."""
    topics = [made(servers, partitions=3), made(servers)]
    produce_to(servers, topics[0], [b'{"n": %d}' % n for n in range(9)], 0)
    places = [9 if start == "latest" else 0, 0, 0, 0]
    streams = [f"{topics[0]}:{n}" for n in range(3)] + [f"{topics[1]}:0"]
    assignments = divided(topics, start=start).plan({}, 3, 0)
    begun = {stream: place for assignment in assignments for stream, place in assignment.begin.items()}
    assert (begun, [assignment.events for assignment in assignments]) == (
        dict(zip(streams, places, strict=True)),
        [0, 0, 0],
    )
    for number in (0, 1):
        produce_to(servers, topics[0], [b'{"n": 10}'], number)
    produce_to(servers, topics[1], [b'{"n": 10}'], 0)
    again = divided(topics, start=start)
    assignments = again.plan(begun, 3, 100)
    assert {stream: place for assignment in assignments for stream, place in assignment.begin.items()} == begun
    assert sorted(values([event for assignment in assignments for event in read(again, assignment)])) == [
        *range(places[0], 9),
        10,
        10,
        10,
    ]
    (assignment,) = divided(topics, start=start).plan({streams[0]: 10, streams[2]: 0}, 1, 100)
    later = 1 if start == "latest" else 0  # Another topic has no position: it starts where it would at first.
    assert assignment.begin == {streams[0]: 10, streams[1]: 0, streams[2]: 0, streams[3]: later}


def test_records_that_were_deleted_unread_are_reported(servers, divided):
    topic = made(servers, partitions=2)
    brokers.produce(servers, topic, rows(200), partitions=2)
    stream, source = f"{topic}:0", divided(topic)
    (assignment,) = source.plan({stream: 10}, 1, 100)
    delete(servers, topic, 0, 40)
    events = read(source, assignment)
    (gone,) = [event for event in events if event.error]
    assert gone.error == f"Expected a record, got 30 records deleted unread - at {topic}:0, offset 10"
    assert values([event for event in events if event.record and event.stream == stream]) == list(range(80, 120, 2))
    assert after({}, events) == assignment.end == {stream: 60, f"{topic}:1": 50}
    (assignment,) = source.plan(assignment.end, 1, 20)
    delete(servers, topic, 0, 90)  # That is behind the end of the assignment.
    other = divided(topic)
    events = read(other, assignment)
    assert [event.error for event in events if event.stream == stream] == [
        f"Expected a record, got 30 records deleted unread - at {topic}:0, offset 60"
    ]
    (assignment,) = source.plan(after({}, events), 1, 100)
    assert assignment.begin == {stream: 90, f"{topic}:1": 60}
    assert len(values(read(other, assignment))) == 50


def test_a_topic_that_has_become_shorter_is_reported(servers, divided, topic):
    brokers.produce(servers, topic, rows(20))
    stream, source = f"{topic}:0", divided(topic, until=100)
    (assignment,) = source.plan({stream: 50}, 1, 100)
    assert assignment == WorkAssignment({stream: 50}, {stream: 20}, 1)
    (event,) = read(source, assignment)
    assert (event.resume, event.error) == (
        20,
        f"Expected a record, got an end at 20, so records were deleted - at {stream}, offset 50",
    )
    brokers.produce(servers, topic, rows(5, first=20))
    (assignment,) = source.plan({stream: 20}, 1, 100)
    assert values(read(source, assignment)) == list(range(20, 25))
    cut = WorkAssignment({stream: 30}, {stream: 40}, 10)  # It was longer when this was planned.
    (event,) = read(source, cut)
    assert (event.resume, event.error) == (
        25,
        f"Expected a record, got an end at 25, so records were deleted - at {stream}, offset 30",
    )


def test_unreadable_records_keys_and_selected_partitions(servers, divided):
    topic = made(servers, partitions=3)
    brokers.produce(servers, topic, [{"n": 0}, {"n": 1}, {"n": 2}, b"{", {"n": 4}, None], partitions=3)
    source = divided(topic, partitions=[2, 0], key="id", decoder=None)
    (assignment,) = source.plan({}, 1, 100)
    events = read(source, assignment)
    assert [event.record for event in events] == [{"id": "0", "n": 0}, {"id": "2", "n": 2}, None, None]
    assert events[2].error.endswith(f" - at {topic}:0, offset 1")
    assert (events[3].is_passed_over, events[3].resume) == (True, 2)
    with pytest.raises(ValueError, match=f'a partition from 0 to 2 of "{topic}", got 3'):
        divided(topic, partitions=[3]).plan({}, 1, 1)


def test_lag_is_the_backlog_when_the_round_was_planned(servers, divided):
    topic = made(servers, partitions=2)
    brokers.produce(servers, topic, rows(60), partitions=2)
    source = divided(topic, start=10)
    assert source.lag({}) == {}
    source.plan({}, 2, 5)
    assert source.lag({}) == {(topic, "0"): 20, (topic, "1"): 20}
    assert source.lag({f"{topic}:1": 25}) == {(topic, "0"): 20, (topic, "1"): 5}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_new_partitions_are_read_from_their_beginning(servers, client, monkeypatch, start):
    from kafka import KafkaAdminClient

    topic = made(servers)
    produce_to(servers, topic, [b'{"n": 0}'], 0)
    given = {"metadata_max_age_ms": 100} if client == "kafka-python" else {}
    source = PartitionedTopics(Options(servers, given, client), topic, start=start)
    try:
        first = source.plan({}, 2, 10)
        begun = first[0].begin | first[1].begin
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.create_partitions({topic: 3})
        admin.close()
        produce_to(servers, topic, [b'{"n": 1}', b'{"n": 2}'], 2)
        assert source.plan(begun, 2, 10) == first  # it looks once a minute
        monkeypatch.setattr(partitioned, "LOOK_SECONDS", 0.0)
        wait_for(lambda: len(source.plan(begun, 2, 10)[0].begin) == 2)
        assignments = source.plan(begun, 2, 10)
        assert assignments[0].begin == first[0].begin | {f"{topic}:2": 0}
        assert values(read(source, assignments[0])) == ([0] if start == "earliest" else []) + [1, 2]
        assert list(assignments[1].begin) == [f"{topic}:1"]
        source.close()
        source = PartitionedTopics(
            Options(servers, given, client), topic, start=start
        )  # One that was not there meanwhile.
        assert source.plan(begun, 2, 10) == assignments
    finally:
        source.close()


def test_a_missing_topic_is_named(servers, divided):
    source = divided("nowhere")
    message = f'Expected a topic, got "nowhere", which does not exist - at {servers}'
    with pytest.raises(TopicMissingError, match=message):
        source.plan({}, 1, 1)
    with pytest.raises(TopicMissingError):
        next(source.read(WorkAssignment({"nowhere:0": 0}, {"nowhere:0": 1}, 1)))


@pytest.mark.parametrize(
    ("client", "given"),
    [
        ("kafka-python", {"bootstrap_timeout_ms": 300}),
        ("confluent-kafka", {"socket.connection.setup.timeout.ms": 1000}),
    ],
)
def test_unavailable_brokers_are_named(client, given):
    source = PartitionedTopics(Options("127.0.0.1:1", given, client), "t")
    with pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:1 cannot be reached: "):
        source.plan({}, 1, 1)


@given(waiting=st.dictionaries(st.text(max_size=2), st.integers(0, 40), max_size=8), events=st.integers(0, 120))
def test_events_are_split_as_evenly_as_the_backlog_allows(waiting, events):
    found = split(waiting, events)
    assert found.keys() == waiting.keys()
    assert sum(found.values()) == min(events, sum(waiting.values()))
    for stream, count in found.items():
        assert 0 <= count <= waiting[stream]
        assert count == waiting[stream] or count >= max(found.values()) - 1


@pytest.mark.parametrize("servers", [pytest.param("apache", marks=pytest.mark.java)], indirect=True)
def test_a_topic_that_is_made_again_is_refused(servers, divided, monkeypatch):
    """By the next plan, by the next checkpoint, and where only a checkpoint knows the first topic."""
    monkeypatch.setattr(partitioned, "LOOK_SECONDS", 0.0)
    topic = made(servers)
    source = divided(topic)
    assert source.prepare() == {"topics": {}}  # nothing was planned, so nothing is asked
    source.plan({}, 1, 10)
    ids = dict(source.prepare()["topics"])
    assert list(ids) == [topic]
    brokers.delete_topic(servers, topic)
    brokers.make_topics(servers, names=[topic])
    later = divided(topic)
    later.restore({"topics": ids})
    for call in (source.prepare, lambda: source.plan({}, 1, 10), later.prepare, lambda: later.plan({}, 1, 10)):
        with pytest.raises(TopicReplacedError, match=f'the topic "{topic}" .* got a new one of the same name'):
            call()
