"""kafka-python's producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from connectors.base import CommitRefusedError, UnavailableError
from connectors.kafka.clients import COMMIT_SECONDS, Headers, Partition, Producer, with_headers
from connectors.kafka.kafka_python.batches import by_partition, extend
from connectors.kafka.kafka_python.client_mapping import with_note
from connectors.kafka.kafka_python.connecting import connect
from connectors.kafka.timeouts import describe_error, run_within

BATCHES = {"linger_ms": 50, "batch_size": 1 << 18}
"""Default batching; a flush does not wait for a batch to fill."""


class PythonProducer(Producer):
    """A :class:`~connectors.kafka.clients.Producer`.

    Parameters
    ----------
    servers, options, name, seconds
        As for :meth:`~connectors.kafka.clients.Client.producer`.
    """

    def __init__(self, servers: str, options: Mapping[str, Any], name: str | None, seconds: float) -> None:
        own: dict[str, Any] = {"acks": "all", "enable_idempotence": True}
        if name is not None:
            own |= {"transactional_id": name, "transaction_timeout_ms": int(1000 * seconds)}
        self._kafka = connect(KafkaProducer, servers, {**BATCHES, **options}, **own)
        self._open = False
        self._is_transactional = name is not None
        self._error: Exception | None = None
        if name is not None:
            try:
                self._kafka.init_transactions()
            except KafkaError as error:
                self.close()
                reason = describe_error(error)
                raise UnavailableError(f"Expected Kafka to accept this client as {name}, got {reason}") from error

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: Headers,
        partition: int | None = None,
    ) -> None:
        with _refusals():
            self._send(topic, value, key, headers, partition)

    def send_all(
        self,
        topic: str,
        values: Iterable[bytes],
        keys: Iterable[bytes | None],
        headers: Iterable[Headers] | None = None,
    ) -> None:
        records = with_headers(values, keys, headers)
        with _refusals():
            for partition, those in by_partition(self._kafka, topic, records).items():
                done = 0
                while done < len(those):
                    first = self._send(topic, *those[done], partition=partition)
                    done += 1 + extend(self._kafka, first, those[done + 1 :], self._keep_error)

    def _send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Any:
        """Write a record, and return its future."""
        if self._is_transactional and not self._open:
            self._kafka.begin_transaction()
            self._open = True
        sent = self._kafka.send(topic, value, key=key, headers=list(headers), partition=partition)
        return sent.add_errback(self._keep_error)

    def flush(self) -> None:
        try:
            self._kafka.flush(timeout=COMMIT_SECONDS)
        except KafkaTimeoutError as error:
            # A client whose partition's leader has gone may wait without end, and a new one does not.
            kind = CommitRefusedError if self._is_transactional else TimeoutError
            raise kind(f"Expected the brokers to respond within {COMMIT_SECONDS:g} s: {error}") from error
        except KafkaError as error:
            raise CommitRefusedError(describe_error(error)) from error
        if self._error is not None:
            raise CommitRefusedError(describe_error(self._error)) from self._error

    def commit(self, parts: Sequence[tuple[Any, Mapping[Partition, int], str]]) -> None:
        def task() -> None:
            if not self._open:
                self._kafka.begin_transaction()
            self._kafka.flush()
            for group, offsets, note in parts:
                if offsets:
                    self._kafka.send_offsets_to_transaction(with_note(offsets, note), group)
            self._kafka.commit_transaction()

        error = run_within(COMMIT_SECONDS, task)
        self._open = False
        if error is not None:
            raise CommitRefusedError(describe_error(error)) from error

    def close(self) -> None:
        run_within(5.0, lambda: self._kafka.close(timeout=2.0))

    def _keep_error(self, error: Exception) -> None:
        self._error = error


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise the errors of kafka-python as `CommitRefusedError`."""
    try:
        yield
    except KafkaError as error:
        raise CommitRefusedError(describe_error(error)) from error
