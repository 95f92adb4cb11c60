"""The row after a change, from an envelope of Debezium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WITHOUT_ROW = ("d", "t", "m")
"""Operations after which there is no row: delete, truncate, message."""


def row_after(envelope: Mapping[str, Any]) -> Any:
    """Return the row after a change, ``None`` if there is none.

    Parameters
    ----------
    envelope
        The value of a record: the envelope itself, or an object with the envelope as ``payload`` beside its schema.

    Raises
    ------
    ValueError
        If it is no envelope.

    Examples
    --------
    >>> row_after({"before": None, "after": {"id": 7}, "op": "c"})
    {'id': 7}
    >>> row_after({"schema": {}, "payload": {"before": {"id": 7}, "after": None, "op": "d"}}) is None
    True
    >>> row_after({"id": 7})
    Traceback (most recent call last):
    ValueError: Expected an envelope of Debezium with "op" and "after", got an object with "id"
    """
    payload = envelope.get("payload")
    change = payload if isinstance(payload, dict) and "op" not in envelope else envelope
    operation, row = change.get("op"), change.get("after")
    if operation in WITHOUT_ROW:
        return None
    if operation is None or not isinstance(row, dict):
        names = ", ".join(f'"{name}"' for name in list(change)[:5]) or "no fields"
        raise ValueError(f'Expected an envelope of Debezium with "op" and "after", got an object with {names}')
    return row
