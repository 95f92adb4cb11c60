"""Notes for the log about number texts that may mean another number."""

from __future__ import annotations

from typing import Any

from streamkernel.engine.config.messages import to_key
from streamkernel.field_types.number_texts import COMMA, read_any_number


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
