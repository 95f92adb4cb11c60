"""Labels of one text in several forms, as ``1`` and ``"1"``, which would be one key of a JSON object twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_BOOLEANS = (("false", "False"), ("true", "True"))
"""Texts of ``False`` and ``True`` in JSON and in Python, which has them equal to 0 and 1."""


class LabelForms:
    """The form that each label had when it came first; other forms with its text are converted to it.

    Parameters
    ----------
    labels
        Labels in the order in which they came.

    Examples
    --------
    >>> forms = LabelForms([1, "no"])
    >>> forms.known(["1", 1.0, "no", "yes", "no"]), forms.of("yes")
    ([1, 1, 'no'], 'yes')
    """

    def __init__(self, labels: Iterable[Any] = ()) -> None:
        self._forms: dict[Any, Any] = {}
        for label in labels:
            self.add(label)

    def __contains__(self, label: Any) -> bool:
        """Return whether a label is known in some form."""
        return label in self._forms

    def __len__(self) -> int:
        """Return the number of labels."""
        return len(self.labels)

    @property
    def labels(self) -> list[Any]:
        """The labels in their first forms, in the order in which they came."""
        return list(dict.fromkeys(self._forms.values()))

    def add(self, label: Any) -> None:
        """Add a label, unless it is known in some form."""
        if label not in self._forms:
            self._forms[label] = label
            for other in namesakes(label):
                self._forms.setdefault(other, label)

    def of(self, label: Any) -> Any:
        """Return the first form of a label, which is the label itself if it is new."""
        return self._forms.get(label, label)

    def known(self, labels: Sequence[Any]) -> list[Any]:
        """Return the first forms of labels, up to a label that is new."""
        forms = list(map(self._forms.get, labels))
        return forms[: forms.index(None)] if None in forms else forms


def namesakes(label: Any) -> list[Any]:
    """Return other labels with the text of a label: the texts of a number, or the number whose text it is.

    Examples
    --------
    >>> namesakes(7), namesakes("7"), namesakes("07"), namesakes(True), namesakes("no")
    (['7', '7.0'], [7], [], ['1', '1.0', 'true', 'True'], [])
    """
    if not isinstance(label, str):
        return _texts(label)
    number = _number(label)
    return [number] if number is not None and label in _texts(number) else []


def _number(text: str) -> Any:
    for value, texts in zip((False, True), _BOOLEANS, strict=True):
        if text in texts:
            return value
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return None


def _texts(number: Any) -> list[str]:
    """Return a number as JSON and Python write it, as an integer and as a float."""
    if not abs(number) < 1e300:
        return []
    if number == int(number) and abs(number) < 1 << 64:
        whole = int(number)
        texts = [str(whole), *_exponents(float(number))]
        return [*texts, *(_BOOLEANS[whole] if whole in (0, 1) else ())]
    return _exponents(float(number))


def _exponents(number: float) -> list[str]:
    """Return the text of a float in Python, and in JSON if it is another one: ``1e-07`` and ``1e-7``."""
    text = repr(number)
    return list(dict.fromkeys((text, text.replace("e+", "e").replace("e-0", "e-"))))
