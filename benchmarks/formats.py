"""Fields from one value of a topic: processor time by format, beside orjson, csv and confluent-kafka."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable
from typing import Any

import orjson
from confluent_kafka.schema_registry import Schema, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_writer
from google.protobuf.json_format import MessageToDict

from benchmarks.common import arguments, interleaved, processor_seconds, ratio, show
from streamkernel.connectors.formats import CsvRow, JsonLines, ValueDecoder
from streamkernel.connectors.schema_registry import Registry, protobuf, registry_reader

NAMES = [f"x{i}" for i in range(10)]
RECORD: dict[str, Any] = {**{name: 0.1 + i for i, name in enumerate(NAMES)}, "y": "yes"}
VALUES, RUNS = 3000, 7
BY_TOPIC = {"subject.name.strategy": topic_subject_name_strategy}
AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": n, "type": ["null", "double"]} for n in NAMES] + [{"name": "y", "type": "string"}],
}
DOUBLES = "".join(f"double {name} = {i}; " for i, name in enumerate(NAMES, 1))
PROTO = f'syntax = "proto3"; message Click {{ string y = 11; {DOUBLES} }}'
CHECKED = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {**{name: {"type": "number"} for name in NAMES}, "y": {"type": "string"}},
}


def jobs() -> dict[str, tuple[bytes, Callable[[bytes], Any], Callable[[bytes], Any]]]:
    """Return a value of each format, what reads it here, and what reads it elsewhere."""
    registry, context = Registry("mock://here"), SerializationContext("t", MessageField.VALUE)
    client: Any = registry._client
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(AVRO), RECORD)
    message = protobuf.message_class(protobuf.compiled({"click.proto": PROTO}, "click.proto"), "Click")
    contents = {
        "avro": (json.dumps(AVRO), "AVRO", stream.getvalue()),
        "protobuf": (PROTO, "PROTOBUF", b"\0" + message(**RECORD).SerializeToString()),
        "json-schema": (json.dumps(CHECKED), "JSON", orjson.dumps(RECORD)),
    }
    theirs: dict[str, Any] = {
        "avro": AvroDeserializer(client, conf=BY_TOPIC),
        "protobuf": ProtobufDeserializer(message, BY_TOPIC),
        "json-schema": JSONDeserializer(None, schema_registry_client=client, conf=BY_TOPIC),
    }
    found: dict[str, Any] = {
        "json": (orjson.dumps(RECORD), JsonLines().parse, orjson.loads),
        "csv": (
            ",".join(map(str, RECORD.values())).encode(),
            ValueDecoder(CsvRow(list(RECORD))),
            lambda value: next(csv.reader(io.StringIO(value.decode()))),
        ),
    }
    for form, (text, kind, content) in contents.items():
        number = client.register_schema(form, Schema(text, kind))
        read: Callable[..., Any] = theirs[form]
        if form == "protobuf":
            found_by = lambda value, read=read: MessageToDict(read(value, context))  # noqa: E731
        else:
            found_by = lambda value, read=read: read(value, context)  # noqa: E731
        value = b"\0" + number.to_bytes(4, "big") + content
        found[form] = value, ValueDecoder(registry_reader(registry, form)), found_by
    return found


def many(decode: Callable[[bytes], Any], value: bytes) -> Callable[[], float]:
    """Return a function that decodes a value many times, and returns the microseconds for one."""

    def run() -> None:
        for _ in range(VALUES):
            decode(value)

    return lambda: 1e6 * processor_seconds(run) / VALUES


def main() -> None:
    arguments(__doc__)
    rows = []
    for form, (value, ours, theirs) in jobs().items():
        ours(value), theirs(value)
        own, other = interleaved(RUNS, many(ours, value), many(theirs, value))
        times = [f"{statistics.median(times):.1f}" for times in (own, other)]
        rows.append([form, str(len(value)), *times, f"{ratio(own, other):.2f}"])
    show("Microseconds for one value with 10 numbers and a label", ["format", "bytes", "ours", "peer", "ratio"], rows)


if __name__ == "__main__":
    main()
