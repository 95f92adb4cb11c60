"""Topics as sinks: of predictions, and of records that could not be processed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, ClassVar, Protocol

import orjson

from streamkernel.connectors.base import Event, Position, RecordsRefusedError, Refusal
from streamkernel.connectors.dead_letters import record_text
from streamkernel.connectors.interfaces import Sink
from streamkernel.connectors.json_text import Refused, all_to_json, to_json
from streamkernel.connectors.kafka.clients import Headers, OutRecord
from streamkernel.connectors.kafka.writer import TopicLimits, Writer, size_of

LONGEST = {"value": 900_000, "key": 25_000, "headers": 25_000}
"""Largest size in bytes of each part of a dead letter; together they fit into the usual limits."""

USUAL = 1_000_000
"""Size of a record in bytes that clients and brokers accept by default; for smaller limits, all parts are smaller."""

LONGEST_TEXT = 10_000
"""Largest size of an added header in bytes."""

CONNECT = "__connect.errors."
"""Prefix of Kafka Connect's headers of dead letters."""

STREAMS = "__streams.errors."
"""How the names of Kafka Streams' headers of dead letters begin (KIP-1034)."""

OWN = "streamkernel."
"""Prefix of the other headers."""

_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


class _Topic(Sink):
    """An output topic, which is not truncated: committed records stay in it, and uncommitted ones are not visible."""

    topic: str
    keeps_committed: ClassVar[bool] = True

    def __init__(self, writer: Writer, topic: str) -> None:
        self._writer, self.topic = writer, topic

    def open(self) -> None:
        """Check that the topic exists, or raise `UnavailableError`."""
        self._writer.open(self.topic)

    def prepare(self, deadline: float = math.inf) -> Position:
        """Wait until all records are written; a topic cannot be truncated to a position."""
        self._writer.flush(deadline)
        return None

    def flush(self) -> Position:
        """Wait until all records are written, as `prepare` does."""
        return self.prepare()

    def close(self) -> None:
        """Release the client."""
        self._writer.close()


class Serializer(Protocol):
    """Writes the values of records in another format than JSON."""

    def open(self) -> None:
        """Prepare for the first record, or raise `UnavailableError`; may be called again."""

    def __call__(self, record: Mapping[str, Any]) -> bytes:
        """Return the bytes of a record."""


