"""Fields with declared types, and markers of missing values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from river import base

from streamkernel.documentation import documented
from streamkernel.errors import InputError
from streamkernel.features.rows import is_missing
from streamkernel.field_types.declared import (
    OF_TEXTS,
    TYPES,
    ByPath,
    Counts,
    DeclaredType,
    Notations,
    Spec,
    convert,
    declared_type,
    markers,
    vector_length,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_VOTES = 32
"""The largest number of votes for the length of a field: as many vectors of other lengths in succession change it."""
UNSEEN = ("ignore", "identifier")
"""Types of fields that are no inputs."""
METHODS = dict.fromkeys(
    (
        "learn_one",
        "learn_many",
        "count_texts",
        "count_vectors",
        "passing",
        "transform_one",
        "transform_many",
        "restore",
        "join",
    ),
    """
Parameters
----------
x : dict
    The fields by name.
X : DataFrame of shape (n_examples, n_fields)
    The fields in columns.
state : dict
    The result of :meth:`Fields.state`.
""",
)
"""Parts of docstrings that the methods of `Fields` have in common."""


class VectorLengths(Counts):
    """The length of the vectors in each field, by a vote in which a newer vector weighs more.

    Examples
    --------
    >>> lengths = VectorLengths()
    >>> for length in (3, 2, 2, 2, 5):
    ...     lengths.count("v", length)
    >>> lengths.of("v")
    2
    """

    _weight = 1

    def of(self, name: str) -> int | None:
        """Return the length of the vectors in a field, or ``None`` if there has been none."""
        return self._counts[name][0] if name in self._counts else None

    def count(self, name: str, length: int, n: int = 1) -> None:
        """Count n vectors of a field."""
        vote = self._counts.setdefault(name, [length, 0])
        vote[1] = min(vote[1] + n, MOST_VOTES) if length == vote[0] else vote[1] - n
        if vote[1] <= 0:
            vote[:] = length, 1


@documented("", METHODS)
class Fields(base.Transformer):
    """Converts fields to the types that a user declares, and leaves missing values out.

    Missing are ``None``, NaN, NaT and ``pandas.NA``, and the values of `missing`. Fields that are not declared pass
    unchanged.

    Parameters
    ----------
    types : dict
        The type of each declared field, or a table as ``{"type": "time", "unit": "ms"}``:

        ``"number"``
            also written as text: ``"0,5"``, ``"1,016.30"``, ``"12%"``. Other texts of the field say what ``"1,234"``
            is, or the key ``decimal``, which is ``"."`` or ``","``. Without either it is 1234
        ``"category"``
            a number is one, too
        ``"text"``
            each different word becomes an input ``field=word``
        ``"time"``
            ISO 8601, or a number with the key ``unit``: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; becomes seconds since
            1970. The key ``zone`` is for times without one, UTC by default
        ``"vector"``
            a list of numbers, which become ``field.0`` and so on; all have the length that most have
        ``"identifier"``, ``"ignore"``
            no input, as are the fields inside: with ``"user"`` also ``"user.age"``, unless it is declared itself

        Each may have the key ``missing``, a list of values.
    missing : sequence, default ()
        Strings and numbers that mean in any field that there is no value.

    Raises
    ------
    ValueError
        If there is no such type, or a key does not go with it.

    Examples
    --------
    >>> from streamkernel import Fields, KernelClassifier
    >>> fields = Fields({"icd": "category", "at": {"type": "time", "unit": "ms"}, "id": "ignore"}, missing=["NA"])
    >>> fields.transform_one({"icd": 250.0, "at": 86_400_000, "id": 17, "age": "NA", "size": 3})
    {'icd': '250', 'at': 86400.0, 'size': 3}
    >>> model = fields | KernelClassifier()
    >>> model.learn_one({"icd": 250.0, "size": 3}, True)
    >>> fields.transform_one({"at": "noon"})
    Traceback (most recent call last):
        ...
    streamkernel.errors.InputError: Expected a time in milliseconds or ISO 8601, got 'noon' - at field "at"; if it means
    that there is no value, declare missing = ["noon"]
    """

    def __init__(self, types: Mapping[str, Spec], missing: Sequence[str | float] = ()) -> None:
        self.types = types
        self.missing = missing
        self._declared: dict[str, DeclaredType] = {}
        for name, spec in types.items():
            try:
                self._declared[name] = declared_type(spec)
            except ValueError as error:
                raise ValueError(f"{str(error)[:1].upper()}{str(error)[1:]} - at types[{name!r}]") from None
        self._unseen = self._unseen_but(())
        self._markers = markers(missing)
        self.lengths = VectorLengths()
        self.notations = Notations({name: declared.notation for name, declared in self._declared.items()})
        self._of_type = {kind: [n for n, declared in self._declared.items() if declared.type == kind] for kind in TYPES}
        self._numeric: set[str] = set()
        self._texts = tuple(
            name for name, declared in self._declared.items() if declared.type in OF_TEXTS or declared.notation
        )
        self._name_numbers()

    @property
    def number_fields(self) -> list[str]:
        """The fields that are declared as numbers."""
        return self._of_type["number"]

    @property
    def numbers(self) -> set[str]:
        """The declared fields, or components of vectors, that are numbers."""
        return self._numeric

    @property
    def texts(self) -> tuple[str, ...]:
        """The declared fields that a source has to leave as text, because their texts may look like numbers."""
        return self._texts

    def __contains__(self, name: object) -> bool:
        """Return whether a field is declared, or is in a declared vector or in a field that is not an input."""
        if name in self._declared or self._unseen[name]:
            return True
        of, dot, number = str(name).rpartition(".")
        return bool(dot) and number.isdecimal() and of in self._of_type["vector"]

    def keep(self, names: Iterable[str]) -> None:
        """Let fields such as labels pass, unless they are declared themselves.

        Parameters
        ----------
        names : iterable of str
            The fields, which may be inside one that is not an input.
        """
        self._unseen = self._unseen_but(names)

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn the lengths of vectors and the notations of numbers that are written as text."""
        self.count_texts(x)
        self.count_vectors(x)

    def count_texts(self, x: Mapping[Any, Any]) -> None:
        """Learn the notations of numbers that are written as text."""
        for name in self._of_type["number"]:
            if isinstance(value := x.get(name), str) and not self._lacks(value, self._declared[name]):
                self.notations.count(name, value)

    def count_vectors(self, x: Mapping[Any, Any]) -> None:
        """Learn the lengths of vectors."""
        for name in self._of_type["vector"]:
            length = vector_length(x.get(name))
            if length is not None:
                before = self.lengths.of(name)
                self.lengths.count(name, length)
                if self.lengths.of(name) != before:
                    self._name_numbers()

    def count_components(self, inputs: Iterable[str], n: int) -> None:
        """Count the vectors of n examples with these inputs, which have the lengths of their fields.

        Parameters
        ----------
        inputs : iterable of str
            The names of the inputs.
        n : int
            The number of examples.
        """
        if self._of_type["vector"]:
            for name in {str(one).rpartition(".")[0] for one in inputs}.intersection(self._of_type["vector"]):
                if (length := self.lengths.of(name)) is not None:
                    self.lengths.count(name, length, n)

    def passing(self, x: Mapping[str, Any]) -> set[str]:
        """Return the fields of an example that are declared or missing."""
        return {name for name, value in x.items() if name in self or self._lacks(value, None)}

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return the inputs.

        Raises
        ------
        InputError
            If a value does not fit; names the field, the type and the value.
        """
        inputs: dict[Any, Any] = {}
        unseen = self._unseen
        for name, value in x.items():
            if unseen[name]:
                continue
            declared = self._declared.get(name)
            if self._lacks(value, declared):
                continue
            if declared is None:
                if name in inputs:
                    raise _twice(name, name)
                inputs[name] = value
                continue
            more = convert(name, value, declared, self.lengths.of(name), self.notations.of(name))
            for of_field in more.keys() & inputs.keys():
                raise _twice(of_field, name)
            inputs |= more
        return inputs

    def learn_many(self, X: pd.DataFrame) -> None:
        """Learn from each row what :meth:`learn_one` does."""
        names = [name for kind in ("vector", "number") for name in self._of_type[kind] if name in X]
        for row in X[names].to_dict("records"):
            self.learn_one(row)

    def transform_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the inputs of each row; inputs that a row lacks are NaN.

        Raises
        ------
        InputError
            If a value does not fit; names the field, the type and the value.
        """
        import pandas as pd

        rows = [self.transform_one(row) for row in X.to_dict("records")]
        return pd.DataFrame(rows, index=X.index)

    def type_of(self, name: str) -> str:
        """Return the declared type of a field, or of the field around it.

        Parameters
        ----------
        name : str
            The field.
        """
        while name not in self._declared:
            name = name.rpartition(".")[0]
        return self._declared[name].type

    def state(self) -> dict[str, Any]:
        """Return the declared types, and what has been learned, as plain values."""
        types = {name: dict(spec) if isinstance(spec, Mapping) else spec for name, spec in self.types.items()}
        learned = {"lengths": self.lengths.state(), "notations": self.notations.state()}
        return {"types": types, "missing": list(self.missing), **learned}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Fields:
        """Return the fields with a state.

        Parameters
        ----------
        state : dict
            The result of :meth:`state`.
        """
        fields = cls(state["types"], state["missing"])
        fields.restore(state)
        return fields

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with what fields of a state have learned, where the same types are declared."""
        self.lengths.restore(state["lengths"], self._of_type["vector"])
        self.notations.restore(state["notations"], self._of_type["number"])
        self._name_numbers()

    def join(self, state: Mapping[str, Any]) -> None:
        """Take from other fields what they have learned from more values."""
        self.lengths.join(state["lengths"], self._of_type["vector"])
        self.notations.join(state["notations"], self._of_type["number"])
        self._name_numbers()

    def _name_numbers(self) -> None:
        """Name the inputs that are numbers."""
        components = {f"{name}.{i}" for name in self._of_type["vector"] for i in range(self.lengths.of(name) or 0)}
        self._numeric = {*self._of_type["number"], *self._of_type["time"], *components}

    def _unseen_but(self, names: Iterable[str]) -> ByPath:
        """Return the fields that are no inputs, in which some others, unless they are declared, are inputs."""
        is_unseen = {name: declared.type in UNSEEN for name, declared in self._declared.items()}
        return ByPath(dict.fromkeys(names, False) | is_unseen)

    def _lacks(self, value: Any, declared: DeclaredType | None) -> bool:
        """Return whether a value is missing."""
        if is_missing(value):
            return True
        if not isinstance(value, (str, int, float, np.number, Decimal)) or isinstance(value, bool):
            return False
        return value in self._markers or (declared is not None and value in declared.missing)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"types": {}}


def _twice(input: Any, name: Any) -> InputError:
    """Return the error for a field that becomes an input of another field."""
    return InputError(f'Expected one value for each input, got two of "{input}" - at field "{name}"')
