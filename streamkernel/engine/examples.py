"""Conversion of a record to an example (x, y), or to the reason why it is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from streamkernel.connectors.formats import AllZeros
from streamkernel.engine.learned_types import LearnedTypes, has_numbers, two_meanings, two_notations
from streamkernel.engine.seen_inputs import LARGEST, WIDEST, InputRanges
from streamkernel.errors import InputError, LabelError, shorten
from streamkernel.estimators.targets import as_weight
from streamkernel.features.rows import is_missing
from streamkernel.field_types.declared import LONGEST_NAME, ByPath, Notations, VectorLengthError, as_category
from streamkernel.field_types.fields import UNSEEN, Fields

LONGEST_LABEL = 1_000
"""Largest number of characters of a label."""

MOST_LISTED = 5
"""Names of fields in an error, at most."""


def check_length(y: Any, name: str) -> None:
    """Raise an error for a label that is too long.

    Examples
    --------
    >>> check_length("yes", "y")
    >>> check_length("y" * 2_000, "y")
    Traceback (most recent call last):
    streamkernel.errors.LabelError: Expected a label of at most 1,000 characters, got 2,000 - at field "y"
    """
    if isinstance(y, str) and len(y) > LONGEST_LABEL:
        raise LabelError(
            f'Expected a label of at most {LONGEST_LABEL:,} characters, got {len(y):,} - at field "{name}"'
        )


class Examples:
    """Splits records into features and label, and refuses invalid ones.

    A refused record changes neither the scaler nor the model behind it; its fields count in their types. `is_several`
    says whether there are several labels. `types` are the types of undeclared fields; a text in one of numbers is
    refused. `numbers` are the fields of numbers, learned and declared. `ranges` are the usual ranges of inputs; a value
    outside is taken and counted. `label` is the field to predict, or several, whose labels are then a dictionary.
    `ignore` are fields to leave out, with the fields inside them. `weight` is the field with the weight of an example,
    ``None`` if all have the same. `fields` are the declared types of fields; ``None`` if all are learned. `keys` are
    fields that join labels and are no inputs; unlike in `ignore`, the fields inside are.

    Examples
    --------
    >>> examples = Examples("y", ignore=["id"], numeric_label=False)
    >>> examples.split({"id": 7, "age": 31, "town": None, "y": "yes"})
    ({'age': 31}, 'yes')
    >>> examples.split({"age": float("inf"), "y": "yes"})
    Traceback (most recent call last):
        ...
    streamkernel.errors.InputError: Expected a finite number, got inf - at field "age"
    """

    def __init__(
        self,
        label: str | tuple[str, ...],
        ignore: Collection[str] = (),
        *,
        numeric_label: bool,
        weight: str | None = None,
        fields: Fields | None = None,
        keys: Collection[str] = (),
    ) -> None:
        self._labels, self.is_several = ((label,), False) if isinstance(label, str) else (label, True)
        self.weight = weight
        single = {*keys, *(() if weight is None else (weight,))}
        self._ignore = ByPath(dict.fromkeys(ignore, True) | dict.fromkeys(self._labels, False), single)
        self._has_ignored = bool(ignore or single)
        read = dict.fromkeys([*self._labels, *single], False)
        unread = [] if fields is None else [name for name in fields.types if fields.type_of(name) == "ignore"]
        self.ignored = ByPath(dict.fromkeys([*unread, *ignore], True) | read)
        self._numeric_label = numeric_label
        self.fields, self.types = fields, LearnedTypes()
        self.ranges = InputRanges()
        self._notations = Notations()
        declared = () if fields is None else fields.types
        self._number_labels = [name for name in self._labels if name not in declared] if numeric_label else []
        if fields is not None:
            fields.keep(self._labels)

    @property
    def numbers(self) -> set[str]:
        """The fields of numbers, learned and declared."""
        return self.types.numbers if self.fields is None else self.types.numbers | self.fields.numbers

    def split(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the features and the label of `record`; a null field counts as missing.

        Raise `InputError` if the label is missing or unusable, no feature is left, or a value is no finite number and
        no string.
        """
        x, y = self.read(record)
        if y is None:
            label = self._labels[0]
            raise LabelError(f'Expected a label, got {_nothing(label, record)} - at field "{label}"')
        if not x and not isinstance(record, AllZeros):
            why = self.why_no_features(record)
            raise InputError(f"Expected at least one feature besides the label, got none: {why}")
        return x, y

    def why_no_features(self, record: Mapping[str, Any]) -> str:
        """Return why a record has no features.

        Examples
        --------
        >>> examples = Examples("y", ignore=["id"], numeric_label=False)
        >>> for record in ({"a": None, "b": None, "y": 1}, {"id": 7, "y": 1}, {"y": 1}):
        ...     print(examples.why_no_features(record))
        no value in "a", "b"
        the other fields are no inputs: "id"
        there is no other field
        """
        names = [name for name in record if name not in self._labels]
        inputs = [name for name in names if self._is_input(name)]
        if inputs:
            return f"no value in {_listed(inputs)}"
        return f"the other fields are no inputs: {_listed(names)}" if names else "there is no other field"

    def read(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the features of `record`, if any, and its label or ``None``.

        Raise `InputError` if the label is unusable, or a value is no finite number and no string.
        """
        x: dict[str, Any] = {}
        types, ignore, labels, limits = self.types, self._ignore, self._labels, self.ranges.limits
        categories, fields, are_codes = types.categories, self.fields, None
        for name, value in (record if fields is None else self._converted(record, fields)).items():
            if ignore[name]:
                continue
            kind = type(value)
            if kind is float or kind is int or kind is bool:
                low, high = limits.get(name, WIDEST)
                if name in categories and abs(value) < inf:
                    value = as_category(value)
                elif not low <= value <= high:
                    if value != value:
                        continue
                    self._check_outside(name, value)
            elif kind is not str:
                if is_missing(value):
                    continue
                raise self._unusable(name, value)
            elif name not in categories and name not in labels and (fields is None or name not in fields):
                if are_codes is None:
                    are_codes = has_numbers(record, self._is_input)
                text, value = value, types.read_text(name, value, digits_are_codes=are_codes)
                if value is None:
                    raise self._not_a_number(name, text)
            x[name] = value
        y = self._label(labels[0], x.pop(labels[0], None))
        return x, (self._rest(x, y, record) if self.is_several else y)

    def _rest(self, x: dict[str, Any], first: Any, record: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the other labels out of the features; return all of them, or ``None`` if there is none.

        Raise `LabelError` if some are missing, or one is unusable.
        """
        labels = {name: self._label(name, x.pop(name, None)) for name in self._labels[1:]}
        y = {self._labels[0]: first, **labels}
        missing = [name for name, value in y.items() if value is None]
        if len(missing) == len(y):
            return None
        for name in missing:
            got = _nothing(name, record)
            raise LabelError(f'Expected all {len(y)} labels, got {got} - at field "{name}"')
        return y

    def _label(self, name: str, y: Any) -> Any:
        """Return a label, which must be a number for a regressor, also one that is written as text; "" is missing.

        Raise `LabelError` if it is another text, or too long.
        """
        check_length(y, name)
        if isinstance(y, str) and not y.strip():
            return None
        if not self._numeric_label or not isinstance(y, str):
            return y
        number = self._notations.read(name, y)
        if number is None:
            raise LabelError(f'Expected a number as label, got the string {shorten(y)} - at field "{name}"')
        return number.value

    def _converted(self, record: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
        """Return the inputs of declared types, and the other fields."""
        ignore = self._ignore
        return fields.transform_one({name: value for name, value in record.items() if not ignore[name]})

    def split_plain(self, records: Iterable[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
        """Return features and labels of the first records, up to one that `split` may refuse; numbers among the
        features are not looked at.
        """
        label, numeric, fields = self._labels[0], self._numeric_label, self.fields
        ignore, has_ignored = self._ignore, self._has_ignored
        names: tuple[str, ...] = ()
        ignored: list[str] = []
        xs: list[dict[str, Any]] = []
        ys: list[Any] = []
        for record in records:
            if type(record) is not dict:
                break
            try:
                x = record.copy() if fields is None else self._converted(record, fields)
            except InputError:
                break
            y = x.pop(label, None)
            kind = type(y)
            if kind is not bool and (numeric or not y.strip() if kind is str else not _is_plain_number(y)):
                break
            if has_ignored and fields is None:
                if (present := tuple(x)) != names:  # most records have the names of the one before
                    names, ignored = present, [name for name in present if ignore[name]]
                for name in ignored:
                    del x[name]
            xs.append(x)
            ys.append(y)
        return xs, ys

    def weight_of(self, record: Mapping[str, Any]) -> float:
        """Return the weight of `record`, which is 1 without a weight field.

        Raise `InputError` if it is missing, or no number that a weight can be.
        """
        if self.weight is None:
            return 1.0
        w, where = record.get(self.weight), f'field "{self.weight}"'
        if isinstance(w, bool) or not isinstance(w, (int, float)):
            value = "null" if self.weight in record else "no such field"
            raise InputError(
                f"Expected a weight, got {value if w is None else f'{type(w).__name__} {shorten(w)}'} - at {where}"
            )
        return as_weight(w, where)

    def _check_outside(self, name: str, value: float) -> None:
        """Count a number far outside its range; raise an error for NaN, infinity or a number that is too large."""
        if not -LARGEST <= value <= LARGEST:
            what = f"a number of at most {LARGEST:g}" if -inf < value < inf else "a finite number"
            raise InputError(f'Expected {what}, got {shorten(value)} - at field "{name}"')
        self.ranges.outside(name, value)

    def _is_input(self, name: str) -> bool:
        if self._ignore[name] or name in self._labels:
            return False
        return self.fields is None or name not in self.fields or self.fields.type_of(name) not in UNSEEN

    def _unusable(self, name: str, value: Any) -> InputError:
        got = f'got {type(value).__name__} {shorten(value)} - at field "{name}"'
        if name in self._labels:
            return LabelError(f"Expected a number or a string as label, {got}")
        return InputError(f"Expected a number or a string, {got}{self.types.remedy(name, value)}")

    def _not_a_number(self, name: str, text: str) -> InputError:
        reason = f'Expected a number as before, got the string {shorten(text)} - at field "{name}"'
        return InputError(reason + self.types.remedy(name, text))

    def check_again(self, x: Mapping[str, Any]) -> None:
        """Raise an InputError for pending features with strings in fields where numbers have been learned since."""
        numbers = self.numbers
        for name, value in x.items():
            if isinstance(value, str) and name in numbers:
                raise self._not_a_number(name, value)

    def take(self, record: Mapping[str, Any], *, is_labelled: bool) -> tuple[dict[str, Any], Any]:
        """Return the features and the label of a record that is read once, and learn the types of its fields.

        `is_labelled` says whether it must have features and a label. Raise `InputError` as `split` does, or else as
        `read` does. Types have been learned then, but the length of a vector only if it is the reason.
        """
        self.count(record)
        try:
            example = self.split(record) if is_labelled else self.read(record)
        except VectorLengthError:
            self._count_vectors(record)
            raise
        self._count_vectors(record)
        return example

    def _count_vectors(self, record: Mapping[str, Any]) -> None:
        if self.fields is not None:
            self.fields.count_vectors(record)

    def count(self, record: Mapping[str, Any]) -> None:
        """Count the types of the fields of a record, whether it is refused or not."""
        others: Collection[str] = self._labels
        if self._has_ignored:
            ignore = self._ignore
            others = {*others, *[name for name in record if ignore[name]]}
        if self.fields is not None:
            self.fields.count_texts(record)
            others = {*others, *self.fields.passing(record)}
            self._note_numbers(record, self.fields.number_fields, self.fields.notations)
        for name in self._number_labels:
            self._notations.count(name, record.get(name))
        self._note_numbers(record, self._number_labels, self._notations)
        self.types.count(record, others, self._is_input)

    def _note_numbers(self, record: Mapping[str, Any], names: Iterable[str], notations: Notations) -> None:
        """Write to the log which numbers may mean others."""
        for name in names:
            value = record.get(name)
            if not isinstance(value, str):
                self.types.note(two_notations(name, value, notations.of(name)))
            elif notations.is_open(name):
                self.types.note(two_meanings(name, value))

    def count_numbers(self, names: Iterable[str], n: int) -> None:
        """Count the types of n records with numbers in these fields."""
        fields = self.fields
        if fields is not None:
            fields.count_components(names, n)
        self.types.count_numbers(names if fields is None else [name for name in names if name not in fields], n)

    def state(self) -> dict[str, Any]:
        """Return the types of fields for a checkpoint."""
        fields = None if self.fields is None else self.fields.state()
        return {
            "types": self.types.state(),
            "texts": self.types.texts.state(),
            "fields": fields,
            "labels": self._notations.state(),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the types of fields; where a declaration has changed, the field begins again."""
        before = saved["fields"] or {"types": {}, "lengths": {}, "notations": {}}
        types = {} if self.fields is None else self.fields.state()["types"]
        changed = {n for n in types.keys() | before["types"].keys() if types.get(n) != before["types"].get(n)}
        self.types.restore({name: counts for name, counts in saved["types"].items() if name not in changed})
        self.types.texts.restore({name: counts for name, counts in saved["texts"].items() if name not in changed})
        self._notations.restore(saved["labels"], self._number_labels)
        if self.fields is not None:
            self.fields.restore(before)

    def join(self, others: Sequence[Mapping[str, Any]]) -> None:
        """Continue with the types of fields that others have found who began with the types of this object."""
        self.restore(others[0])
        for other in others[1:]:
            self.types.join(other["types"])
            self._notations.join(other["labels"], self._number_labels)
            self.types.texts.join(other["texts"])
            if self.fields is not None:
                self.fields.join(other["fields"])


def _listed(names: Sequence[str]) -> str:
    """Return the first of some names of fields, and how many more there are."""
    first = ", ".join(f'"{name[:LONGEST_NAME]}"' for name in names[:MOST_LISTED])
    return first + (f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else "")


def _nothing(name: str, record: Mapping[str, Any]) -> str:
    """Return how a label is missing; another field may have nearly its name, as in a header ``a, b, y``."""
    if name in record:
        return "an empty text" if isinstance(record[name], str) and not record[name].strip() else "null"
    near = next((other for other in record if str(other).strip().lower() == name.strip().lower()), None)
    return "no such field" if near is None else f'no such field, but "{near}"'


def _is_plain_number(value: Any) -> bool:
    """Return whether a value is a number of Python of usable size."""
    kind = type(value)
    return (kind is float or kind is int or kind is bool) and -LARGEST <= value <= LARGEST
