"""Log rotation: the file of a position, its current path, and its successor.

The name of a rotated file begins with the name of the current file: ``app.log.1``, or ``app.log-20260131``. The file
``.1`` may be the newest one, as logrotate numbers them, or the oldest one, as some libraries do.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HEAD_BYTES = 1024
"""Number of bytes at the start of a file that identify it."""

_NUMBER = re.compile(r"[-_.]?(\d{1,3})")
_DATE = re.compile(r"[-_.]?(\d{4})[-_.]?(\d\d)?[-_.]?(\d\d)?([-_.:\dT]*)")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of a file, which renaming does not change.

    The device is not part of it: all candidates are in one folder, and some systems renumber devices. `inode` is its
    number in the file system, which can be given to another file once this one is deleted. `size` is the number of
    bytes at its start that the digest covers.

    Examples
    --------
    >>> fingerprint = Fingerprint.of(7, b"first line")
    >>> str(fingerprint)
    '7-10-6c5422b201924c4b'
    >>> Fingerprint.parse(str(fingerprint)) == fingerprint
    True
    >>> fingerprint.begins(b"first line, and another"), fingerprint.begins(b"first l")
    (True, False)
    """

    inode: int
    size: int
    digest: str

    @classmethod
    def of(cls, inode: int, head: bytes) -> Fingerprint:
        """Return the fingerprint of a file that begins with these bytes."""
        return cls(inode, len(head), _digest(head))

    @classmethod
    def parse(cls, text: object) -> Fingerprint:
        """Return the fingerprint that ``str`` wrote; raise a `ValueError` for any other text."""
        parts = text.split("-") if isinstance(text, str) else []
        if len(parts) != 3 or not all(part.isdecimal() for part in parts[:2]):
            raise ValueError(f"Expected inode-size-digest, got {text!r}")
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.inode}-{self.size}-{self.digest}"

    def begins(self, head: bytes) -> bool:
        """Return whether a file with these bytes at its start can be this one."""
        return len(head) >= self.size and _digest(head[: self.size]) == self.digest


def find(path: Path, fingerprint: Fingerprint, offset: int) -> Path | None:
    """Return the path of the file that was read up to `offset`, or ``None`` if it is gone.

    The same file under any name is preferred to a copy of it. `path` is where it was; it may have been renamed to a
    name that begins with this one. `offset` is the number of bytes that were read.
    """
    copies: list[tuple[bool, int, Path]] = []
    for file in (path, *_beside(path)):
        status = _status(file)
        if status is None or status.st_size < offset or not fingerprint.begins(_head(file)):
            continue
        if status.st_ino == fingerprint.inode:
            return file
        if fingerprint.size:
            copies.append((file == path, status.st_mtime_ns, file))
    return max(copies)[-1] if copies else None


def newer(path: Path, status: os.stat_result) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the non-empty files that came after a file, the oldest first.

    `path` is where the newest is. `status` is the status of the other file. If it no longer has a name, files that were
    written to later came after it.
    """
    last = _status(path)
    if last is not None and os.path.samestat(last, status):
        return
    files = [(file, state) for file in rotated_files(path) if (state := _status(file)) is not None]
    same = [i for i, (_, state) in enumerate(files) if os.path.samestat(state, status)]
    if same:
        files = files[same[-1] + 1 :]
    else:
        files = [(file, state) for file, state in files if state.st_mtime_ns > status.st_mtime_ns]
    for file, state in [*files, *([] if last is None else [(path, last)])]:
        if state.st_size:
            yield file, state


def rotated_files(path: Path) -> list[Path]:
    """Return the rotated files beside `path`, the oldest first: by their numbers, then those with dates.

    `path` is the file that is written to.
    """
    numbered, dated = [], []
    for other in _beside(path):
        suffix = other.name.removeprefix(path.name)
        if number := _NUMBER.fullmatch(suffix):
            numbered.append((int(number[1]), other))
        elif date := _DATE.fullmatch(suffix):
            dated.append(([int(part) for group in date.groups("") for part in _DIGITS.findall(group)], other))
    files = [file for _, file in sorted(numbered)]
    return [*(files if _ages_fall(files) else reversed(files)), *(file for _, file in sorted(dated))]


def _ages_fall(files: Sequence[Path]) -> bool:
    """Return whether most files were written to, or renamed, later than the one before them."""
    times = [(status.st_mtime_ns, status.st_ctime_ns) for file in files if (status := _status(file)) is not None]
    pairs = list(pairwise(times))
    return sum(one < other for one, other in pairs) > sum(one > other for one, other in pairs)


def _beside(path: Path) -> list[Path]:
    """Return the files whose names begin with the name of `path` and are longer."""
    try:
        others = list(path.parent.iterdir())
    except OSError:
        return []
    return [other for other in others if other.name.startswith(path.name) and other.name != path.name]


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat() if path.is_file() else None
    except OSError:  # It was renamed or deleted just now.
        return None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""
