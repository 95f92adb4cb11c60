"""Values in Avro, Protobuf and JSON Schema: each of streamkernel and confluent-kafka reads what the other writes."""

from __future__ import annotations

import datetime as dt
import functools
import json
import uuid
from decimal import Decimal

import pytest
import registries
from confluent_kafka.schema_registry import Schema, SchemaReference, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from streamkernel.connectors import UnavailableError
from streamkernel.connectors.formats import ValueDecoder
from streamkernel.connectors.schema_registry import Registry, registry_reader
from streamkernel.connectors.schema_registry import protobuf as ours
from streamkernel.connectors.schema_registry.writing import KINDS, record_writer

BY_TOPIC = {"subject.name.strategy": topic_subject_name_strategy}


@pytest.fixture(scope="module", params=["small", pytest.param("apicurio", marks=pytest.mark.java)])
def url(request, tmp_path_factory):
    if request.param == "small":
        with registries.small() as registry:
            yield registry.url
    else:
        with registries.apicurio(tmp_path_factory.mktemp("apicurio")) as address:
            yield address


@pytest.fixture
def theirs(url):
    return SchemaRegistryClient({"url": url})


def context(topic=None):
    return SerializationContext(topic or uuid.uuid4().hex, MessageField.VALUE)


def decoder(url, form, reader_schema=None, **options):
    return ValueDecoder(registry_reader(Registry(url), form, reader_schema), **options)


def fields_of(*fields, name="Click"):
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


CLICK = fields_of(
    {"name": "id", "type": "long"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["BUY", "LOOK"]}},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "score", "type": ["null", "double"], "default": None},
    {"name": "user", "type": {"type": "record", "name": "User", "fields": [{"name": "age", "type": "int"}]}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "sizes", "type": {"type": "array", "items": "float"}},
)
DAY = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def test_avro_with_all_its_types(url, theirs):
    click = {
        "id": 7, "price": Decimal("9.90"), "at": DAY, "day": DAY.date(), "kind": "BUY", "note": None, "score": 0.5,
        "user": {"age": 31}, "counts": {"a": 2}, "sizes": [1.5, 2.0],
    }  # fmt: skip
    value = AvroSerializer(theirs, CLICK, conf=BY_TOPIC)(click, context())
    assert decoder(url, "avro", max_list_length=2)(value) == {
        "id": 7, "price": 9.9, "at": DAY.timestamp(), "day": DAY.timestamp(), "kind": "BUY", "note": None, "score": 0.5,
        "user.age": 31, "counts.a": 2, "sizes.0": 1.5, "sizes.1": 2.0,
    }  # fmt: skip


def test_avro_evolves(url, theirs):
    double, none = {"name": "a", "type": "double"}, {"type": ["null", "string"], "default": None}
    schemas = [
        fields_of(double, {"name": "old", "type": "int"}),
        fields_of(double, {"name": "new", "type": "string", "default": "x"}, {"name": "more", **none}),
    ]
    values = [
        AvroSerializer(theirs, schemas[0], conf=BY_TOPIC)({"a": 1.0, "old": 2}, context()),
        AvroSerializer(theirs, schemas[1], conf=BY_TOPIC)({"a": 2.0, "new": "y", "more": "z"}, context()),
    ]
    as_written, as_new, as_old = (decoder(url, "avro", schema) for schema in (None, schemas[1], schemas[0]))
    assert list(map(as_written, values)) == [{"a": 1.0, "old": 2}, {"a": 2.0, "new": "y", "more": "z"}]
    assert list(map(as_new, values)) == [{"a": 1.0, "new": "x", "more": None}, {"a": 2.0, "new": "y", "more": "z"}]
    assert as_old(values[0]) == {"a": 1.0, "old": 2}
    with pytest.raises(ValueError, match="old"):  # it has no default
        as_old(values[1])


def registered(theirs, subject, text, kind, references=()):
    return theirs.register_schema(subject, Schema(text, kind, list(references)))


