"""The errors of the library, apart from Python's own, and checks of parameters that raise them."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


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
