"""Helpers that read sources to their end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamkernel.connectors import Event, FileSource, Source
from streamkernel.connectors.files import bytestreams


def read_all(source: Source) -> list[Event]:
    """Poll until the end, and close."""
    events: list[Event] = []
    while (batch := source.poll(timeout=5)) is not None:
        events += batch
    source.close()
    return events


def read_file(path: Path, resume: Any = None, **options: Any) -> list[Event]:
    """Read a file, from a position that was serialized as JSON if there is one."""
    source = FileSource(path, **options)
    if resume is not None:
        source.seek({str(path): json.loads(json.dumps(resume))})
    return read_all(source)


def records(events: list[Event]) -> list[dict[str, Any] | None]:
    return [event.record for event in events]


def errors(events: list[Event]) -> list[str | None]:
    return [event.error for event in events]


def write(path: Path, data: bytes) -> Path:
    """Write a file, compressed if its name ends in .gz."""
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def check_every_resume(path: Path, **options: Any) -> list[Event]:
    """Check that a source resumed after any event yields exactly the later events, and return all events."""
    events = read_file(path, **options)
    for number, event in enumerate(events, start=1):
        assert read_file(path, event.resume, **options) == events[number:]
    return events


@contextmanager
def chunks_of(size: int) -> Iterator[None]:
    """Read text files in chunks of another size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytestreams, "CHUNK_BYTES", size)
        yield