def test_avro_that_refers_to_another_schema(url, theirs):
    subject = uuid.uuid4().hex
    user = fields_of({"name": "age", "type": "int"}, name="shop.User")
    registered(theirs, f"{subject}-user", user, "AVRO")
    schema = Schema(
        fields_of({"name": "by", "type": "shop.User"}), "AVRO", [SchemaReference("shop.User", f"{subject}-user", 1)]
    )
    value = AvroSerializer(theirs, schema, conf=BY_TOPIC)({"by": {"age": 3}}, context())
    assert decoder(url, "avro")(value) == {"by.age": 3}


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 ignored = 1; }
message Click {
  enum Kind { LOOK = 0; BUY = 1; }
  message User { int32 age = 1; }
  int64 id = 1;
  double price = 2;
  google.protobuf.Timestamp at = 3;
  Kind kind = 4;
  optional string note = 5;
  google.protobuf.DoubleValue score = 6;
  User user = 7;
  User absent = 8;
  map<string, int32> counts = 9;
  repeated float sizes = 10;
  oneof choice { string word = 11; uint64 number = 12; }
}
"""


def messages(text=PROTO):
    files = ours.compiled({"shop.proto": text}, "shop.proto")
    return functools.cache(lambda name: ours.message_class(files, f"shop.{name}"))


def test_protobuf_with_all_its_types(url, theirs):
    of = messages()
    click = of("Click")(id=2**60, price=9.9, kind="BUY", counts={"a": 2}, sizes=[1.5, 2.0], number=5)
    click.user.age = 31
    click.at.seconds, click.at.nanos = int(DAY.timestamp()), 500_000_000
    click.score.value = 0.0
    writer = ProtobufSerializer(of("Click"), theirs, {**BY_TOPIC, "use.deprecated.format": False})
    decode = decoder(url, "protobuf", max_list_length=2)
    assert decode(writer(click, context())) == {
        "id": 2**60, "price": 9.9, "at": DAY.timestamp() + 0.5, "kind": "BUY", "note": None, "score": 0.0,
        "user.age": 31, "absent": None, "counts.a": 2, "sizes.0": 1.5, "sizes.1": 2.0, "word": None, "number": 5,
    }  # fmt: skip
    nested = of("Click.User")(age=4)
    assert decode(ProtobufSerializer(of("Click.User"), theirs, BY_TOPIC)(nested, context())) == {"age": 4}


def test_protobuf_registered_as_text(url, theirs):
    """As clients in other languages register it, in two files."""
    subject = uuid.uuid4().hex
    user = 'syntax = "proto3"; package shop; message User { int32 age = 1; }'
    registered(theirs, f"{subject}-user", user, "PROTOBUF")
    text = 'syntax = "proto3"; package shop; import "shop/user.proto"; message Click { User by = 1; double a = 2; }'
    reference = SchemaReference("shop/user.proto", f"{subject}-user", 1)
    number = registered(theirs, subject, text, "PROTOBUF", [reference])
    files = ours.compiled({"shop/user.proto": user, "click.proto": text}, "click.proto")
    click = ours.message_class(files, "shop.Click")(a=0.5, by={"age": 3})
    value = b"\0" + number.to_bytes(4, "big") + b"\0" + click.SerializeToString()
    assert decoder(url, "protobuf")(value) == {"by.age": 3, "a": 0.5}
    wrong = b"\0" + number.to_bytes(4, "big") + b"\x02\x08" + click.SerializeToString()
    with pytest.raises(ValueError, match="message 4 is named, of 1 in the schema"):
        decoder(url, "protobuf")(wrong)


def test_a_text_of_protobuf_that_is_none_or_leaves_its_folder():
    with pytest.raises(ValueError, match="got an error of protoc"):
        ours.compiled({"a.proto": "message {"}, "a.proto")
    with pytest.raises(ValueError, match="Expected the name of a file"):
        ours.compiled({"../a.proto": ""}, "a.proto")


HEAD = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
SCHEMA = {
    **HEAD, "title": "Click",
    "properties": {"a": {"type": "number"}, "user": {"type": "object", "properties": {"age": {"minimum": 0}}}},
    "required": ["a"],
}  # fmt: skip


def test_json_that_has_a_schema(url, theirs):
    write = JSONSerializer(json.dumps(SCHEMA), theirs, conf={**BY_TOPIC, "validate": False})
    decode = decoder(url, "json-schema")
    assert decode(write({"a": 1, "user": {"age": 3}}, context())) == {"a": 1, "user.age": 3}
    for wrong, message in (
        ({"user": {}}, "'a' is a required property - at \\$"),
        ({"a": 1, "user": {"age": -1}}, r"-1 is less than the minimum of 0 - at \$.user.age"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(write(wrong, context()))


def test_json_that_refers_to_another_schema(url, theirs):
    subject = uuid.uuid4().hex
    registered(theirs, f"{subject}-user", json.dumps({**HEAD, "required": ["age"]}), "JSON")
    reference = SchemaReference("user.json", f"{subject}-user", 1)
    text = json.dumps({**HEAD, "properties": {"by": {"$ref": "user.json"}}})
    head = b"\0" + registered(theirs, subject, text, "JSON", [reference]).to_bytes(4, "big")
    decode = decoder(url, "json-schema")
    assert decode(head + b'{"by": {"age": 3}}') == {"by.age": 3}
    with pytest.raises(ValueError, match="'age' is a required property"):
        decode(head + b'{"by": {}}')


FIELDS = {
    "name": "text",
    "count": "integer",
    "position": "json",
    "label": "value",
    "shares": "numbers",
    "low": "number",
    "set": "values",
    "new": "boolean",
}
RECORDS = [
    {
        "name": "é",
        "count": 2**40,
        "position": [3, "x"],
        "label": label,
        "shares": {"a": 0.25, True: 0.75},
        "low": 0.5,
        "set": ["a", 1, True],
        "new": True,
    }
    for label in ("ham", 3, 0.5, True, None)
] + [{}]


def expected(record):
    found = {name: record.get(name) for name in FIELDS}
    if record:
        found |= {"position": '[3,"x"]', "shares": {"a": 0.25, "true": 0.75}}
    return found


def test_confluent_reads_our_records(url, theirs):
    topic = uuid.uuid4().hex
    values = {
        form: list(map(record_writer(Registry(url), f"{topic}-{form}", form, FIELDS), RECORDS))
        for form in ("avro", "protobuf", "json-schema")
    }
    assert [AvroDeserializer(theirs, conf=BY_TOPIC)(value) for value in values["avro"]] == list(map(expected, RECORDS))
    read = JSONDeserializer(None, schema_registry_client=theirs, conf=BY_TOPIC)
    for value, record in zip(values["json-schema"], RECORDS, strict=True):
        assert read(value, context()) == {name: item for name, item in expected(record).items() if item is not None}
    text = theirs.get_latest_version(f"{topic}-protobuf-value").schema.schema_str
    message = ours.message_class(ours.compiled({"p.proto": text}, "p.proto"), "streamkernel.Prediction")
    read = ProtobufDeserializer(message, {**BY_TOPIC, "use.deprecated.format": False})
    for value, record in zip(values["protobuf"], RECORDS, strict=True):
        found, wanted = read(value, context()), expected(record)
        assert found.HasField("name") == (wanted["name"] is not None)
        assert (found.name or None, found.count or None) == (wanted["name"], wanted["count"])
        kind = found.label.WhichOneof("kind")
        assert (getattr(found.label, kind) if kind else None) == wanted["label"]
        assert (dict(found.shares), found.low or None) == (wanted["shares"] or {}, wanted["low"])
        assert [getattr(one, one.WhichOneof("kind")) for one in found.set] == (wanted["set"] or [])
        assert (found.new if found.HasField("new") else None) == wanted["new"]


def test_a_schema_is_registered_once_under_its_subject(url, theirs):
    topic = uuid.uuid4().hex
    for _ in range(2):
        record_writer(Registry(url), topic, "avro", FIELDS).open()
    assert theirs.get_versions(f"{topic}-value") == [1]


def test_a_field_that_the_schema_lacks_is_refused(url):
    write = record_writer(Registry(url), uuid.uuid4().hex, "avro", {"a": "text"})
    with pytest.raises(ValueError, match='Expected fields of the schema, got "b"'):
        write({"b": 1})
    assert set(FIELDS.values()) == set(KINDS)


@pytest.mark.parametrize("form", ["avro", "protobuf", "json-schema"])
def test_bytes_that_are_not_a_value_are_refused_with_the_reason(url, form):
    write = record_writer(Registry(url), f"broken-{form}", form, FIELDS)
    good, decode = write(RECORDS[0]), decoder(url, form)
    decode(good)
    for wrong in (b"", b"{}", b"\x01" + good[1:], good[:5] + b"\xff" * 9, good[:-1]):
        with pytest.raises(ValueError, match="Expected"):
            decode(wrong)
    with pytest.raises(ValueError, match="Expected schema 4242 of the schema registry at"):
        decode(b"\0" + (4242).to_bytes(4, "big") + good[5:])
    other = "json-schema" if form == "avro" else "avro"
    with pytest.raises(ValueError, match=f"Expected a schema of {other}, got"):
        decoder(url, other)(good)


@pytest.fixture(scope="module")
def readers():
    with registries.small() as registry:
        found = []
        for form in ("avro", "protobuf", "json-schema"):
            write, decode = record_writer(Registry(registry.url), form, form, FIELDS), decoder(registry.url, form)
            decode(write(RECORDS[0]))
            found.append((decode, write(RECORDS[0])[:5]))
        yield found


@given(st.binary(max_size=60), st.integers(0, 2))
def test_any_bytes_are_a_record_or_a_value_error(readers, content, which):
    decode, head = readers[which]
    message = "Expected"
    try:
        decode(head + content)
    except ValueError as error:
        message = str(error)
    assert message.startswith("Expected")


def test_a_registry_that_fails_is_not_the_fault_of_a_record():
    with registries.small() as registry:
        write = record_writer(Registry(registry.url), "t", "avro", FIELDS)
        value = write(RECORDS[0])
        for status in (401, 403, 404, 429, 500, 503):
            registry.fails = status
            with pytest.raises(
                UnavailableError, match=f"Expected schema 1 .*{registry.url}.* got HTTP status {status}"
            ):
                decoder(registry.url, "avro")(value)
        registry.fails = 0
        assert decoder(registry.url, "avro")(value)["name"] == "é"
        registry.fails = 409
        with pytest.raises(ValueError, match=r'Expected a schema for subject "u-value" .* got: out of order'):
            record_writer(Registry(registry.url), "u", "avro", FIELDS).open()
    for reader in (decoder(registry.url, "avro"), record_writer(Registry(registry.url), "u", "avro", FIELDS)):
        with pytest.raises(UnavailableError, match="refused"):
            reader(value if isinstance(reader, ValueDecoder) else RECORDS[0])


def test_a_schema_is_asked_for_once():
    with registries.small() as registry:
        values = [record_writer(Registry(registry.url), "t", "avro", FIELDS)(record) for record in RECORDS]
        decode, before = decoder(registry.url, "avro"), len(registry.asked)
        assert len([decode(value) for value in values]) == len(registry.asked) - before + 5


def test_a_login_is_used_and_never_shown(monkeypatch):
    with registries.small() as registry:
        registry.login = "me:s3cret"
        with pytest.raises(UnavailableError, match="401") as error:
            Registry(registry.url, {"basic.auth.user.info": "me:wr0ng"}).check()
        given = Registry(registry.url, {"basic.auth.user.info": "me:s3cret"})
        given.check()
        monkeypatch.setenv("STREAMKERNEL_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "me:s3cret")
        Registry(registry.url, {"basic.auth.user.info": "me:wr0ng"}).check()
    assert "wr0ng" not in str(error.value)
    assert "s3cret" not in repr(given)


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("localhost:8081", {}, 'Expected an address, "https://host:8081", got "localhost:8081"'),
        ("http://me:s3cret@here", {}, "Expected an address without a login, got one with it"),
        ("http://here", {"ssl.ca.locatio": "a"}, 'did you mean "ssl.ca.location"'),
        ("http://here", {"ssl.ca.location": "missing.pem"}, 'Expected a file that can be read as "ssl.ca.location"'),
        ("http://here", {"basic.auth.user.info": "s3cret"}, "Expected options that can be combined"),
    ],
)
def test_wrong_options_are_named(url, options, message):
    with pytest.raises(ValueError, match=message) as error:
        Registry(url, options)
    assert "s3cret" not in str(error.value)
