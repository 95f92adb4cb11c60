"""Conversion of a record to an example (x, y), or to the reason why it is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Any

from streamkernel.engine.label_limits import check_length
from streamkernel.engine.telemetry.input_ranges import LARGEST, WIDEST, InputRanges
from streamkernel.errors import InputError, LabelError
from streamkernel.estimators.weighting import as_weight

MOST_NAMES, MOST_CHARACTERS = 100_000, 1 << 24
"""Largest number of fields stored as numeric, and of characters in all their names."""


class Examples:
    """Splits records into features and label, and refuses invalid ones.

    A refused record changes neither this object nor the scaler or model behind it.

    Parameters
    ----------
    label
        The field to predict, or several, whose labels are then a dictionary.
    ignore
        Fields to leave out.
    numeric_label
        Whether the label must be a number.
    weight
        The field with the weight of an example, ``None`` if all have the same.

    Attributes
    ----------
    is_several : bool
        Whether there are several labels.
    numbers : set of str
        Fields that were numbers in an example that was learned; a string there is refused.
    n_refused : int
        Numbers whose field was not remembered because there was no room.
    ranges : InputRanges
        The usual ranges of inputs; a value outside is taken and counted.

    Examples
    --------
    >>> examples = Examples("y", ignore=["id"], numeric_label=False)
    >>> examples.split({"id": 7, "age": 31, "town": None, "y": "yes"})
    ({'age': 31}, 'yes')
    >>> examples.split({"age": float("nan"), "y": "yes"})
    Traceback (most recent call last):
        ...
    streamkernel.errors.InputError: Expected a finite number, got nan - at field "age"
    """

    def __init__(
        self,
        label: str | tuple[str, ...],
        ignore: Collection[str] = (),
        *,
        numeric_label: bool,
        weight: str | None = None,
    ) -> None:
        self._labels, self.is_several = ((label,), False) if isinstance(label, str) else (label, True)
        self.weight = weight
        self._ignore = frozenset(ignore) | ({weight} if weight is not None else set())
        self._numeric_label = numeric_label
        self.numbers: set[str] = set()
        self.n_refused = self._characters = 0
        self.ranges = InputRanges()

    def split(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the features and the label of `record`; a null field counts as missing.

        Raises
        ------
        InputError
            If the label is missing or unusable, no feature is left, or a value is no finite number and no string.
        """
        x, y = self.read(record)
        if y is None:
            label = self._labels[0]
            found = "null" if label in record else "no such field"
            raise LabelError(f'Expected a label, got {found} - at field "{label}"')
        if not x:
            raise InputError("Expected at least one feature besides the label, got none")
        return x, y

    def read(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the features of `record`, if any, and its label or ``None``.

        Raises
        ------
        InputError
            If the label is unusable, or a value is no finite number and no string.
        """
        x = {}
        numbers, ignore, labels, limits = self.numbers, self._ignore, self._labels, self.ranges.limits
        for name, value in record.items():
            kind = type(value)
            if kind is float or kind is int or kind is bool:
                low, high = limits.get(name, WIDEST)
                if not low <= value <= high:
                    self._check_outside(name, value)
            elif value is None:
                continue
            elif kind is not str:
                if name in ignore:
                    continue
                raise InputError(
                    f'Expected a number or a string, got {kind.__name__} {shorten(value)} - at field "{name}"'
                )
            elif name in numbers and name not in labels:
                raise _not_a_number(name, value)
            if name not in ignore:
                x[name] = value
        y = x.pop(labels[0], None)
        check_length(y, labels[0])
        if self._numeric_label and isinstance(y, str):
            raise LabelError(f'Expected a number as label, got the string {shorten(y)} - at field "{labels[0]}"')
        return x, (self._rest(x, y, record) if self.is_several else y)

    def _rest(self, x: dict[str, Any], first: Any, record: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the other labels out of the features; return all of them, or ``None`` if there is none.

        Raises
        ------
        LabelError
            If some are missing, or one is unusable.
        """
        found = {name: x.pop(name, None) for name in self._labels[1:]}
        y = {self._labels[0]: first, **found}
        missing = [name for name, value in y.items() if value is None]
        if len(missing) == len(y):
            return None
        for name in missing:
            got = "null" if name in record else "no such field"
            raise LabelError(f'Expected all {len(y)} labels, got {got} - at field "{name}"')
        for name, value in y.items():
            check_length(value, name)
            if self._numeric_label and isinstance(value, str):
                raise LabelError(f'Expected a number as label, got the string {shorten(value)} - at field "{name}"')
        return y

    def split_plain(self, records: Iterable[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
        """Return features and labels of the first records, up to one that `split` may refuse; numbers among the
        features are not looked at.
        """
        label, ignore, numeric = self._labels[0], self._ignore, self._numeric_label
        xs: list[dict[str, Any]] = []
        ys: list[Any] = []
        for record in records:
            if type(record) is not dict:
                break
            x = record.copy()
            y = x.pop(label, None)
            kind = type(y)
            if kind is not bool and (numeric if kind is str else not _is_plain_number(y)):
                break
            if ignore and not all(self._is_plain(name, x.pop(name, None)) for name in ignore):
                break
            xs.append(x)
            ys.append(y)
        return xs, ys

    def _is_plain(self, name: str, value: Any) -> bool:
        """Return whether a field that is left out has a value that `read` takes."""
        return value is None or _is_plain_number(value) or (type(value) is str and name not in self.numbers)

    def weight_of(self, record: Mapping[str, Any]) -> float:
        """Return the weight of `record`, which is 1 without a weight field.

        Raises
        ------
        InputError
            If it is missing, or no number that a weight can be.
        """
        if self.weight is None:
            return 1.0
        w, where = record.get(self.weight), f'field "{self.weight}"'
        if isinstance(w, bool) or not isinstance(w, (int, float)):
            found = "null" if self.weight in record else "no such field"
            raise InputError(
                f"Expected a weight, got {found if w is None else f'{type(w).__name__} {shorten(w)}'} - at {where}"
            )
        return as_weight(w, where)

    def _check_outside(self, name: str, value: float) -> None:
        """Count a number far outside its range; raise an error for NaN, infinity or a number that is too large."""
        if not -LARGEST <= value <= LARGEST:
            what = f"a number of at most {LARGEST:g}" if -inf < value < inf else "a finite number"
            raise InputError(f'Expected {what}, got {shorten(value)} - at field "{name}"')
        self.ranges.outside(name, value)

    def check_again(self, x: Mapping[str, Any]) -> None:
        """Raise an error for pending features with strings in fields where numbers have been learned since.

        Raises
        ------
        InputError
            If there is one.
        """
        for name, value in x.items():
            if isinstance(value, str) and name in self.numbers:
                raise _not_a_number(name, value)

    def observe(self, x: Mapping[str, Any]) -> None:
        """Record the numeric fields of a learned example and their ranges."""
        self.ranges.learn(x)
        numbers = self.numbers
        if not x.keys() <= numbers:
            self.know(name for name, value in x.items() if name not in numbers and not isinstance(value, str))

    def know(self, names: Iterable[str]) -> None:
        """Add numeric fields while there is room; their order decides which ones fit."""
        for name in names:
            if name in self.numbers:
                continue
            if len(self.numbers) < MOST_NAMES and self._characters + len(name) <= MOST_CHARACTERS:
                self.numbers.add(name)
                self._characters += len(name)
            else:
                self.n_refused += 1

    def restore(self, names: Iterable[str]) -> None:
        """Replace the known numeric fields."""
        self.numbers = set(names)
        self._characters = sum(map(len, self.numbers))


def _is_plain_number(value: Any) -> bool:
    """Return whether a value is a number of Python of usable size."""
    kind = type(value)
    return (kind is float or kind is int or kind is bool) and -LARGEST <= value <= LARGEST


def _not_a_number(name: str, value: str) -> InputError:
    return InputError(f'Expected a number as before, got the string {shorten(value)} - at field "{name}"')


def shorten(value: Any) -> str:
    """Return a value as Python shows it, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