class KafkaSink(_Topic):
    """A topic of JSON objects, or of values in another format.

    Parameters
    ----------
    writer : Writer
        :meth:`Options.producer() <streamkernel.connectors.kafka.options.Options.producer>`, whose records are visible
        at once, or :class:`~streamkernel.connectors.kafka.writer.KafkaTransactions`, whose records are visible to
        ``read_committed`` consumers after the commit.
    topic : str
        The name of the topic.
    values : callable or None, default None
        The serializer of records, whose method ``open`` is called first; JSON by default.
    """

    def __init__(self, writer: Writer, topic: str, values: Serializer | None = None) -> None:
        super().__init__(writer, topic)
        self._values = values

    def open(self) -> None:
        """Check that the topic exists, and prepare the values, or raise `UnavailableError`."""
        super().open()
        if self._values is not None:
            self._values.open()

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write a record with the key of the record that it was made from, as `write_all` does."""
        self.write_all([record], [key])

    def write_all(
        self,
        records: Iterable[Mapping[str, Any]],
        keys: Iterable[bytes | None],
        headers: Iterable[Headers] | None = None,
    ) -> None:
        """Write records, each with a key and perhaps headers.

        Raises
        ------
        RecordsRefusedError
            If the format has no value for a record, or the topic does not take it; the others are written.
        """
        lines = list(records)
        rows, origins, refused = list[OutRecord](), list[Mapping[str, Any]](), list[Refused]()
        limits = self._writer.limits(self.topic)
        for line, value, key, of in zip(
            lines, self._encode(lines), keys, headers or repeat((), len(lines)), strict=True
        ):
            if isinstance(value, str):
                refused.append((line, key, value))
            elif reason := self._refusal(line, value, key, of, limits):
                refused.append((line, key, reason))
            else:
                rows.append((value, key, of))
                origins.append(line)
        self._writer.send_all(self.topic, rows, origins)
        if refused:
            raise RecordsRefusedError(refused)

    def _encode(self, lines: Sequence[Mapping[str, Any]]) -> Sequence[bytes | str]:
        """Return the value of each record, or why there is none."""
        if self._values is None:
            with suppress(TypeError):
                return all_to_json(lines, _JSON)
        return [self._value_of(line) for line in lines]

    def _value_of(self, line: Mapping[str, Any]) -> bytes | str:
        try:
            return to_json(line, _JSON) if self._values is None else self._values(line)
        except (TypeError, ValueError) as error:
            return f"Expected a prediction that the format can represent, got {error} - for topic {self.topic}"

    def _refusal(
        self, line: Mapping[str, Any], value: bytes, key: bytes | None, headers: Headers, limits: TopicLimits
    ) -> str:
        """Return why a record is not written, or an empty string."""
        if (size := size_of(value, key, headers)) > limits.largest:
            return (
                f"Expected a prediction of at most {limits.largest:,} bytes, got {size:,}: {len(value):,} of value, "
                f"{len(key or b''):,} of key{_of_headers(headers)} - for topic {self.topic}"
            )
        if key is None and limits.needs_keys:
            return f"Expected a prediction with a key, since the topic is compacted, got none - for topic {self.topic}"
        return self._writer.refusal(self.topic, line)


class KafkaDeadLetters(_Topic):
    """A topic of records that could not be processed: unchanged key, value and headers, and headers with the reason.

    Headers have the names of Kafka Connect, such as ``__connect.errors.topic``; other names begin with
    ``streamkernel.``. A value longer than `LONGEST` is truncated; a longer key, and headers whose sum is longer, are
    left out. Headers name the truncated part and its size.

    Parameters
    ----------
    writer : Writer
        As for :class:`KafkaSink`.
    topic : str
        The name of the topic.
    """

    def open(self) -> None:
        """Check that the topic exists, or raise `UnavailableError`.

        Raises
        ------
        ValueError
            If the topic is compacted: it would keep the last dead letter of each key.
        """
        super().open()
        if self._writer.limits(self.topic).needs_keys:
            raise ValueError(f"Expected a topic for dead letters without compaction, got a compacted one: {self.topic}")

    def write(  # type: ignore[override]
        self, event: Event, refusal: Refusal, member: str | None = None
    ) -> None:
        """Write one event with the reason and the name of the process, as for :class:`DeadLetters`."""
        value = event.raw or (
            b"" if event.record is None else record_text(event.record).encode(errors="backslashreplace")
        )
        sizes = {
            "value": len(value),
            "key": len(event.key or b""),
            "headers": sum(len(name) + len(content or b"") for name, content in event.headers),
        }
        largest = self._writer.limits(self.topic).largest
        share = min(1.0, largest / USUAL)
        cut = {part: size for part, size in sizes.items() if size > share * LONGEST[part]}
        added = _headers(event, refusal, member)
        if cut:
            added[f"{OWN}truncated"] = ",".join(cut)
            added |= {f"{OWN}{part}.size": str(size) for part, size in cut.items()}
        kept = () if "headers" in cut else event.headers
        headers = [(name, content or b"") for name, content in kept]  # kafka-python writes none without a value
        headers += [(name, _bytes(text, int(share * LONGEST_TEXT))) for name, text in added.items()]
        key = None if "key" in cut else event.key
        bytes_left = max(0, largest - size_of(b"", key, headers))
        self._writer.send(self.topic, value[: min(bytes_left, LONGEST["value"])], key, headers)


def _of_headers(headers: Headers) -> str:
    size = sum(len(name) + len(content or b"") for name, content in headers)
    return f", {size:,} of headers" if size else ""


def _headers(event: Event, refusal: Refusal, member: str | None) -> dict[str, str]:
    """Return the headers that a dead letter has in addition to the headers of its record."""
    headers = {
        (f"{CONNECT}{name}" if name in ("topic", "partition", "offset") else f"{OWN}{name}"): _text(value)
        for name, value in event.location.items()
    }
    for name in ("topic", "partition", "offset"):
        if f"{CONNECT}{name}" in headers:
            headers[f"{STREAMS}{name}"] = headers[f"{CONNECT}{name}"]
    headers[f"{STREAMS}exception"], headers[f"{STREAMS}message"] = refusal.exception, refusal.reason
    headers[f"{CONNECT}connector.name"] = "streamkernel"
    headers[f"{CONNECT}stage"] = "VALUE_CONVERTER" if event.record is None and refusal.kind != "output" else "TASK_PUT"
    headers[f"{CONNECT}exception.class.name"] = refusal.exception
    headers[f"{CONNECT}exception.message"] = refusal.reason
    headers[f"{OWN}kind"] = refusal.kind
    return headers if member is None else headers | {f"{OWN}member": member}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value, _JSON).decode()


def _bytes(text: str, longest: int) -> bytes:
    """Return text as UTF-8, truncated after a whole character."""
    return text.encode(errors="backslashreplace")[:longest].decode(errors="ignore").encode()
