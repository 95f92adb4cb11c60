"""Files as sinks, and dead letters in them."""

from __future__ import annotations

import base64
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reading import read_file, write

from streamkernel.connectors import DeadLetters, Event, FileSink, LinesLostError, RecordsRefusedError, Refusal
from streamkernel.connectors.files.sinks import BUFFER_BYTES

BECAUSE = Refusal("because", "value", "streamkernel.errors.InputError")


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_are_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    sink = FileSink(path)
    sink.write({"s": "é\n", "f": np.float32(0.5), "i": np.int64(3), "b": np.bool_(True), "a": np.arange(2)})
    sink.write({"p": {True: 0.25, 3: float("nan")}, 1: None})
    sink.close()
    assert lines(path) == [
        {"s": "é\n", "f": 0.5, "i": 3, "b": True, "a": [0, 1]},
        {"p": {"true": 0.25, "3": None}, "1": None},
    ]
    with pytest.raises(RecordsRefusedError):
        FileSink(tmp_path / "b.jsonl").write({"x": object()})


def test_flush_makes_records_durable_and_returns_the_position(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    sink = FileSink(path)
    assert sink.flush() == 0
    for number in range(1, 4):
        sink.write({"n": number})
        assert path.stat().st_size == 8 * (number - 1)
        assert sink.flush() == path.stat().st_size == 8 * number
    sink.close()
    sink.close()


def test_an_existing_file_is_appended_to(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"n":1}\n')
    sink = FileSink(path)
    assert sink.flush() == 8
    sink.write({"n": 2})
    assert sink.flush() == 16
    sink.close()
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'


def test_an_incomplete_line_does_not_affect_the_next_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"n":1}\n{"n"')
    sink = FileSink(path)
    sink.write({"n": 2})
    sink.close()
    assert path.read_bytes() == b'{"n":1}\n{"n"\n{"n":2}\n'


@max_examples(40)
@given(before=st.integers(0, 4), after=st.integers(0, 4), half=st.sampled_from([b"", b'{"n"']))
def test_records_after_a_position_are_dropped(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int, half: bytes
) -> None:
    path = tmp_path_factory.mktemp("sink") / "a.jsonl"
    sink = FileSink(path)
    for number in range(before):
        sink.write({"n": number})
    position = json.loads(json.dumps(sink.flush()))
    for number in range(after):
        sink.write({"lost": number})
    sink.close()
    with path.open("ab") as file:
        file.write(half)
    sink = FileSink(path)
    sink.seek(position)
    sink.write({"n": before})
    assert sink.flush() == path.stat().st_size
    sink.close()
    assert lines(path) == [{"n": number} for number in range(before + 1)]


@pytest.mark.parametrize("left", [b"", b'{"n":1}\n', b'{"n":1}\n{"n":2}'])
def test_a_file_that_is_shorter_than_the_position_is_refused(tmp_path: Path, left: bytes) -> None:
    sink = FileSink(write(tmp_path / "a.jsonl", left))
    with pytest.raises(ValueError, match=f"Expected at least 16 bytes, got {len(left)} - at .*predictions were lost"):
        sink.seek(16)


def test_writing_is_buffered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    sink = FileSink(path)
    for number in range(1000):
        sink.write({"n": number})
    assert path.stat().st_size == 0
    sink.close()
    assert len(lines(path)) == 1000


def test_standard_output_cannot_be_truncated() -> None:
    program = """
from streamkernel.connectors import FileSink
sink = FileSink("-")
sink.seek(12345)
sink.write({"n": 1})
assert sink.flush() == 0
sink.close()
print("still open")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == '{"n":1}\nstill open\n'


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FileSink(tmp_path / "nowhere" / "a.jsonl")


@pytest.mark.parametrize(
    ("event", "raw"),
    [
        (Event("s", [1, 1], "é\n1".encode()), "é\n1"),
        (Event("s", 1, b"\xff\x00"), {"base64": base64.b64encode(b"\xff\x00").decode()}),
        (Event("s", 1, b"", {"x": 1.5, "s": "é"}), '{"x": 1.5, "s": "é"}'),
        (Event("s", 1, b"", {"x": {1, 2}}), '{"x": "{1, 2}"}'),
        (Event("s", 1, b"", {"x": float("nan")}), "{'x': nan}"),
        (Event("s", 1, b"", {"x": {(1, 2): 3}}), "{'x': {(1, 2): 3}}"),
        (Event("s", 1, b"", error="no bytes"), ""),
    ],
)
def test_a_dead_letter_keeps_the_record_and_the_reason(tmp_path: Path, event: Event, raw: Any) -> None:
    path = tmp_path / "dead.jsonl"
    letters = DeadLetters(FileSink(path))
    letters.write(event, BECAUSE, "me")
    letters.close()
    expected = BECAUSE._asdict() | {"stream": "s", "position": event.resume, "member": "me", "raw": raw}
    assert lines(path) == [expected]


def test_dead_letters_are_cut_back_like_any_sink(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    letters = DeadLetters(FileSink(path))
    letters.write(Event("s", 1, b"one"), BECAUSE)
    position = letters.flush()
    letters.write(Event("s", 2, b"two"), BECAUSE)
    letters.close()
    assert path.stat().st_size > position
    letters = DeadLetters(FileSink(path))
    letters.seek(position)
    letters.close()
    assert [line["raw"] for line in lines(path)] == ["one"]


def test_dead_letters_give_back_the_bytes_of_a_bad_file(tmp_path: Path) -> None:
    bad = [b"[1]", b"\xff", b'{"x": ']
    letters = DeadLetters(FileSink(tmp_path / "dead.jsonl"))
    for event in read_file(write(tmp_path / "a.jsonl", b"\n".join(bad))):
        letters.write(event, BECAUSE)
    letters.close()
    raws = [line["raw"] for line in lines(tmp_path / "dead.jsonl")]
    assert [raw.encode() if isinstance(raw, str) else base64.b64decode(raw["base64"]) for raw in raws] == bad


def test_importing_does_not_import_what_few_users_need() -> None:
    program = "import sys, streamkernel.connectors; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert not {"pyarrow", "confluent_kafka", "nats", "fastavro", "google.protobuf"} & {*done.stdout.split()}


def test_errors_name_the_file(tmp_path: Path) -> None:
    """A full disk does not."""
    path = tmp_path / "predictions.jsonl"
    path.symlink_to("/dev/full")
    sink = FileSink(path)
    sink.write({"n": 1})
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        sink.flush()
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        sink.write({"text": "long" * BUFFER_BYTES})
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        sink.close()
    with pytest.raises(OSError, match="nowhere"):
        FileSink(tmp_path / "nowhere" / "predictions.jsonl")


def test_a_pipe_is_named(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    os.mkfifo(path)
    with pytest.raises(OSError, match=f"got a pipe or a terminal, .* standard output: '{path}'"):
        FileSink(path)


def test_a_disk_that_fails_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt succeeds where the system has dropped the lines that it could not write."""

    def failing(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "a.jsonl"
    sink = FileSink(path)
    sink.write({"n": 1})
    position = sink.flush()
    sink.write({"n": 2})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(LinesLostError, match=f"Input/output error - at {path}: lines after byte {position} may be"):
            sink.flush()
    with pytest.raises(LinesLostError):
        sink.flush()
    with pytest.raises(LinesLostError):
        sink.close()


def test_a_device_takes_lines_and_keeps_none():
    sink = FileSink("/dev/null")
    sink.write({"y": 1})
    assert sink.flush() == 0
    sink.seek(0)
    sink.close()
