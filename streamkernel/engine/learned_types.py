"""Types of undeclared fields, learned from their last values: numbers, categories, or both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import structlog

from streamkernel.engine import seen_inputs
from streamkernel.engine.config.messages import to_key
from streamkernel.engine.seen_inputs import SeenTexts
from streamkernel.field_types.number_texts import COMMA, FEW, UNKNOWN, notation_of, read_any_number, read_number

log = structlog.get_logger("streamkernel")

MOST_NAMES, MOST_CHARACTERS = 100_000, 1 << 24
"""Largest number of fields that are counted, and of characters in all their names."""

WINDOW = 2048
"""Counts of a field are halved when they exceed this many values together."""

SETTLED, CERTAIN, RARE, FEW_TEXTS, SEVERAL = 20, 40, 0.05, 0.1, 5
"""Values from which on a field has a type, and from which on the log warns of a mixed one; the share below which its
other values are exceptions; the share below which texts hardly show that its numbers are codes; numbers in a field of
categories from which on the log asks what its texts mean.
"""

MOST_NOTES = 20
"""Fields that the log tells about."""

UNDECIDED, NUMBERS, CATEGORIES, MIXED = "undecided", "numbers", "categories", "mixed"
"""Types of a field. A number among categories is one; a text among numbers is refused; all else is taken as it is."""

_NUMBER, _READABLE, _TEXT, _EVIDENCE, _GROUPED, _DIGITS = range(6)


def two_meanings(name: str, text: str) -> str | None:
    """Return the note about a text in a field whose values have shown no notation.

    Examples
    --------
    >>> print(two_meanings("p", "1,234"))
    field "p": texts such as 1,234 are read as 1234; for 1.234, declare [fields] p = { type = "number", decimal = "," }
    >>> two_meanings("p", "0,5")
    """
    number = read_any_number(text)
    if number is None or number.other_value is None:
        return None
    text, value, other = ("1,234", "1234", "1.234") if number.is_grouped else ("1.234", "1.234", "1234")
    return (
        f'field "{name}": texts such as {text} are read as {value}; for {other}, '
        f'declare [fields] {to_key(name)} = {{ type = "number", decimal = "," }}'
    )


def two_notations(name: str, value: Any, notation: int) -> str | None:
    """Return the note about a number in a field whose texts have a decimal comma.

    The reader of a CSV file takes 1.234 for a fraction before it is known what the other cells have.

    Examples
    --------
    >>> print(two_notations("p", 1.234, COMMA))
    field "p": texts have a decimal comma, numbers a decimal point; if the source is CSV, set its decimal = ","
    """
    if notation != COMMA or not isinstance(value, float) or value.is_integer() or round(value, 3) != value:
        return None
    return (
        f'field "{name}": texts have a decimal comma, numbers a decimal point; '
        'if the source is CSV, set its decimal = ","'
    )


class LearnedTypes:
    """Counts of numbers and texts for each field, in which a newer value weighs more.

    A text that is clearly a number counts as readable: where nearly all texts are, they are read as numbers.
    `is_silent` says whether nothing is written to the log. `counts` are the numbers, readable texts and other texts of
    each field; the evidence for its notation, the readable texts with thousands apart, and the other texts that are
    digits. `texts` are those others. `n_refused` are values that were not counted, because there was no room for
    another field.

    Examples
    --------
    >>> types = LearnedTypes()
    >>> for i in range(1000):
    ...     types.count({"age": i, "plan": "pro"})
    >>> [types.type_of(name) for name in ("age", "plan", "new")]
    ['numbers', 'categories', 'undecided']
    >>> types.read_text("age", "12,5"), types.read_text("age", "old"), types.read_text("plan", "12,5")
    (12.5, None, '12,5')
    """

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self._fields: dict[str, set[str]] = {kind: set() for kind in (UNDECIDED, NUMBERS, CATEGORIES, MIXED)}
        self.texts = SeenTexts()
        self.n_refused = self._characters = 0
        self.is_silent, self._noted = False, set[Any]()

    @property
    def numbers(self) -> set[str]:
        """The fields of numbers; a text there is refused."""
        return self._fields[NUMBERS]

    @property
    def categories(self) -> set[str]:
        """The fields of categories; a number there is one."""
        return self._fields[CATEGORIES]

    def count(
        self, record: Mapping[str, Any], others: Collection[str] = (), is_input: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Count the values of a record.

        `others` are fields that are not counted, as the label. `is_input` says whether a field is an input. If no input
        is a number, texts of digits alone are numbers.
        """
        counts, categories, are_meant = self.counts, self.categories, None
        for name, value in record.items():
            if name in others:
                continue
            kind, column = type(value), _NUMBER
            counted = counts.get(name)
            if kind is float or kind is int or kind is bool:
                if value != value:
                    continue
                if counted is not None and counted[_EVIDENCE] > 0:
                    self.note(two_notations(name, value, _notation(counted)))
            elif kind is str:
                number = read_number(value, _notation(counted))
                is_meant = number is not None and (number.is_clear or _has_groups(counted))
                if number is not None and not is_meant:
                    if are_meant is None:
                        are_meant = not has_numbers(record, is_input)
                    is_meant = are_meant
                column = _READABLE if is_meant else _TEXT
            else:
                continue
            counted = counted or self._add_field(name)
            if counted is None:
                continue
            counted[column] += 1
            if column == _TEXT:
                counted[_DIGITS] += number is not None
                self._add_text(name, value, counted, is_number=number is not None)
            elif column == _READABLE and number is not None:
                counted[_EVIDENCE] += number.notation
                counted[_GROUPED] += number.is_grouped
                if (
                    number.other_value is not None
                    and counted[_READABLE] >= FEW
                    and not _notation(counted)
                    and _reads_texts(counted)
                ):
                    self.note(two_meanings(name, value))
            total = counted[_NUMBER] + counted[_READABLE] + counted[_TEXT]
            if total > WINDOW:
                _halve(counted)
            elif column == _TEXT and name in categories:
                continue  # they stay categories
            if total > counted[_NUMBER] or total == SETTLED:
                self._set_type(name, counted)

    def count_numbers(self, names: Iterable[str], n: int) -> None:
        """Count n numbers of each field, as :meth:`count` counts one after the other."""
        for name in names:
            counted = self.counts.get(name) or self._add_field(name)
            if counted is None:
                continue
            left = n
            while (free := WINDOW - counted[_NUMBER] - counted[_READABLE] - counted[_TEXT]) < left:
                counted[_NUMBER] += free + 1
                left -= free + 1
                _halve(counted)
            counted[_NUMBER] += left
            self._set_type(name, counted)

    def type_of(self, name: str) -> str:
        """Return the type of a field."""
        counted = self.counts.get(name)
        return UNDECIDED if counted is None else _type(counted)

    def read_text(self, name: str, text: str, *, digits_are_codes: bool = False) -> float | str | None:
        """Return a text as the field takes it: as a number, as a category, or not at all, which is ``None``.

        `name` and `text` are the field and its text. `digits_are_codes` says whether an input of the record is a
        number, so that digits alone in a text may be a code.
        """
        counted = self.counts.get(name)
        number = read_number(text, notation := _notation(counted))
        if number is not None and number.other_value is not None and "," in text and not notation:
            number = number if name in self.numbers else None  # 1,234 before anything is known
        is_meant = number is not None and (number.is_clear or not digits_are_codes or _has_groups(counted))
        if number is not None and is_meant and (counted is None or _reads_texts(counted)):
            return number.value
        return None if name in self.numbers else text

    def remedy(self, name: str, value: Any) -> str:
        """Return the end of the reason of a dead letter for a value that its field does not take."""
        if not isinstance(value, str):
            return "" if name in self.counts else seen_inputs.for_value(name, value)
        are_rare = self._has_few_texts(name)
        return seen_inputs.for_text(name, value, self.texts.placeholders(name, value, are_rare=are_rare))

    def advice(self, name: str, *, for_codes: bool = True) -> str:
        """Return the declaration that helps with a field that has both numbers and texts.

        It is empty if no text seems to mean that there is no value, unless it is wanted `for_codes`, too.
        """
        are_rare = self._has_few_texts(name)
        placeholders = self.texts.placeholders(name, are_rare=are_rare)
        return seen_inputs.for_texts(name, placeholders, are_rare=are_rare) if placeholders or for_codes else ""

    def _has_few_texts(self, name: str) -> bool:
        """Return whether nearly all values of a field are numbers."""
        counted = self.counts.get(name)
        return counted is not None and _texts(counted) < FEW_TEXTS * sum(counted[:_EVIDENCE])

    def state(self) -> dict[str, list[int]]:
        """Return the counts for a checkpoint, for another process, or for a merge."""
        return {name: list(counted) for name, counted in sorted(self.counts.items())}

    def restore(self, counts: Mapping[str, Iterable[int]]) -> None:
        """Replace all counts."""
        self.counts, self._characters = {}, 0
        for fields in self._fields.values():
            fields.clear()
        self.join(counts)

    def join(self, counts: Mapping[str, Iterable[int]]) -> None:
        """Take the larger one of each count, so that what several have seen is counted once."""
        for name, others in counts.items():
            counted = self.counts.get(name) or self._add_field(name)
            if counted is not None:
                counted[:] = _larger(counted, others)
                while sum(counted[:_EVIDENCE]) > WINDOW:
                    _halve(counted)
                self._set_type(name, counted)

    def __len__(self) -> int:
        """Return the number of counted fields."""
        return len(self.counts)

    def __deepcopy__(self, memo: object) -> Self:
        """Return a copy, quickly."""
        twin = copy.copy(self)
        twin.__dict__ |= {
            "counts": {name: list(counted) for name, counted in self.counts.items()},
            "_noted": set(self._noted),
            "texts": copy.deepcopy(self.texts),
            "_fields": {kind: set(fields) for kind, fields in self._fields.items()},
        }
        return twin

    def _add_field(self, name: str) -> list[int] | None:
        if len(self.counts) >= MOST_NAMES or self._characters + len(name) > MOST_CHARACTERS:
            self.n_refused += 1
            return None
        self._characters += len(name)
        return self.counts.setdefault(name, [0] * 6)

    def _set_type(self, name: str, counted: list[int]) -> None:
        """Set the type of a field, and say in the log what was not expected."""
        kind = _type(counted)
        if name not in self._fields[kind]:
            for fields in self._fields.values():
                fields.discard(name)
            self._fields[kind].add(name)
        if kind == MIXED and sum(counted[:_EVIDENCE]) >= CERTAIN:
            self._note_once(name, MIXED, self.advice(name))
        if kind == NUMBERS and counted[_READABLE] and _reads_texts(counted):
            self._note_once(name, kind, "texts are read as numbers")
        has_several = kind == CATEGORIES and counted[_NUMBER] + counted[_READABLE] >= SEVERAL
        if has_several and (advice := self.advice(name, for_codes=False)):
            self._note_once(name, MIXED, advice)

    def _add_text(self, name: str, text: str, counted: list[int], *, is_number: bool) -> None:
        """Look at a text, unless its field has many and nothing else."""
        is_looked_at = self.texts.is_looked_at(name)
        if is_looked_at and not counted[_NUMBER] and not counted[_READABLE]:
            return
        self.texts.add(name, text, is_number=is_number)
        if not is_looked_at and self.texts.is_looked_at(name) and (kind := self.texts.like(name)):
            self._note_once(name, kind, seen_inputs.for_alike_texts(name, kind))

    def note(self, note: str | None) -> None:
        """Write a note about a field to the log, unless it has been written."""
        if note is not None:
            self._write_note(note, note)

    def _note_once(self, name: str, kind: str, note: str) -> None:
        """Write a note of one kind about a field to the log, unless one has been written."""
        self._write_note((name, kind), f'field "{name}": {note}')

    def _write_note(self, key: Any, note: str) -> None:
        if not self.is_silent and key not in self._noted and len(self._noted) < MOST_NOTES:
            self._noted.add(key)
            log.warning(note)


