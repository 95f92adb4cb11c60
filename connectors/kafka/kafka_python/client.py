"""kafka-python as :class:`~streamkernel.connectors.kafka.clients.Client`, and its producer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, NewTopic
from kafka.errors import (
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownError,
)

from streamkernel.connectors.base import CommitRefusedError, UnavailableError
from streamkernel.connectors.kafka.clients import (
    COMMIT_SECONDS,
    Headers,
    OutRecord,
    Partition,
    Producer,
    Undelivered,
    describe_error,
    run_within,
)
from streamkernel.connectors.kafka.kafka_python.connecting import Tokens, connect, is_tried, private, with_note
from streamkernel.connectors.kafka.kafka_python.consumer import PythonConsumer

SEPARATOR = "_"

PATHS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")

FUNCTIONS = {"sasl_oauth_token_provider": Tokens}


BATCHES = {"linger_ms": 50, "batch_size": 1 << 18}
"""Default batching; a flush does not wait for a batch to fill."""

OTHER_IN_BATCH = "invalid records"
"""Part of the error of a record if another one in the same batch is invalid."""


class PythonProducer(Producer):
    """A :class:`~streamkernel.connectors.kafka.clients.Producer` of kafka-python."""

    def __init__(
        self, servers: str, options: Mapping[str, Any], name: str | None, seconds: float, batch: int | None
    ) -> None:
        ours: dict[str, Any] = {"acks": "all", "enable_idempotence": True}
        if name is not None:
            ours |= {"transactional_id": name, "transaction_timeout_ms": int(1000 * seconds)}
        options = {**BATCHES, **options}
        if batch is not None:
            ours["batch_size"] = min(batch, int(options["batch_size"]))
        self._kafka = connect(KafkaProducer, servers, options, **ours)
        self._open = False
        self._is_transactional = name is not None
        self._error: Exception | None = None
        self.undelivered: list[Undelivered] = []
        if name is not None:
            try:
                self._kafka.init_transactions()
            except KafkaError as error:
                self.close()
                reason = describe_error(error)
                raise UnavailableError(f"Expected Kafka to accept this client as {name}, got {reason}") from error

    def send(self, topic: str, value: bytes, key: bytes | None, headers: Headers, partition: int | None = None) -> None:
        with _refusals():
            self._send(topic, (value, key, headers), None, partition)

    def send_all(self, topic: str, records: Sequence[OutRecord], origins: Sequence[Any] | None = None) -> None:
        names, of = private(), origins or [None] * len(records)
        with _refusals():
            if names is None or not is_tried():
                for record, origin in zip(records, of, strict=True):
                    self._send(topic, record, origin, None)
                return
            for partition, places in names.by_partition(self._kafka, topic, records).items():
                done = 0
                while done < len(places):
                    place = places[done]
                    first = self._send(topic, records[place], of[place], partition)
                    done += 1
                    if first is not None and done < len(places):
                        done += names.extend(self._kafka, first, *self._rest(topic, records, places[done:], of))

    def _rest(
        self, topic: str, records: Sequence[OutRecord], places: Sequence[int], origins: Sequence[Any]
    ) -> tuple[list[OutRecord], Callable[[int, Exception], None]]:
        """Return records, and a function that keeps the error of one of them."""
        rest = [records[place] for place in places]
        return rest, lambda i, error: self._keep(topic, rest[i], origins[places[i]], error)

    def _send(self, topic: str, record: OutRecord, origin: Any, partition: int | None) -> Any:
        """Write a record, and return its future, or ``None`` if it is too large."""
        if self._is_transactional and not self._open:
            self._kafka.begin_transaction()
            self._open = True
        value, key, headers = record
        try:
            sent = self._kafka.send(topic, value, key=key, headers=list(headers), partition=partition)
        except MessageSizeTooLargeError as error:
            self._keep(topic, record, origin, error)
            return None
        return sent.add_errback(partial(self._keep, topic, record, origin))

    def flush(self, seconds: float = COMMIT_SECONDS) -> None:
        end = monotonic() + seconds
        try:
            while True:
                try:
                    self._kafka.flush(timeout=max(end - monotonic(), 0.0))
                    break
                except UnknownError:  # a batch was split, and its parts have yet to be written
                    continue
        except KafkaTimeoutError as error:
            # A client whose partition's leader has gone may wait without end, and a new one does not.
            kind = CommitRefusedError if self._is_transactional else TimeoutError
            raise kind(f"Expected the brokers to respond within {seconds:g} s: {error}") from error
        except KafkaError as error:
            raise CommitRefusedError(describe_error(error)) from error
        error_of_record, self._error = self._error, None
        if error_of_record is not None:
            raise CommitRefusedError(describe_error(error_of_record)) from error_of_record

    def commit(
        self, parts: Sequence[tuple[Any, Mapping[Partition, int], str]], seconds: float = COMMIT_SECONDS
    ) -> None:
        def task() -> None:
            if not self._open:
                self._kafka.begin_transaction()
            self._kafka.flush()
            for group, offsets, note in parts:
                if offsets:
                    self._kafka.send_offsets_to_transaction(with_note(offsets, note), group)
            self._kafka.commit_transaction()

        error = run_within(seconds, task)
        self._open = False
        if error is not None:
            raise CommitRefusedError(describe_error(error)) from error

    def close(self) -> None:
        run_within(5.0, lambda: self._kafka.close(timeout=2.0))

    def _keep(self, topic: str, record: OutRecord, origin: Any, error: Exception) -> None:
        self._error = error
        code = InvalidRecordError.errno if OTHER_IN_BATCH in str(error) else getattr(error, "errno", -1)
        self.undelivered.append(Undelivered(topic, record, origin, code, describe_error(error)))


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise the errors of kafka-python as `CommitRefusedError`."""
    try:
        yield
    except KafkaError as error:
        raise CommitRefusedError(describe_error(error)) from error


consumer, producer = PythonConsumer, PythonProducer


def check(name: str, value: Any) -> None:
    if name in ("group_protocol", "partition_assignment_strategy"):
        needs = 'it needs client = "confluent-kafka"'
        raise ValueError(f'Expected an option that is passed through, got "{name}" - {needs}')
    options = KafkaConsumer.DEFAULT_CONFIG.keys() | KafkaProducer.DEFAULT_CONFIG.keys()
    if name not in options:
        near = difflib.get_close_matches(name, sorted(options), n=1)
        hint = f' - did you mean "{near[0]}"?' if near else ""
        raise ValueError(f'Expected an option of kafka-python, got "{name}"{hint}')


def create_topics(servers: str, options: Mapping[str, Any], partitions: Mapping[str, int | None]) -> None:
    with closing(connect(KafkaAdminClient, servers, options)) as admin:
        for topic, count in partitions.items():
            try:
                with suppress(TopicAlreadyExistsError):
                    new = NewTopic(topic, -1 if count is None else count)
                    admin.create_topics([new], timeout_ms=int(1000 * COMMIT_SECONDS))
            except KafkaError as error:
                raise OSError(f'the brokers refused to create the topic "{topic}": {describe_error(error)}') from error


def topic_settings(servers: str, options: Mapping[str, Any], topic: str) -> Mapping[str, str]:
    with closing(connect(KafkaAdminClient, servers, options)) as admin:
        try:
            described = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        except KafkaError:  # such as for want of a permission
            return {}
    return {name: setting["value"] for name, setting in described["topic"].get(topic, {}).items()}
