"""Any value in any field of a record: each sink writes it, or refuses the record in its place and writes the others."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from odd_values import AS_JSON, DAY, NO_JSON, VALUES
from pyarrow import parquet

from streamkernel.connectors import DeadLetters, Event, FileSink, RecordsRefusedError, Refusal
from streamkernel.connectors.files.sinks import ParquetSink
from streamkernel.connectors.json_text import RECORD, all_to_json, encode_each, to_json
from streamkernel.connectors.schema_registry.writing import schema_and_write
from streamkernel.engine.config.streams import PREDICTION_FIELDS


@pytest.mark.parametrize("name", VALUES)
def test_a_file_has_each_record_or_refuses_it(tmp_path: Path, name: str) -> None:
    sink = FileSink(tmp_path / "a.jsonl")
    records = [{"n": 0}, {"n": 1, "value": VALUES[name]}, {"n": 2}]
    if name in AS_JSON:
        sink.write_all(records, [None, b"k", None])
    else:
        with pytest.raises(RecordsRefusedError, match="Expected values that JSON can hold, got: ") as error:
            sink.write_all(records, [None, b"k", None])
        [(record, key, _)] = error.value.refused
        assert (record["n"], key) == (1, b"k")
    sink.close()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    expected = [{"n": 1, "value": AS_JSON[name][1]}] if name in AS_JSON else []
    assert lines == [{"n": 0}, *expected, {"n": 2}]


@pytest.mark.parametrize("name", VALUES)
def test_a_parquet_file_has_each_record_or_refuses_it(tmp_path: Path, name: str) -> None:
    sink = ParquetSink(tmp_path)
    sink.write({"n": 0, "value": "text"})
    if name in AS_JSON:
        sink.write({"n": 1, "value": VALUES[name]})
    else:
        with pytest.raises(RecordsRefusedError, match="Expected values that JSON can hold"):
            sink.write({"n": 1, "value": VALUES[name]}, b"k")
    sink.write({"n": 2, "value": None})
    sink.close()
    rows = parquet.read_table(tmp_path).to_pylist()
    expected = AS_JSON.get(name, (None, None))[1]
    is_text = expected is None or isinstance(expected, str)
    values = ["text" if is_text else '"text"', *([expected] if name in AS_JSON else []), None]
    found = [row["value"] for row in rows]
    assert (found if is_text else [found[0], json.loads(found[1]), *found[2:]]) == values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([2**60 + 1, 2.5], ["1152921504606846977", "2.5"]),
        ([1, "1", 1.0], ["1", '"1"', "1.0"]),
        ([True, 1], ["true", "1"]),
        ([2**63, 1], ["9223372036854775808", "1"]),
        (["a", [1]], ['"a"', "[1]"]),
        ([float("nan"), 0.5], [None, 0.5]),
        ([None, None], [None, None]),
    ],
)
def test_a_column_has_one_type_and_loses_nothing(tmp_path: Path, values: list[Any], expected: list[Any]) -> None:
    sink = ParquetSink(tmp_path)
    for value in values:
        sink.write({"a": value})
    sink.close()
    assert [row["a"] for row in parquet.read_table(tmp_path).to_pylist()] == expected


class Formats:
    """Writers of predictions in the formats of schemas, with readers of the label."""

    SCHEMA, AVRO = schema_and_write("avro", PREDICTION_FIELDS)
    PARSED = fastavro.parse_schema(json.loads(SCHEMA))
    OTHERS: ClassVar = [schema_and_write(form, PREDICTION_FIELDS)[1] for form in ("protobuf", "json-schema")]

    @classmethod
    def label_of(cls, content: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(content), cls.PARSED, None)["label"]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize(
    "field", ["label", "set", "position", "probabilities", "stream", "offset", "lower", "is_novel"]
)
def test_a_format_with_a_schema_has_each_record_or_refuses_it(field: str, name: str) -> None:
    records = [{"label": "a"}, {field: VALUES[name]}, {"label": "b"}]
    refused = set()
    for write in (Formats.AVRO, *Formats.OTHERS):
        encoded, left_out = encode_each(write, records, [None, b"k", None])
        assert len(encoded) + len(left_out) == 3
        assert all(f'- at field "{field}"' in reason and key == b"k" for _, key, reason in left_out)
        refused.add(len(left_out))
    assert len(refused) == 1  # the same for all formats


@pytest.mark.parametrize(
    ("label", "expected"),
    [(2**70, str(2**70)), (Decimal("0.10"), "0.10"), (b"\xff", "\\xff"), ("\ud800", "\\ud800"), (np.int64(3), 3),
     (np.bool_(True), True), (DAY.date(), "2026-11-28"), (np.str_("a"), "a"), (2**63 - 1, 2**63 - 1)],
)  # fmt: skip
def test_labels_keep_their_digits_in_a_format_with_a_schema(label: Any, expected: Any) -> None:
    found = Formats.label_of(Formats.AVRO({"label": label}))
    assert (found, type(found)) == (expected, type(expected))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.binary(max_size=5)
    | st.text(st.characters(), max_size=5)
    | st.datetimes()
    | st.sampled_from(list(NO_JSON)).map(lambda name: NO_JSON[name]),
    lambda one: (
        st.lists(one, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=3) | st.integers(), one, max_size=3)
    ),
    max_leaves=6,
)
RECORDS = st.dictionaries(st.text(st.characters(), max_size=5), ANYTHING, max_size=4)


@max_examples(200)
@given(st.lists(RECORDS, max_size=4))
def test_records_are_json_or_refused_and_together_as_alone(records: list[Mapping[str, Any]]) -> None:
    encoded, refused = encode_each(lambda record: to_json(record, RECORD), records, [None] * len(records))
    for one in encoded:
        assert isinstance(json.loads(one.content), dict)
    if refused:
        with pytest.raises(TypeError, match="Expected values that JSON can hold"):
            all_to_json(records, RECORD)
    else:
        assert all_to_json(records, RECORD) == [one.content for one in encoded]


@max_examples(200)
@given(
    event=st.builds(
        Event,
        stream=st.text(st.characters(), max_size=5),
        resume=st.integers(0),
        raw=st.binary(max_size=20) | st.just(b""),
        record=st.none() | RECORDS,
        key=st.none() | st.binary(max_size=5),
        headers=st.lists(
            st.tuples(st.text(st.characters(), max_size=3), st.none() | st.binary(max_size=5)), max_size=3
        ).map(tuple),
        origin=st.none(),
    ),
    reason=st.text(st.characters(), max_size=20),
)
def test_any_record_is_a_dead_letter(tmp_path_factory: pytest.TempPathFactory, event: Event, reason: str) -> None:
    path = tmp_path_factory.mktemp("letters") / "dead.jsonl"
    letters = DeadLetters(FileSink(path))
    letters.write(event, Refusal(reason, "value", "ValueError"), "me")
    letters.close()
    [line] = path.read_bytes().removesuffix(b"\n").split(b"\n")
    assert json.loads(line)["position"] == event.resume
