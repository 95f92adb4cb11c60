"""The events that pass between sources and sinks, their positions, and the errors of both."""

from __future__ import annotations

import difflib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

Position = Any
"""A position in one stream: a JSON value that only its source interprets."""

BROKEN = "broken"


class Event(NamedTuple):
    """One record, or an error if it could not be read.

    Parameters
    ----------
    stream : str
        The name of the record's stream: a path, a data set or a partition of a topic.
    resume : Position
        The position **after** this record: a source that seeks it returns the next record first.
    raw : bytes
        The unchanged bytes of the record, for a dead letter.
    record : dict or None, default None
        The fields, or ``None`` if the bytes could not be read.
    error : str or None, default None
        The reason if there is no record: the expected and the actual value.
    key : bytes or None, default None
        The key of a record of a topic.
    headers : tuple of tuple of str and bytes, default ()
        The headers of a record of a topic.
    origin : dict or None, default None
        The topic, partition and offset of a record of a topic, and its timestamp in milliseconds if it has one.
    """

    stream: str
    resume: Position
    raw: bytes
    record: dict[str, Any] | None = None
    error: str | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    origin: Mapping[str, str | int] | None = None

    @property
    def location(self) -> Mapping[str, Any]:
        """The fields that identify the record in predictions and dead letters."""
        return self.origin or {"stream": self.stream, "position": self.resume}

    @property
    def is_position_only(self) -> bool:
        """Whether there is neither a record nor an error, but only a new position of the stream."""
        return self.record is None and self.error is None

    @property
    def is_passed_over(self) -> bool:
        """Whether there was a record with nothing to learn from, such as a tombstone: only its position is left."""
        return self.is_position_only and self.origin is not None


class Refusal(NamedTuple):
    """The reason why a record became a dead letter.

    Parameters
    ----------
    reason : str
        The expected and the actual value.
    kind : str
        The label of the counter of dead letters.
    exception : str
        The class of the error, with its module.
    """

    reason: str
    kind: str
    exception: str


class UnavailableError(OSError):
    """A service is unavailable; the call may be retried.

    Attributes
    ----------
    service : str
        The name of the service in log lines.
    """

    service: ClassVar[str] = "Kafka"


class GaveUpError(OSError):
    """A service refuses the login, or was unavailable for longer than the user wants to wait: the run ends."""


class DecoderUnavailableError(UnavailableError):
    """A record cannot be decoded yet: a service that the decoder needs, such as a schema registry, is unavailable."""

    service = "the decoder"


class TopicMissingError(UnavailableError):
    """A topic does not exist, or not yet."""


class Trouble(NamedTuple):
    """A current problem of a source with brokers or topics.

    Parameters
    ----------
    error : UnavailableError
        The problem.
    since : float
        The time of its first occurrence by the monotonic clock, in seconds.
    """

    error: UnavailableError
    since: float


class PositionError(ValueError):
    """A source goes back: a position, or the end of what can be read, is before an earlier position."""


class CommitRefusedError(Exception):
    """The commit failed, or its outcome is unknown: it timed out, or the member was fenced.

    Parameters
    ----------
    reason : str
        The reason.
    kind : str, default "commit_refused"
        The kind of the incident; others are ``"record_refused"``, where brokers refuse one record, which becomes a dead
        letter when the events are repeated, and ``"write_forbidden"``, where they refuse all until a person acts.
    """

    def __init__(self, reason: str, kind: str = "commit_refused") -> None:
        super().__init__(reason)
        self.kind = kind


class RecordsRefusedError(Exception):
    """The service of a sink refuses records for good, such as one that is too large; the sink has taken the others.

    Parameters
    ----------
    refused : sequence of tuple of dict, bytes or None, and str
        Each record, its key, and the reason.
    """

    def __init__(self, refused: Sequence[tuple[Mapping[str, Any], bytes | None, str]]) -> None:
        super().__init__("; ".join(dict.fromkeys(reason for *_, reason in refused)))
        self.refused = refused


def unknown_name(expected: str, got: str, existing: Iterable[str]) -> ValueError:
    """Return the error for an unknown name, which lists the known ones and proposes the most similar one.

    Examples
    --------
    >>> raise unknown_name("a fruit of", "aple", ["apple", "pear"])
    Traceback (most recent call last):
    ValueError: Expected a fruit of apple, pear, got "aple" - did you mean "apple"?
    """
    names = {name.lower(): name for name in existing}
    near = difflib.get_close_matches(got.lower(), names, n=1, cutoff=0.5)
    hint = f' - did you mean "{names[near[0]]}"?' if near else ""
    return ValueError(f'Expected {expected} {", ".join(names.values())}, got "{got}"{hint}')


def position_of(stream: str, positions: Mapping[str, Position]) -> Position | None:
    """Return the position of a source's only stream, ``None`` if there are no positions at all.

    Raise a `ValueError` if all positions are of other streams: a new start would read every record twice.

    Examples
    --------
    >>> position_of("a.csv", {"a.csv": [120, 7]})
    [120, 7]
    >>> position_of("a.csv", {"b.csv": [120, 7]})
    Traceback (most recent call last):
    ValueError: Expected a position of "a.csv", got those of "b.csv"
    """
    if positions and stream not in positions:
        others = ", ".join(f'"{name}"' for name in positions)
        raise ValueError(f'Expected a position of "{stream}", got those of {others}')
    return positions.get(stream)


def is_broken(position: Position) -> bool:
    """Return whether nothing can be read after a position.

    Examples
    --------
    >>> is_broken([120, 7, "broken"]), is_broken([120, 7])
    (True, False)
    """
    return isinstance(position, (list, tuple)) and len(position) == 3 and position[2] == BROKEN


def is_count(value: object) -> bool:
    """Return whether a part of a position is valid: an integer of at least 0.

    Examples
    --------
    >>> is_count(3), is_count(-3), is_count(True), is_count("3")
    (True, False, False, False)
    """
    return type(value) is int and value >= 0


def is_place(position: Position) -> bool:
    """Return whether a position is one in a text: the number of bytes, the number of lines, and perhaps a note.

    Examples
    --------
    >>> is_place([120, 7]), is_place([120, 7, "broken"]), is_place([120, -7]), is_place(120)
    (True, True, False, False)
    """
    return isinstance(position, (list, tuple)) and len(position) in (2, 3) and all(map(is_count, position[:2]))


def not_utf8(error: UnicodeDecodeError, hint: str | None = None) -> str:
    r"""Return the reason why bytes cannot be read as text.

    `hint` is the encoding to propose, where one can be declared; it is UTF-16 if the bytes begin as such.

    Examples
    --------
    >>> try:
    ...     b"K\xf6ln".decode()
    ... except UnicodeDecodeError as error:
    ...     print(not_utf8(error, hint="latin-1"))
    Expected UTF-8, got byte 0xf6 as byte 2 of the record - did you mean encoding = "latin-1"?
    """
    byte = error.object[error.start]
    hint = hint and ("utf-16" if error.object[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else hint)
    question = f' - did you mean encoding = "{hint}"?' if hint else ""
    return f"Expected UTF-8, got byte 0x{byte:02x} as byte {error.start + 1} of the record{question}"
