"""Encoding of values with the id of their schema in front; the schema is registered before the first value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

import orjson

from streamkernel.connectors.json_text import RECORD, printable, to_json
from streamkernel.connectors.schema_registry import HEAD, Registry
from streamkernel.connectors.schema_registry import KINDS as NAMES_OF_FORMATS


def converted(record: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a record without its missing values, and with Python's own types.

    `fields` are the kinds of the fields, one of `streamkernel.connectors.schema_registry.writing.KINDS` for each name.
    Raise `ValueError` if the schema lacks a field, or has another kind for it.

    Examples
    --------
    >>> kinds = {"label": "value", "probabilities": "numbers", "position": "json"}
    >>> converted({"label": 2**70, "probabilities": {True: 1, None: 0}, "position": [3, "x"]}, kinds)
    {'label': '1180591620717411303424', 'probabilities': {'true': 1.0, 'null': 0.0}, 'position': '[3,"x"]'}
    >>> converted({"label": [1]}, kinds)
    Traceback (most recent call last):
    ValueError: Expected a label or a number, got list - at field "label"
    """
    fitting: dict[str, Any] = {}
    for name, value in record.items():
        if name not in fields:
            raise ValueError(f'Expected fields of the schema, got "{name}"')
        if value is None:
            continue
        kind = KINDS[fields[name]]
        try:
            fitting[name] = kind.convert(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ValueError(f'Expected {kind.expected}, got {type(value).__name__} - at field "{name}"') from error
    return fitting


def _value(value: Any) -> bool | int | float | str:
    """Return a label or a number; what has no type of its own in the schema is text."""
    value = _plain(value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, (bool, float)):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    text = to_json(value, RECORD).decode()
    if text[0] in "[{n":
        raise TypeError(text)
    return str(orjson.loads(text)) if text[0] == '"' else text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return printable(value)


def _integer(value: Any) -> int:
    value = _plain(value)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(value)
    return int(value)


def _boolean(value: Any) -> bool:
    value = _plain(value)
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _numbers(value: Any) -> dict[str, float]:
    return {_name(label): float(number) for label, number in value.items()}


def _name(label: Any) -> str:
    """Return a label as the key of a JSON object."""
    return printable(label) if isinstance(label, str) else next(iter(orjson.loads(to_json({label: 0}, RECORD))))


def _plain(value: Any) -> Any:
    """Return Python's own value for one of NumPy's."""
    return value.item() if hasattr(value, "item") else value


Write = Callable[[Mapping[str, Any]], bytes]
"""Encodes fields as the bytes after the id."""

NAME, NAMESPACE = "Prediction", "streamkernel"
"""Name of the record, and of its namespace or package."""

VALUE = ["boolean", "long", "double", "string"]
"""The types of Avro that a value can have."""

JSON_VALUE = ["boolean", "number", "string"]
"""The types of JSON that a value can have."""


class Kind(NamedTuple):
    """A kind of field: what it expects, the conversion to it, and its types in each format."""

    expected: str
    convert: Callable[[Any], Any]
    avro: list[Any]
    protobuf: str
    json: dict[str, Any]


KINDS = {
    "text": Kind("text", _text, ["null", "string"], "optional string", {"type": ["string", "null"]}),
    "integer": Kind(
        "an integer of 64 bits", _integer, ["null", "long"], "optional int64", {"type": ["integer", "null"]}
    ),
    "number": Kind("a number", float, ["null", "double"], "optional double", {"type": ["number", "null"]}),
    "boolean": Kind("true or false", _boolean, ["null", "boolean"], "optional bool", {"type": ["boolean", "null"]}),
    "value": Kind("a label or a number", _value, ["null", *VALUE], "Value", {"type": [*JSON_VALUE, "null"]}),
    "values": Kind(
        "labels or numbers",
        lambda values: list(map(_value, values)),
        ["null", {"type": "array", "items": VALUE}],
        "repeated Value",
        {"type": ["array", "null"], "items": {"type": JSON_VALUE}},
    ),
    "numbers": Kind(
        "numbers by label",
        _numbers,
        ["null", {"type": "map", "values": "double"}],
        "map<string, double>",
        {"type": ["object", "null"], "additionalProperties": {"type": ["number", "null"]}},
    ),
    "json": Kind(
        "values that JSON can hold",
        lambda value: to_json(value, RECORD).decode(),
        ["null", "string"],
        "optional string",
        {"type": ["string", "null"]},
    ),
}
"""Kinds of fields: text, an integer, a number, true or false, a label or number, several of these, numbers by name, and
JSON as text."""

MEMBERS = ("truth", "bool"), ("integer", "int64"), ("number", "double"), ("text", "string")
"""Variants of a value in Protobuf: names and types of fields, one of which is set."""


def schema_and_write(form: str, fields: Mapping[str, str]) -> tuple[str, Write]:
    """Return a schema in the language of a format, and a function from a record to bytes of this schema.

    The function raises a `ValueError` for a record that does not fit the schema. `fields` are the kinds of the fields.
    """
    make = {"avro": _avro, "protobuf": _protobuf, "json-schema": _json_schema}[form]
    schema, write = make(fields)
    return schema, lambda record: write(converted(record, fields))


def _avro(fields: Mapping[str, str]) -> tuple[str, Write]:
    import fastavro

    members = [{"name": name, "type": KINDS[kind].avro, "default": None} for name, kind in fields.items()]
    schema = {"type": "record", "name": NAME, "namespace": NAMESPACE, "fields": members}
    parsed = fastavro.parse_schema(schema)

    def write(record: Mapping[str, Any]) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, record)
        return stream.getvalue()

    return json.dumps(schema), write


