"""Destinations of redriven records, each with a ledger that is written together with the records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from streamkernel.connectors.base import UnavailableError
from streamkernel.connectors.kafka.clients import Partition, Producer
from streamkernel.connectors.kafka.options import Options
from streamkernel.connectors.redrive.letters import Driven, Letter

TRANSACTION_SECONDS = 120.0


class TopicTarget:
    """Topics, written in transactions that also commit the ledger.

    The ledger of a stream is the offset of a group without members, and its metadata. Brokers delete such offsets after
    some days, so there is a copy in a file, which is used if the brokers have none.

    Parameters
    ----------
    options
        Connection options.
    name
        The transactional id, and the group. A process with the same id fences an older one.
    partition_of
        Maps a stream to the partition whose offset holds its ledger.
    to
        A topic for all records; by default each is written to its original partition.
    copy
        The file with the copy.
    """

    def __init__(
        self,
        options: Options,
        name: str,
        partition_of: Callable[[str], Partition],
        to: str | None = None,
        copy: Path | None = None,
    ) -> None:
        self._options, self._name, self._to, self._copy = options, name, to, copy
        self._partition_of = partition_of
        self._producer: Producer | None = None

    def read(self, streams: list[str]) -> dict[str, Driven]:
        """Return the redriven positions of some streams, and fence other processes."""
        self._producer = self._options.producer(self._name, TRANSACTION_SECONDS)
        asked = self._options.consumer(self._name)
        try:
            entries = {stream: asked.committed_with_note(self._partition_of(stream)) for stream in streams}
        finally:
            asked.close()
        copies = {} if self._copy is None else read_json(self._copy).get(self._name, {})
        return {stream: Driven(*(entry or copies.get(stream, (0, "")))) for stream, entry in entries.items()}

    def hindrance(self, letter: Letter) -> str:
        """Return why a letter cannot be driven here, or nothing."""
        if letter.hindrance or self._to is not None or letter.topic is not None:
            return letter.hindrance
        return "its record did not come from a topic; name one with --to-topic"

    def send(self, letter: Letter) -> None:
        """Write the record of a letter."""
        assert self._producer is not None
        topic = self._to or letter.topic
        assert topic is not None
        partition = None if self._to else letter.partition
        self._producer.send(topic, letter.value, letter.key, letter.headers, partition)

    def commit(self, driven: Mapping[str, Driven]) -> None:
        """Make records and the ledger visible together.

        Raise `CommitRefusedError` if nothing was committed, or the outcome is unknown; the next start determines it.
        """
        assert self._producer is not None
        notes = {stream: (entry.base, entry.note()) for stream, entry in driven.items()}
        self._producer.flush()
        self._producer.commit(
            [(self._name, {self._partition_of(stream): base}, note) for stream, (base, note) in notes.items()]
        )
        if self._copy is not None:
            kept = read_json(self._copy)
            write(self._copy, {**kept, self._name: {**kept.get(self._name, {}), **notes}})

    def close(self) -> None:
        """Abort uncommitted records."""
        if self._producer is not None:
            self._producer.close()


class FileTarget:
    """A file to which lines are appended, with a ledger beside it that is written before and after.

    Before lines are appended, the ledger records the size that the file will have. After a crash, the size therefore
    shows whether they were written: a partial write is removed, a complete one counts as redriven. `path` is the file;
    its ledger has the same name with ``.redriven``.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._ledger = path, path.with_name(f"{path.name}.redriven")
        self._lines: list[bytes] = []
        self._entries: dict[str, Any] = {}

    def read(self, streams: list[str]) -> dict[str, Driven]:
        """Return the redriven positions of some streams.

        Raise `ValueError` if another program wrote to the file when this one was stopped.
        """
        kept = read_json(self._ledger)
        entries, pending = kept.get("driven", {}), kept.get("pending")
        if pending is not None:
            size = self._path.stat().st_size if self._path.exists() else 0
            if size == pending["end"]:
                entries = pending["driven"]
            elif size > pending["end"] or size < pending["begin"]:
                raise ValueError(
                    f"Expected {pending['begin']:,} or {pending['end']:,} bytes, got {size:,} - at {self._path}, which "
                    f"another program wrote to while the last redrive was killed; see whether it has the lines, and "
                    f"remove {self._ledger}"
                )
            else:
                if size > pending["begin"]:
                    os.truncate(self._path, pending["begin"])
            write(self._ledger, {"driven": entries})
        self._entries = entries
        return {stream: Driven(*entries.get(stream, (0, ""))) for stream in streams}

    def hindrance(self, letter: Letter) -> str:
        """Return why a letter cannot be driven here, or nothing."""
        if not letter.hindrance and b"\n" in letter.value and self._path.suffix not in (".csv", ".tsv"):
            return "it has several lines"
        return letter.hindrance

    def send(self, letter: Letter) -> None:
        """Add the record of a letter to the next lines."""
        self._lines.append(letter.value + b"\n")

    def commit(self, driven: Mapping[str, Driven]) -> None:
        """Add the lines to the file."""
        lines, self._lines = b"".join(self._lines), []
        entries = {**self._entries, **{stream: (entry.base, entry.note()) for stream, entry in driven.items()}}
        with self._path.open("ab+") as file:
            begin = file.seek(0, os.SEEK_END)
            if begin:
                file.seek(-1, os.SEEK_END)
                lines = lines if file.read(1) == b"\n" or not lines else b"\n" + lines
            pending = {"begin": begin, "end": begin + len(lines), "driven": entries}
            write(self._ledger, {"driven": self._entries, "pending": pending})
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        write(self._ledger, {"driven": entries})
        self._entries = entries

    def close(self) -> None:
        """Do nothing, because uncommitted lines have not been written."""


def check_file(path: Path) -> None:
    """Raise a `ValueError` if lines cannot be added to a file."""
    if path.suffix == ".gz" or path.suffix == ".parquet" or any(sign in path.name for sign in "*?["):
        raise ValueError(f"Expected a file that lines can be added to, got {path}; name one with --to-file")
    if not path.parent.is_dir():
        raise UnavailableError(f"Expected a folder, got none - at {path.parent}")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file, an empty one if the file is missing."""
    try:
        content: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return content


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the content of a file atomically."""
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(orjson.dumps(content))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
