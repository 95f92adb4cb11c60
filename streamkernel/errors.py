"""The errors of the library, apart from Python's own, and checks of parameters that raise them."""

from __future__ import annotations

import math
import reprlib
from numbers import Integral, Real
from typing import Any

_WIDEST = 60


class _ShortRepr(reprlib.Repr):
    """Short texts of values that are neither text nor bytes, for `shorten`."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxarray = _WIDEST // 2
        self.maxstring = self.maxother = _WIDEST + 1

    def repr_int(self, x: int, level: int) -> str:
        """Return an integer, of which Python refuses to write the longest."""
        digits = int(x.bit_length() * math.log10(2.0)) + 1
        return repr(x) if digits <= _WIDEST else f"an integer of {digits} digits"


_REPR = _ShortRepr()


class InputError(ValueError):
    """An example that cannot be learned from or predicted for; the message names the field and the value."""


class DataWarning(UserWarning):
    """Examples that can be learned and are probably not meant as they are; the message names the field.

    Examples
    --------
    Strings of digits that are codes, not numbers:

    >>> import warnings
    >>> from streamkernel import DataWarning
    >>> with warnings.catch_warnings():
    ...     warnings.filterwarnings("ignore", "field 'shop'", DataWarning)
    """


class LabelError(InputError):
    """An example whose label is missing or unusable."""


class TooManyClassesError(LabelError):
    """A new label for a model that has learned the largest allowed number of labels."""


class JoinError(InputError):
    """A record without a usable counterpart: its key or its time is invalid, or the counterpart is gone."""


class DivergedError(InputError):
    """An example that is refused because the steps have diverged."""


class NotFittedError(ValueError, AttributeError):
    """An attribute that needs more examples than the model has learned; `hasattr` is false, as in scikit-learn."""


class ModelFileError(ValueError):
    """A model file that is truncated, corrupt, of another format version or of another kind of model."""


class MergeError(ValueError):
    """Models that cannot be merged: their features, or what they learn, differ."""


def shorten(value: Any) -> str:
    """Return a value as Python shows it, in at most 60 characters, however long or deep it is.

    Examples
    --------
    >>> shorten("red"), shorten(["a", 1.5]), len(shorten("x" * 1_000_000))
    ("'red'", "['a', 1.5]", 60)
    """
    is_text = isinstance(value, (str, bytes, bytearray))
    text = repr(value[: _WIDEST + 1]) if is_text else _REPR.repr(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def is_real(value: Any) -> bool:
    """Return whether a parameter is a number, which a Boolean is not.

    Examples
    --------
    >>> is_real(1), is_real("1"), is_real(True), is_real(None)
    (True, False, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def is_count(value: Any, least: int) -> bool:
    """Return whether a parameter is an integer of at least `least`.

    Examples
    --------
    >>> is_count(2, 1), is_count(0, 1), is_count(2.0, 1), is_count(True, 1)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