def _json_schema(fields: Mapping[str, str]) -> tuple[str, Write]:
    members = {name: KINDS[kind].json for name, kind in fields.items()}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": NAME, "type": "object"}
    return json.dumps({**head, "properties": members, "additionalProperties": False}), orjson.dumps


def _protobuf(fields: Mapping[str, str]) -> tuple[str, Write]:
    """Return the text of the schema, and a function that encodes its first message."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message_factory import GetMessageClass

    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{NAMESPACE}/{NAME}.proto", package=NAMESPACE, syntax="proto3")
    record, value = file.message_type.add(name=NAME), file.message_type.add(name="Value")
    value.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(MEMBERS, 1):
        value.field.add(name=name, number=number, type=types.Type.Value(f"TYPE_{kind.upper()}"), oneof_index=0)
    for number, (name, kind) in enumerate(fields.items(), 1):
        if kind == "numbers":
            entry = record.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=types.TYPE_STRING)
            entry.field.add(name="value", number=2, type=types.TYPE_DOUBLE)
            of = f".{NAMESPACE}.{NAME}.{entry.name}"
            record.field.add(
                name=name, number=number, type=types.TYPE_MESSAGE, label=types.LABEL_REPEATED, type_name=of
            )
        elif kind in ("value", "values"):
            label = types.LABEL_REPEATED if kind == "values" else types.LABEL_OPTIONAL
            of = f".{NAMESPACE}.Value"
            record.field.add(name=name, number=number, type=types.TYPE_MESSAGE, label=label, type_name=of)
        else:
            number_of = types.Type.Value(f"TYPE_{KINDS[kind].protobuf.removeprefix('optional ').upper()}")
            at = len(record.oneof_decl)
            record.oneof_decl.add(name=f"_{name}")
            record.field.add(name=name, number=number, type=number_of, oneof_index=at, proto3_optional=True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message_class: Any = GetMessageClass(pool.FindMessageTypeByName(f"{NAMESPACE}.{NAME}"))

    def write(record: Mapping[str, Any]) -> bytes:
        message = message_class()
        for name, item in record.items():
            kind = fields[name]
            if kind == "numbers":
                getattr(message, name).update(item)
            elif kind == "value":
                setattr(getattr(message, name), _member_of(item), item)
            elif kind == "values":
                for one in item:
                    setattr(getattr(message, name).add(), _member_of(one), one)
            else:
                setattr(message, name, item)
        encoded: bytes = message.SerializeToString()
        return b"\0" + encoded  # the first message of the schema

    return _proto_text(fields), write


def _member_of(value: Any) -> str:
    kinds = {bool: "truth", int: "integer", float: "number", str: "text"}
    return kinds[type(value)]


def _proto_text(fields: Mapping[str, str]) -> str:
    """Return the schema in Protobuf's own language."""
    members = [f"  {KINDS[kind].protobuf} {name} = {number};" for number, (name, kind) in enumerate(fields.items(), 1)]
    values = [f"    {kind} {name} = {number};" for number, (name, kind) in enumerate(MEMBERS, 1)]
    lines = [
        'syntax = "proto3";', f"package {NAMESPACE};", "", f"message {NAME} {{", *members, "}", "",
        "message Value {", "  oneof kind {", *values, "  }", "}",
    ]  # fmt: skip
    return "\n".join([*lines, ""])


class ValueWriter:
    """Writes values of one schema, which `write` encodes, under a subject of a registry."""

    def __init__(self, registry: Registry, subject: str, form: str, schema: str, write: Write) -> None:
        self._registry, self._subject, self._kind, self._schema = registry, subject, NAMES_OF_FORMATS[form], schema
        self._write = write
        self._head = b""

    def open(self) -> None:
        """Register the schema, unless it is; errors are those of `Registry.register`."""
        if not self._head:
            self._head = HEAD.pack(0, self._registry.register(self._subject, self._schema, self._kind))

    def __call__(self, record: Mapping[str, Any]) -> bytes:
        """Return the bytes of a record, or raise a `ValueError` if it does not fit the schema."""
        self.open()
        return self._head + self._write(record)


def record_writer(registry: Registry, topic: str, form: str, fields: Mapping[str, str]) -> ValueWriter:
    """Return the writer of records to a topic, whose name with ``-value`` is the subject; `fields` are the kinds."""
    return ValueWriter(registry, f"{topic}-value", form, *schema_and_write(form, fields))
