"""Records of topics that are read together yield the same events as records that are read one by one."""

from __future__ import annotations

import pytest

from streamkernel.connectors import Event, FileSink
from streamkernel.connectors.kafka.clients import Partition, Record
from streamkernel.connectors.kafka.events import Events

A, B = Partition("t", 0), Partition("t", 1)
RECORDS = [
    (A, Record(7, None, b'{"a": 1.5, "s": "x"}', (), 1700), 8),
    (B, Record(3, b"key", b'{"a": {"b": 1}, "c": null}', (("h", b"v"),), -1), [4, 2]),
    (A, Record(9, b"", b"{}", [("h", b"")], None), 10),
    (A, Record(10, None, b'{"a": 2}', (), 1800), 11),
]
READABLE = [
    (RECORDS[0][0], [RECORDS[0][1]], [8]),
    (RECORDS[1][0], [RECORDS[1][1]], [[4, 2]]),
    (RECORDS[2][0], [RECORDS[2][1], RECORDS[3][1]], [10, 11]),
]
"""The same as runs of successive records of a partition."""


def test_records_are_read_as_one_after_the_other() -> None:
    events = Events()
    assert events.of_all(READABLE) == [events.of(*one) for one in RECORDS]
    assert events.of_all([]) == []
    assert type(events.of_all(READABLE)[0]) is Event  # type: ignore[index]


@pytest.mark.parametrize(
    "value", [b"", b"[1]", b"7", b"{", b'{"a": 1},{"b": 2}', b"\xff", b'{"a.b": 1, "a": {"b": 2}}']
)
def test_records_are_not_read_together_if_one_needs_a_look(value: bytes) -> None:
    events, record = Events(), Record(11, None, value, ())
    assert events.of(A, record, 12).error
    assert events.of_all([*READABLE, (A, [record], [12])]) is None


def test_records_are_not_read_together_if_one_has_no_value() -> None:
    events, record = Events(), Record(11, None, None, ())
    assert events.of(A, record, 12).is_passed_over
    assert events.of_all([*READABLE, (A, [record], [12])]) is None


def test_other_values_than_plain_json_are_read_one_after_the_other() -> None:
    assert Events(lambda value: {"a": 1}).of_all(READABLE) is None
    assert Events(key="id").of_all(READABLE) is None


def test_lines_written_together_are_those_written_one_after_the_other(tmp_path) -> None:
    lines = [{"a": 1.5}, {"b": float("nan")}, {"c": "é"}]
    one, other = FileSink(tmp_path / "one"), FileSink(tmp_path / "other")
    for line in lines:
        one.write(line)
    other.write_all(lines, [None, b"key", None])
    assert one.flush() == other.flush()
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    one.close()
    other.close()
