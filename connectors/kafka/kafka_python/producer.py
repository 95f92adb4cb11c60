"""kafka-python's producer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.partitioner import DefaultPartitioner

from connectors.base import CommitRefusedError, UnavailableError
from connectors.kafka.clients import COMMIT_SECONDS, Partition, Producer
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
        self._last: Any = None  # what became of the last record that was sent
        self._append: Any = _append_of(self._kafka)
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
        headers: Sequence[tuple[str, bytes]],
        partition: int | None = None,
    ) -> None:
        try:
            if self._is_transactional and not self._open:
                self._kafka.begin_transaction()
                self._open = True
            self._last = self._kafka.send(topic, value, key=key, headers=list(headers), partition=partition)
            self._last.add_errback(self._keep_error)
        except KafkaError as error:
            raise CommitRefusedError(describe_error(error)) from error

    def send_all(self, topic: str, values: Iterable[bytes], keys: Iterable[bytes | None]) -> None:
        partition: TopicPartition | None = None
        for value, key in zip(values, keys, strict=True):
            if self._append is None or key is not None:
                self.send(topic, value, key, ())
            elif partition is None or partition.partition is None or not self._append_to(partition, value):
                partition = self._sent_to(topic, value)

    def _sent_to(self, topic: str, value: bytes) -> TopicPartition:
        """Send a record without a key, and return to which partition."""
        self.send(topic, value, None, ())
        return self._last._produce_future.topic_partition

    def _append_to(self, partition: TopicPartition, value: bytes) -> bool:
        """Append a record to the batch of a partition to which one was just sent; return whether there was room.

        The client's own `send` does the same, and before that looks again at all that cannot have changed since.
        """
        try:
            future, is_full, _, _ = self._append(partition, None, None, value, [], abort_on_new_batch=True)
        except KafkaError as error:
            raise CommitRefusedError(describe_error(error)) from error
        if future is None:
            return False
        future.add_errback(self._keep_error)
        if is_full:
            self._kafka._sender.wakeup()
        return True

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


def _append_of(producer: KafkaProducer) -> Any:
    """Return the function of a client by which records join a batch; ``None`` if it is another one than we know, or
    partitions are chosen in another way than at random.
    """
    append = getattr(getattr(producer, "_accumulator", None), "append", None)
    is_known = append is not None and "abort_on_new_batch" in inspect.signature(append).parameters
    is_known = is_known and hasattr(producer, "_sender")
    return append if is_known and isinstance(producer.config["partitioner"], DefaultPartitioner) else None
