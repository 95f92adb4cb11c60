"""Brokers for tests: a small one from PyPI, and Apache Kafka where Java and Maven are."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from waiting import LIMIT, wait_for

VERSION = "4.0.0"
SERVERS = "TEST_KAFKA_SERVERS"
"""A variable with the addresses of a cluster to run the tests against, instead of brokers of our own."""

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>"""

PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
default.replication.factor={replicas}
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.cleaner.backoff.ms=200
group.consumer.session.timeout.ms=6000
group.consumer.min.session.timeout.ms=1000
group.consumer.heartbeat.interval.ms=500
group.consumer.min.heartbeat.interval.ms=500
"""

AUTHORIZER = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""
"""Properties of a broker that heeds rules of permissions; several brokers could not find one another with them."""


def has_java() -> bool:
    """Return whether Apache Kafka can be run here."""
    return bool(shutil.which("java") and shutil.which("mvn"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """One broker process, which can be killed and started again."""

    def __init__(self, words: Iterable[object], port: int, folder: Path) -> None:
        self._words, self.port, self._folder = [str(word) for word in words], port, folder
        self.start()

    def start(self) -> None:
        with (self._folder / f"{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            assert self._process.poll() is None, self.log()
            try:
                socket.create_connection(("127.0.0.1", self.port), LIMIT).close()
            except OSError:
                return False
            return True

        wait_for(answers, what=self.log)

    def log(self) -> str:
        """Return the end of what it has written."""
        return (self._folder / f"{self.port}.log").read_text()[-3000:]

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it may be gone already
            os.killpg(self._process.pid, signal.SIGKILL)  # the program and what it has started
        self._process.wait()


@contextmanager
def noida(folder: Path) -> Iterator[Broker]:
    """Run the broker from PyPI. It writes what it knows after about a second: it is not for crashes of brokers."""
    folder.mkdir(parents=True, exist_ok=True)
    port, program = free_port(), Path(sys.executable).with_name("noida-db")
    words = [program, "start", "--data-dir", folder / "data", "--only", "kafka", "--kafka-port", port]
    broker = Broker(words, port, folder)
    try:
        broker.wait()
        yield broker
    finally:
        broker.kill()


@contextmanager
def apache(folder: Path, brokers: int = 1) -> Iterator[list[Broker]]:
    """Run Apache Kafka, with as many replicas of everything as there are brokers."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = [(free_port(), free_port()) for _ in range(brokers)]
    voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in enumerate(ports, 1))
    cluster, started = cluster_id(), []
    for node, (port, controller) in enumerate(ports, 1):
        path = folder / f"{node}.properties"
        told = {"node": node, "voters": voters, "port": port, "controller": controller}
        path.write_text(
            PROPERTIES.format(**told, listeners="", protocols="", data=folder / f"data{node}", replicas=brokers)
            + (AUTHORIZER if brokers == 1 else "")
        )
        format_data(folder, path, cluster)
        started.append(Broker([*java(), "kafka.Kafka", path], port, folder))
    try:
        for broker in started:
            broker.wait()
        for broker in started:
            wait_for_all(broker, brokers)
        yield started
    finally:
        for broker in started:
            broker.kill()


def java(*options: str) -> list[str]:
    """Return the command that runs a class of Kafka; in tests, which take minutes, with Java's first compiler alone."""
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    compilers = ["-XX:TieredStopAtLevel=1"] if "PYTEST_VERSION" in os.environ else []  # benchmarks want a fast broker
    return ["java", "-Xmx384m", "-XX:+UseSerialGC", *compilers, log, *options, "-cp", f"{_jars()}/*"]


def cluster_id() -> str:
    """Return a new identity of a cluster."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_data(folder: Path, properties: Path, cluster: str, *words: str) -> None:
    """Make the folder of a broker's data."""
    tool = [*java(), "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", properties, *words]
    subprocess.run(tool, check=True, capture_output=True, cwd=folder)


def wait_for_all(broker: Broker, brokers: int) -> None:
    """Wait until a broker has heard of the others."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    def knows_all() -> bool:
        with suppress(KafkaError), closing(KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{broker.port}")) as admin:
            return len(admin.describe_cluster()["brokers"]) == brokers
        return False

    wait_for(knows_all, what=broker.log)


def _jars() -> Path:
    """Return the folder of Kafka's jars, fetched once on a machine."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), f"streamkernel-tests/kafka-{VERSION}")
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        (draft / "pom.xml").write_text(POM)
        words = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=."]
        subprocess.run(words, cwd=draft, check=True, timeout=600, capture_output=True)
        draft.rename(folder)
    return folder


def make_topics(
    servers: str, *, partitions: int = 1, names: Iterable[str], config: Mapping[str, str] | None = None
) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic
    from kafka.errors import TopicAlreadyExistsError, UnknownBrokerIdError

    names = list(names)
    new = [NewTopic(name, partitions, -1, topic_configs=dict(config or {})) for name in names]

    def made() -> bool:  # a broker may not have heard of the topics, or of the controller, yet
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            with suppress(UnknownBrokerIdError, TopicAlreadyExistsError):
                admin.create_topics(new)
            return {topic["name"] for topic in admin.describe_topics(names) if topic["partitions"]} == set(names)

    wait_for(made)


def delete_topic(servers: str, name: str) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_topics([name])
    admin.close()


def produce(
    servers: str,
    topic: str,
    records: Iterable[Any],
    partitions: int = 1,
    first: int = 0,
    key_of: Callable[[int], bytes] = lambda n: b"%d" % n,
    **options: Any,
) -> None:
    """Write records, objects as JSON and bytes as they are, under their numbers as keys, to the partitions in turn."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20, **options)
    for n, record in enumerate(records, first):
        value = record if record is None or isinstance(record, bytes) else json.dumps(record).encode()
        producer.send(topic, value, key=key_of(n), partition=n % partitions)
    producer.flush()
    producer.close()


def committed(servers: str, topic: str) -> list[Any]:
    """Return all records of a topic that a reader of what is committed sees."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", group_id=None)
    numbers = wait_for(lambda: consumer.partitions_for_topic(topic))  # a broker may not have heard of it yet
    parts = [TopicPartition(topic, number) for number in numbers]
    consumer.assign(parts)
    consumer.seek_to_beginning()
    ends, found = consumer.end_offsets(parts), []
    end = time.monotonic() + LIMIT
    while any(consumer.position(part) < ends[part] for part in parts):
        assert time.monotonic() < end
        found += [record for records in consumer.poll(200).values() for record in records]
    consumer.close()
    return found
