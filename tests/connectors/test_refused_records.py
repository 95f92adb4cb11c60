"""Records that brokers refuse, on real topics: each costs one dead letter, and all others are committed once."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import closing, contextmanager
from types import SimpleNamespace

import brokers
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from odd_values import AS_JSON, NO_JSON, VALUES
from river import linear_model, metrics
from topics import made
from waiting import wait_for

from streamkernel.connectors import (
    DatasetSource,
    Event,
    KafkaDeadLetters,
    KafkaSink,
    KafkaSource,
    KafkaTransactions,
    RecordsRefusedError,
    Refusal,
    UnavailableError,
)
from streamkernel.connectors.kafka import Options, Writer
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.connectors.kafka.writer import OVERHEAD
from streamkernel.engine import Engine, checkpointer
from streamkernel.engine.checkpoint.state_directory import StateDirectory

N = 60
HOW = pytest.mark.parametrize("tells_settings", [True, False], ids=["settings", "no_settings"])
"""Whether the brokers tell the client the settings of topics, which needs a permission."""


@pytest.fixture
def tells(monkeypatch):
    def tell(tells_settings):
        if not tells_settings:
            monkeypatch.setattr(Options, "topic_settings", lambda self, topic: {})

    return tell


def filled(servers, keys, values=lambda n: {"a": n % 3, "y": n % 2 == 0}, headers=()):
    """Return a topic with records of these keys."""
    topic = made(servers, **{"max.message.bytes": "3000000"})
    producer = KafkaProducer(bootstrap_servers=servers, max_request_size=3_000_000)
    for n, key in enumerate(keys):
        producer.send(topic, json.dumps(values(n)).encode(), key=key, headers=list(headers))
    producer.close()
    return topic


def exactly_once(
    servers, options, topic, predictions, folder, dead=None, *, values=None, model=None, decoder=None, **more
):
    """Return an engine from topic to topic, and the topic of its dead letters."""
    dead = dead or made(servers)
    source = KafkaSource(options, topic, group=uuid.uuid4().hex, until="latest", decoder=decoder)
    transactions = KafkaTransactions(source, uuid.uuid4().hex, 60.0)
    engine = Engine(
        model or linear_model.LogisticRegression(),
        source,
        label="y",
        metric=metrics.Accuracy(),
        sink=KafkaSink(transactions, predictions, values),
        dead_letters=KafkaDeadLetters(transactions, dead),
        state=StateDirectory(folder / "state"),
        transactions=transactions,
        checkpoint_seconds=2.0,
        **more,
    )
    return engine, dead


def check(servers, engine, predictions, dead, refused, *, n=N):
    """Check that each record has a prediction, or a dead letter if it is refused."""
    assert engine.outcomes["learned"] == n
    assert engine.refused["output"] == engine.outcomes["dead_letter"] == len(refused)
    offsets = [json.loads(record.value)["offset"] for record in brokers.committed(servers, predictions)]
    assert sorted(offsets) == [i for i in range(n) if i not in refused]
    letters = [dict(letter.headers) for letter in brokers.committed(servers, dead)]
    assert sorted(int(headers["__connect.errors.offset"]) for headers in letters) == sorted(refused)
    assert {headers["streamkernel.kind"] for headers in letters} == {b"output"}
    return [headers["__connect.errors.exception.message"].decode() for headers in letters]


def test_a_long_key_does_not_stop_the_commit(servers, options, tmp_path):
    topic, predictions = filled(servers, [b"k" * (1_200_000 if n == 7 else 5) for n in range(N)]), made(servers)
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path)
    engine.run()
    (reason,) = check(servers, engine, predictions, dead, {7})
    assert "1,200,000 of key" in reason
    assert engine.incidents["commit_refused"] == engine.incidents["record_refused"] == 0


def test_a_long_label_does_not_stop_the_commit(servers, options, tmp_path):
    values = lambda n: {"a": n, "y": "y" * 600_000 if n == 7 else n % 2 == 0}  # noqa: E731
    topic, predictions = filled(servers, [b"k"] * N, values), made(servers)
    engine, _ = exactly_once(servers, options, topic, predictions, tmp_path)
    engine.run()
    assert (engine.outcomes["learned"], engine.outcomes["dead_letter"]) == (N - 1, 1)
    assert len(brokers.committed(servers, predictions)) == N - 1


@HOW
def test_records_without_a_key_for_a_compacted_topic(servers, options, tells, tells_settings, tmp_path):
    tells(tells_settings)
    without = {7, 8, 33, 59}
    topic = filled(servers, [None if n in without else b"k%d" % n for n in range(N)])
    predictions = made(servers, **{"cleanup.policy": "compact"})
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path)
    engine.run()
    reasons = check(servers, engine, predictions, dead, without)
    if tells_settings:
        assert all("with a key, since the topic is compacted" in reason for reason in reasons)
        assert engine.incidents["record_refused"] == 0
    else:
        assert all("that the brokers accept, got " in reason and predictions in reason for reason in reasons)
        assert 2 <= engine.incidents["record_refused"] <= 1 + len(without)
    assert engine.incidents["commit_refused"] == 0


@HOW
def test_a_topic_with_a_smaller_limit_than_the_client(servers, options, tells, tells_settings, tmp_path):
    """Batches, too, are larger than the topic takes."""
    tells(tells_settings)
    sizes = [19_000 if n % 7 == 3 else 25_000 if n == 11 else 2_000 for n in range(N)]
    topic = filled(servers, [b"k" * size for size in sizes])
    predictions = made(servers, **{"max.message.bytes": "20000"})
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path)
    engine.run()
    (reason,) = check(servers, engine, predictions, dead, {11})
    assert tells_settings == ("at most 20,000 bytes, got 25," in reason)
    assert (engine.incidents["record_refused"] == 0) == tells_settings


@HOW
def test_records_about_the_limit_of_the_topic(servers, options, tells, tells_settings, tmp_path):
    tells(tells_settings)
    keys = [b"k" * size for size in range(1_400, 1_900, 20)]
    topic, predictions = filled(servers, keys), made(servers, **{"max.message.bytes": "2000"})
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path)
    engine.run()
    written = [json.loads(record.value)["offset"] for record in brokers.committed(servers, predictions)]
    letters = [dict(letter.headers) for letter in brokers.committed(servers, dead)]
    refused = [int(headers["__connect.errors.offset"]) for headers in letters]
    assert sorted(written + refused) == list(range(len(keys)))
    assert max(written) < min(refused)  # the longer ones
    assert engine.outcomes["learned"] == len(keys)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_records_at_the_limit_of_the_client(servers, options, more, tmp_path):
    largest = 5_000
    name = {"_": "max_request_size", ".": "message.max.bytes"}[options.separator]
    options = Options(options.servers, {name: largest}, options._name)
    topic, predictions = filled(servers, [b"key"]), made(servers)
    engine, _ = exactly_once(servers, options, topic, predictions, tmp_path / "probe")
    engine.run()
    (record,) = brokers.committed(servers, predictions)
    key = b"k" * (largest - OVERHEAD - 10 - len(record.value) + more)
    topic, predictions = filled(servers, [key]), made(servers)
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path)
    engine.run()
    assert len(brokers.committed(servers, predictions)) + len(brokers.committed(servers, dead)) == 1
    assert engine.outcomes["learned"] == 1


def test_dead_letters_fit_into_a_small_topic(servers, options, tmp_path):
    topic = filled(servers, [b"k" * 30_000] * 5, lambda n: "x" * 100_000, [("h", b"h" * 30_000)])
    dead = made(servers, **{"max.message.bytes": "9000"})
    engine, _ = exactly_once(servers, options, topic, made(servers), tmp_path, dead)
    engine.run()
    letters = brokers.committed(servers, dead)
    assert engine.outcomes["dead_letter"] == len(letters) == 5
    assert {dict(letter.headers)["streamkernel.truncated"] for letter in letters} == {b"value,key,headers"}
    assert {dict(letter.headers)["streamkernel.value.size"] for letter in letters} == {b"100002"}
    assert min(len(letter.value) for letter in letters) > 2_000


def test_dead_letters_need_a_topic_that_is_not_compacted(servers, options, tmp_path):
    dead = made(servers, **{"cleanup.policy": "compact"})
    engine, _ = exactly_once(servers, options, filled(servers, [b"k"]), made(servers), tmp_path, dead)
    with pytest.raises(ValueError, match="Expected a topic for dead letters without compaction"):
        engine.run()


def test_a_prediction_that_the_format_cannot_represent(servers, options, tmp_path):
    class Picky:
        def open(self):
            pass

        def __call__(self, record):
            if record["offset"] in (3, 40):
                raise ValueError("a schema that fits")
            return json.dumps(record).encode()

    topic, predictions = filled(servers, [b"k"] * N), made(servers)
    engine, dead = exactly_once(servers, options, topic, predictions, tmp_path, values=Picky())
    engine.run()
    reasons = check(servers, engine, predictions, dead, {3, 40})
    assert all("that the format can represent, got a schema that fits" in reason for reason in reasons)


def test_values_of_all_kinds_are_written_or_refused(servers, options):
    predictions, dead = made(servers), made(servers)
    sink, letters = KafkaSink(Writer(options), predictions), KafkaDeadLetters(Writer(options), dead)
    for client in (sink, letters):
        client.open()
    with pytest.raises(RecordsRefusedError) as error:
        sink.write_all([{"name": name, "value": value} for name, value in VALUES.items()], [b"k"] * len(VALUES))
    assert [record["name"] for record, *_ in error.value.refused] == list(NO_JSON)
    for i, value in enumerate(VALUES.values()):
        letters.write(Event("s", i, b"", {"value": value}), Refusal("a reason \ud800", "value", "ValueError"))
    for client in (sink, letters):
        client.flush()
        client.close()
    read = {
        line["name"]: line["value"]
        for line in (json.loads(one.value) for one in brokers.committed(servers, predictions))
    }
    assert read == {name: value for name, (_, value) in AS_JSON.items()}
    assert len(brokers.committed(servers, dead)) == len(VALUES)


@contextmanager
def running(engine):
    """Run an engine in a thread; at the end of the block it stops, and its errors are raised."""
    stop, errors = threading.Event(), []

    def run():
        try:
            engine.run(stop.is_set)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert errors == []


def endless(servers, client, topic, predictions, dead, folder):
    """Return an engine that does not end and commits often."""
    source = KafkaSource(Options(servers, client=client), topic, group=uuid.uuid4().hex)
    transactions = KafkaTransactions(source, uuid.uuid4().hex, 60.0)
    return Engine(
        linear_model.LogisticRegression(),
        source,
        label="y",
        metric=metrics.Accuracy(),
        sink=KafkaSink(transactions, predictions),
        dead_letters=KafkaDeadLetters(transactions, dead),
        state=StateDirectory(folder / "state"),
        transactions=transactions,
        checkpoint_seconds=0.2,
    )


@pytest.mark.java
@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_is_deleted_and_made_again(apache, client, monkeypatch, tmp_path):
    monkeypatch.setattr(f"{CLIENTS[client]}.COMMIT_SECONDS", 5.0)
    servers = f"127.0.0.1:{apache.port}"
    topic, predictions = filled(servers, [b"k"] * N), made(servers)
    engine = endless(servers, client, topic, predictions, made(servers), tmp_path)
    with running(engine):
        wait_for(lambda: engine.outcomes["learned"] == N and len(brokers.committed(servers, predictions)) == N)
        brokers.delete_topic(servers, predictions)
        brokers.produce(servers, topic, [{"a": n % 3, "y": True} for n in range(N)])
        wait_for(lambda: engine.incidents["topic_missing"])
        brokers.make_topics(servers, names=[predictions])
        wait_for(lambda: len(brokers.committed(servers, predictions)) == N)
    assert engine.outcomes["learned"] == 2 * N
    assert engine.outcomes["dead_letter"] == 0


@contextmanager
def no_writing(servers, topic):
    """Forbid writing to a topic, to all users."""
    kind, pattern = ResourceType.TOPIC, ResourcePattern(ResourceType.TOPIC, topic)
    read = ACL("User:*", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    rule = ACL("User:*", "*", ACLOperation.WRITE, ACLPermissionType.DENY, pattern)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_acls([read, rule])
        yield
        matching = ResourcePatternFilter(kind, topic, ACLResourcePatternType.LITERAL)
        admin.delete_acls([ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, matching)])


@pytest.mark.java
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("which", ["predictions", "dead"])
def test_a_topic_that_may_not_be_written_to_for_a_while(apache, client, which, tmp_path, monkeypatch):
    reasons = []
    log = SimpleNamespace(**dict.fromkeys(("debug", "info", "error"), lambda *_, **__: None))
    log.warning = lambda _, reason: reasons.append(reason)
    monkeypatch.setattr(checkpointer, "log", log)
    servers = f"127.0.0.1:{apache.port}"
    topic, topics = filled(servers, [b"k"] * N), {"predictions": made(servers), "dead": made(servers)}
    engine = endless(servers, client, topic, topics["predictions"], topics["dead"], tmp_path)
    with running(engine):
        wait_for(
            lambda: engine.outcomes["learned"] == N and len(brokers.committed(servers, topics["predictions"])) == N
        )
        with no_writing(servers, topics[which]):
            brokers.produce(servers, topic, [{"a": n % 3, "y": True} if n else "bad" for n in range(N)])
            wait_for(lambda: engine.incidents["write_forbidden"])
        wait_for(lambda: len(brokers.committed(servers, topics["predictions"])) == 2 * N - 1)
    assert (engine.outcomes["learned"], engine.outcomes["dead_letter"]) == (2 * N - 1, 1)
    assert len(brokers.committed(servers, topics["dead"])) == 1
    assert engine.incidents["record_refused"] == 0
    assert any(topics[which] in reason for reason in reasons)


@HOW
def test_at_least_once_writes_all_that_the_brokers_accept(servers, options, tells, tells_settings, tmp_path):
    """The key of a prediction of no topic is none, so that a compacted topic takes none of them."""
    tells(tells_settings)
    predictions, dead = made(servers, **{"cleanup.policy": "compact"}), made(servers)
    writer = Writer(options)
    sink = KafkaSink(writer, predictions)
    keys = iter([None if n in (3, 40) else b"k%d" % n for n in range(1250)])
    write_all = sink.write_all
    sink.write_all = lambda records, _, headers: write_all(records, [next(keys) for _ in records], headers)
    engine = Engine(
        linear_model.LogisticRegression(),
        DatasetSource("Phishing", label="phishing"),
        label="phishing",
        metric=metrics.Accuracy(),
        sink=sink,
        dead_letters=KafkaDeadLetters(writer, dead),
        state=StateDirectory(tmp_path / "state"),
    )
    engine.run()
    assert engine.outcomes["learned"] == 1250
    assert engine.refused["output"] == 2
    positions = {json.loads(record.value)["position"] for record in brokers.committed(servers, predictions)}
    letters = {int(dict(letter.headers)["streamkernel.position"]) for letter in brokers.committed(servers, dead)}
    assert letters == {4, 41}
    assert positions == set(range(1, 1251)) - letters


def test_refused_records_are_known_after_an_outage(servers, options, monkeypatch):
    """The brokers are unavailable after the first record was found; the next flush continues."""
    predictions = made(servers, **{"cleanup.policy": "compact"})
    writer = Writer(options)
    made_producers, make = [], writer._make_producer

    def fragile(batch):
        made_producers.append(batch)
        if len(made_producers) == 3:  # the one after the first refused record
            raise UnavailableError("no broker answers")
        return make(batch)

    monkeypatch.setattr(writer, "_make_producer", fragile)
    origins = [{"offset": n} for n in range(6)]
    records = [(b"%d" % n, None if n in (1, 4) else b"k%d" % n, ()) for n in range(6)]
    writer.send_all(predictions, records, origins)
    with pytest.raises(UnavailableError):
        writer.flush()
    with pytest.raises(RecordsRefusedError) as error:
        writer.flush()
    writer.flush()
    writer.close()
    assert [origin["offset"] for origin, *_ in error.value.refused] == [1, 4]
    assert {record.value for record in brokers.committed(servers, predictions)} == {b"0", b"2", b"3", b"5"}