def has_numbers(record: Mapping[str, Any], is_input: Callable[[str], bool]) -> bool:
    """Return whether an input of a record is a number, so that its texts of digits alone may be codes."""
    return any(
        (type(value) is float or type(value) is int) and value == value and is_input(name)
        for name, value in record.items()
    )


def join_counts(counts: Mapping[str, list[int]], more: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Return the larger one of each count.

    Examples
    --------
    >>> join_counts({"a": [7, 0, 1]}, {"a": [3, 0, 2], "b": [1, 0, 0]})
    {'a': [7, 0, 2], 'b': [1, 0, 0]}
    """
    joined = {name: _larger(counted, more.get(name, counted)) for name, counted in counts.items()}
    return joined | {name: list(counted) for name, counted in more.items() if name not in joined}


def _larger(counted: Iterable[int], others: Iterable[int]) -> list[int]:
    """Return the larger one of each count, where the evidence for a notation may be negative."""
    return [max(pair, key=abs) for pair in zip(counted, others, strict=True)]


def _halve(counted: list[int]) -> None:
    counted[:] = [int(count / 2) for count in counted]


def _notation(counted: Sequence[int] | None) -> int:
    return UNKNOWN if counted is None else notation_of(counted[_EVIDENCE], counted[_READABLE])


def _reads_texts(counted: list[int]) -> bool:
    """Return whether nearly all texts of a field are numbers; of few values, half."""
    total = counted[_NUMBER] + counted[_READABLE] + counted[_TEXT]
    return _texts(counted) < total * RARE if total >= SETTLED else 2 * _texts(counted) <= total


def _type(counted: list[int]) -> str:
    total = counted[_NUMBER] + counted[_READABLE] + counted[_TEXT]
    if total < SETTLED:
        return UNDECIDED
    if _texts(counted) < RARE * total and (counted[_READABLE] or counted[_NUMBER]):
        return NUMBERS
    return CATEGORIES if counted[_NUMBER] < RARE * total else MIXED


def _texts(counted: Sequence[int]) -> int:
    """Return how many texts are no numbers."""
    return counted[_TEXT] - (counted[_DIGITS] if _has_groups(counted) else 0)


def _has_groups(counted: Sequence[int] | None) -> bool:
    """Return whether a field has numbers such as 1,234, so that 917 is one, too."""
    return counted is not None and counted[_GROUPED] > RARE * (counted[_READABLE] + counted[_TEXT])
