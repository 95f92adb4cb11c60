"""confluent-kafka as :class:`~streamkernel.connectors.kafka.clients.Client`, and its producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import repeat
from time import monotonic
from typing import Any

try:
    from confluent_kafka import Consumer as AnyConsumer
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import Producer as AnyProducer
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:
    raise ImportError("confluent-kafka is needed: pip install 'streamkernel[confluent]'") from error

from streamkernel.connectors.base import CommitRefusedError, UnavailableError
from streamkernel.connectors.kafka.clients import (
    ANSWER_SECONDS,
    COMMIT_SECONDS,
    FORBIDDEN,
    TOO_LARGE,
    Consumer,
    Headers,
    OutRecord,
    Partition,
    Producer,
    Undelivered,
    run_within,
)
from streamkernel.connectors.kafka.confluent.client_mapping import describe_error, reach, settings, to_client
from streamkernel.connectors.kafka.confluent.consumer import ConfluentConsumer

SEPARATOR = "."

PATHS = (
    "https.ca.location", "sasl.kerberos.keytab", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.assertion.private.key.file", "ssl.ca.location",
    "ssl.certificate.location", "ssl.crl.location", "ssl.engine.location", "ssl.key.location", "ssl.keystore.location",
)  # fmt: skip

FUNCTIONS = {"oauth_cb": lambda function: function}

_ALONE = {"log_level": 0, "sasl.mechanism": "PLAIN", "sasl.username": "-", "sasl.password": "-"}
"""A configuration that connects to nothing and is valid with any other single option."""


BATCHES = {"linger.ms": 50}
"""Default batching; a flush does not wait for a batch to fill."""

HEARD_EVERY = 100
"""Number of records between two polls for delivery reports, until which records are kept."""

MOST_KEPT = 100
"""Number of records of a failed transaction that are kept: all are written again."""

FOLLOWING = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE}
"""Codes of the errors of all records after another error has ended the transaction."""

FLUSH_SECONDS = 0.2
"""Seconds between two checks for an error during a flush."""

CLOSE_SECONDS = 2.0
"""Timeout of the last requests in seconds."""


class ConfluentProducer(Producer):
    """A :class:`~streamkernel.connectors.kafka.clients.Producer` of librdkafka."""

    def __init__(
        self, servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None
    ) -> None:
        defaults = {**BATCHES, "socket.timeout.ms": int(1000 * min(COMMIT_SECONDS, seconds / 2))}
        arguments: dict[str, Any] = {"acks": "all", "enable_idempotence": True, "delivery_report_only_error": True}
        if name is not None:
            arguments |= {"transactional_id": name, "transaction_timeout_ms": int(1000 * seconds)}
        if batch:
            arguments["batch_size"] = min(batch, int(options.get("batch.size", batch)))
        elif batch is not None:
            arguments["batch_num_messages"] = 1
        self._reasons: deque[KafkaError] = deque(maxlen=10)
        callbacks = {"on_delivery": self._keep_nameless, "error_cb": self._reasons.append}
        self._kafka: Any = AnyProducer(settings(servers, {**defaults, **options}, **arguments) | callbacks)
        self._sent = 0
        self._open = False
        self._is_transactional = name is not None
        self._error: KafkaError | None = None
        self.undelivered: list[Undelivered] = []
        reach(self._kafka, servers, options, self._reasons)
        if self._is_transactional:
            self._kafka.init_transactions(COMMIT_SECONDS)

    def send(self, topic: str, value: bytes, key: bytes | None, headers: Headers, partition: int | None = None) -> None:
        with self._refusals():
            self._begin()
            self._send(topic, (value, key, headers), -1 if partition is None else partition, None)
            self._sent += 1
            if self._sent % HEARD_EVERY == 0:
                self._kafka.poll(0)

    def send_all(self, topic: str, records: Sequence[OutRecord], origins: Sequence[Any] | None = None) -> None:
        with self._refusals():
            self._begin()
            for record, origin in zip(records, origins or repeat(None, len(records)), strict=True):
                self._send(topic, record, -1, origin)
            self._kafka.poll(0)

    def _send(self, topic: str, record: OutRecord, partition: int, origin: Any) -> None:
        value, key, headers = record
        more: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if origin is not None:
            more["on_delivery"] = partial(self._keep, topic, record, origin)
        try:
            self._kafka.produce(topic, value, key, partition, **more)
        except BufferError:
            self._wait()
            self._kafka.produce(topic, value, key, partition, **more)
        except KafkaException as error:
            if error.args[0].code() not in TOO_LARGE:
                raise
            self._keep(topic, record, origin, error.args[0])

    def flush(self, seconds: float = COMMIT_SECONDS) -> None:
        self._wait(seconds)
        error, self._error = self._error, None
        if error is not None:
            raise self._refusal(error)

    def _wait(self, seconds: float = COMMIT_SECONDS) -> None:
        """Wait until the brokers have answered for all records."""
        end = monotonic() + seconds
        with self._refusals():
            while waiting := self._kafka.flush(FLUSH_SECONDS):
                has_failed = self._is_transactional and self._error is not None  # then nothing more is sent
                if has_failed or monotonic() >= end:
                    break
        if waiting and self._error is None:
            kind = CommitRefusedError if self._is_transactional else TimeoutError
            raise kind(f"Expected the brokers to respond within {seconds:g} s, {len(self._kafka)} records wait")

    def commit(
        self, parts: Sequence[tuple[Any, Mapping[Partition, int], str]], seconds: float = COMMIT_SECONDS
    ) -> None:
        def task() -> None:
            if not self._open:
                self._kafka.begin_transaction()
            for group, offsets, note in parts:
                if offsets:
                    member = _nobody(group) if isinstance(group, str) else group
                    self._kafka.send_offsets_to_transaction(to_client(offsets, note), member, seconds)
            self._kafka.commit_transaction(seconds)

        error = run_within(seconds, task)  # it takes longer than its limit if a broker comes back
        self._open = False
        if error is not None:
            raise CommitRefusedError(describe_error(error)) from error

    def close(self) -> None:
        if self._kafka is None:
            return
        with suppress(CommitRefusedError), self._refusals():  # the next producer with its name fences it
            if self._open:
                self._kafka.abort_transaction(CLOSE_SECONDS)
            self._kafka.flush(CLOSE_SECONDS)
        self._kafka.purge()
        self._kafka = None  # its own close waits for brokers without end

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise the errors of librdkafka as `CommitRefusedError`.

        A fatal error is raised by the call that hands out delivery reports. If it finds reports behind the error, it
        calls for them with the error set, which Python answers with a `SystemError`, from that error or from none.
        """
        try:
            yield
        except (KafkaException, SystemError) as error:
            cause = self._reasons[-1] if isinstance(error, SystemError) and self._reasons else error
            raise self._refusal(cause) from error

    def _refusal(self, error: Any) -> CommitRefusedError:
        """Return the error of a commit for one of librdkafka, or for what ended the transaction before it."""
        one = error.args[0] if isinstance(error, KafkaException) else error
        if self._is_transactional and isinstance(one, KafkaError) and one.code() in FOLLOWING:
            try:
                self._kafka.commit_transaction(0)  # the transaction has failed, and this says why
            except KafkaException as cause:
                one = cause.args[0]
        is_forbidden = isinstance(one, KafkaError) and one.code() in FORBIDDEN
        return CommitRefusedError(describe_error(one), "write_forbidden" if is_forbidden else "commit_refused")

    def _begin(self) -> None:
        if self._is_transactional and not self._open:
            self._kafka.begin_transaction()
            self._open = True

    def _keep(self, topic: str, record: OutRecord, origin: Any, error: KafkaError | None, message: Any = None) -> None:
        if error is not None:
            self._error = error
            self.undelivered.append(Undelivered(topic, record, origin, error.code(), describe_error(error)))

    def _keep_nameless(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and not (self._is_transactional and len(self.undelivered) >= MOST_KEPT):
            record = message.value() or b"", message.key(), message.headers() or ()
            self._keep(message.topic(), record, None, error)


@cache
def _nobody(group: str) -> Any:
    """Return the group metadata of a process that is not a member."""
    consumer = AnyConsumer({"group.id": group, "log_level": 0})  # it connects to nothing
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def check(name: str, value: Any) -> None:
    try:
        AnyProducer({**_ALONE, name: value})
    except (KafkaException, TypeError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else error
        raise ValueError(f'Expected an option of librdkafka, got "{name}": {reason}') from error


def consumer(servers: str, options: Mapping[str, Any], group: str | None, member: str | None) -> Consumer:
    with _connecting(servers):
        return ConfluentConsumer(servers, options, group, member)


def producer(servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None) -> Producer:
    with _connecting(servers):
        return ConfluentProducer(servers, options, name, seconds, batch)


def create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    new = [NewTopic(topic, -1 if count is None else count) for topic, count in partitions.items()]
    with _connecting(servers):
        admin = _connected(servers, options)
        for topic, made in admin.create_topics(new, request_timeout=COMMIT_SECONDS).items():
            try:
                made.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    reason = describe_error(error)
                    raise OSError(f'the brokers refused to create the topic "{topic}": {reason}') from error


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    with _connecting(servers):
        admin = _connected(servers, options)  # while it lives, there is an answer
        (answer,) = admin.describe_configs([asked], request_timeout=ANSWER_SECONDS).values()
        try:
            return {name: setting.value for name, setting in answer.result().items()}
        except KafkaException:  # such as for want of a permission
            return {}


@contextmanager
def _connecting(servers: str) -> Iterator[None]:
    """Raise the errors of librdkafka as errors of options, or of brokers that are unavailable."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() == KafkaError._INVALID_ARG:
            raise ValueError(f"Expected options that can be combined, got {describe_error(error)}") from error
        raise UnavailableError(f"Expected a Kafka broker at {servers}, got {describe_error(error)}") from error


def _connected(servers: str, options: Mapping[str, Any]) -> AdminClient:
    reasons: deque[KafkaError] = deque(maxlen=10)
    admin = AdminClient(settings(servers, options) | {"error_cb": reasons.append})
    reach(admin, servers, options, reasons)
    return admin
