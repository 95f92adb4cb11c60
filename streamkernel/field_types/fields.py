"""Fields with declared types, and markers of missing values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from river import base

from streamkernel.errors import InputError
from streamkernel.features.rows import is_missing
from streamkernel.field_types.by_path import ByPath
from streamkernel.field_types.conversions import convert
from streamkernel.field_types.declared import OF_TEXTS, DeclaredType, Spec, declared_type, markers

if TYPE_CHECKING:
    import pandas as pd

UNSEEN = ("ignore", "identifier")
"""Types of fields that are no inputs."""


class Fields(base.Transformer):
    """Converts fields to the types that a user declares, and leaves missing values out.

    Missing are ``None``, NaN, NaT and ``pandas.NA``, and the values of `missing`. Fields that are not declared pass
    unchanged.

    Parameters
    ----------
    types : dict
        The type of each declared field, or a table as ``{"type": "time", "unit": "ms"}``:

        ``"number"``
            also written as text: ``"0,5"``, ``"1,016.30"``, ``"12%"``
        ``"category"``
            a number is one, too
        ``"text"``
            each different word becomes an input ``field=word``
        ``"time"``
            ISO 8601, or a number with the key ``unit``: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; becomes seconds since
            1970. The key ``zone`` is for times without one, UTC by default
        ``"vector"``
            a list of numbers, which become ``field.0`` and so on; the first one fixes the length
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
    streamkernel.errors.InputError: Expected a time in milliseconds or ISO 8601, got 'noon' - at field "at"
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
        self._lengths: dict[str, int] = {}
        self._numeric = {name for name, declared in self._declared.items() if declared.type in ("number", "time")}
        self._texts = tuple(name for name, declared in self._declared.items() if declared.type in OF_TEXTS)

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
        return bool(dot) and number.isdecimal() and self._is_vector(of)

    def keep(self, names: Iterable[str]) -> None:
        """Let fields such as labels pass, unless they are declared themselves.

        Parameters
        ----------
        names : iterable of str
            The fields, which may be inside one that is not an input.
        """
        self._unseen = self._unseen_but(names)

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Fix the lengths of vectors that an example is the first to have.

        Parameters
        ----------
        x : dict
            The fields by name.
        """
        for name, declared in self._declared.items():
            if declared.type == "vector" and name not in self._lengths and not self._lacks(x.get(name), declared):
                convert(name, x[name], declared, None)
                self.restore(self._lengths | {name: len(x[name])})

    def count(self, x: Mapping[str, Any]) -> set[str]:
        """Learn from an example, whatever it contains, and return its fields that are declared or missing.

        Parameters
        ----------
        x : dict
            The fields by name.
        """
        with suppress(InputError):
            self.learn_one(x)
        return {name for name, value in x.items() if name in self or self._lacks(value, None)}

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return the inputs.

        Parameters
        ----------
        x : dict
            The fields by name.

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
                inputs[name] = value
            else:
                inputs |= convert(name, value, declared, self._lengths.get(name))
        return inputs

    def learn_many(self, X: pd.DataFrame) -> None:
        """Fix the lengths of vectors by the first row that has one.

        Parameters
        ----------
        X : DataFrame of shape (n_examples, n_fields)
            The fields in columns.
        """
        vectors = [name for name, declared in self._declared.items() if declared.type == "vector" and name in X]
        for row in X[vectors].to_dict("records"):
            if all(name in self._lengths for name in vectors):
                return
            self.learn_one(row)

    def transform_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the inputs of each row; those that a row lacks are NaN.

        Parameters
        ----------
        X : DataFrame of shape (n_examples, n_fields)
            The fields in columns.

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
        """Return the declared types and the lengths of vectors as plain values."""
        types = {name: dict(spec) if isinstance(spec, Mapping) else spec for name, spec in self.types.items()}
        return {"types": types, "missing": list(self.missing), "lengths": dict(self._lengths)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Fields:
        """Return the fields with a state.

        Parameters
        ----------
        state : dict
            The result of :meth:`state`.
        """
        fields = cls(state["types"], state["missing"])
        fields.restore(state["lengths"])
        return fields

    def restore(self, lengths: Mapping[str, int]) -> None:
        """Set the lengths of the declared vectors.

        Parameters
        ----------
        lengths : dict
            The lengths by field.
        """
        self._lengths = {name: length for name, length in lengths.items() if self._is_vector(name)}
        self._numeric |= {f"{name}.{i}" for name, length in self._lengths.items() for i in range(length)}

    def _unseen_but(self, names: Iterable[str]) -> ByPath:
        """Return the fields that are no inputs, in which some others, unless they are declared, are inputs."""
        own = {name: declared.type in UNSEEN for name, declared in self._declared.items()}
        return ByPath(dict.fromkeys(names, False) | own)

    def _is_vector(self, name: str) -> bool:
        declared = self._declared.get(name)
        return declared is not None and declared.type == "vector"

    def _lacks(self, value: Any, declared: DeclaredType | None) -> bool:
        """Return whether a value is missing."""
        if is_missing(value):
            return True
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            return False
        return value in self._markers or (declared is not None and value in declared.missing)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"types": {}}
