"""Values that a field of a record can have in Python: those that JSON can hold, with what it holds, and others."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DAY = datetime.datetime(2026, 11, 28, 7, 30, tzinfo=datetime.UTC)
AS_JSON = {
    "an integer": (7, 7),
    "one of more than 64 bits": (2**70, 2**70),
    "a negative one": (-(2**63) - 1, -(2**63) - 1),
    "an unsigned one": (2**64 - 1, 2**64 - 1),
    "a decimal number": (Decimal("0.10"), 0.1),
    "NaN": (float("nan"), None),
    "infinity": (float("inf"), None),
    "a decimal NaN": (Decimal("NaN"), None),
    "a lone surrogate": ("a\ud800", "a\\ud800"),
    "bytes": (b"text", "text"),
    "bytes that are no text": (b"\xff", "\\xff"),
    "a time": (DAY, "2026-11-28T07:30:00+00:00"),
    "a date": (DAY.date(), "2026-11-28"),
    "a UUID": (UUID(int=7), str(UUID(int=7))),
    "numbers of NumPy": ([np.float32(0.5), np.int64(3), np.bool_(True)], [0.5, 3, True]),
    "keys": (
        {
            2**70: 1,
            Decimal("1.50"): 2,
            b"\xff": 3,
            "\udcff": 4,
            np.int64(5): 5,
            True: 6,
            None: 7,
            0.5: 8,
            DAY.date(): 9,
        },
        {str(2**70): 1, "1.50": 2, "\\xff": 3, "\\udcff": 4, "5": 5, "true": 6, "null": 7, "0.5": 8, "2026-11-28": 9},
    ),
    "a deep list": (nested(200), nested(200)),
    "a long text": ("x" * 30_000, "x" * 30_000),
}
NO_JSON = {
    "a deeper list": nested(400),
    "a much deeper list": nested(100_000),
    "a circle": CIRCLE,
    "an integer that Python does not show": 10**5000,
    "an object": object(),
    "one that cannot be shown": Unshowable(),
    "a set": {1},
    "a complex number": 1j,
    "a tuple as a key": {(1, 2): 3},
}
VALUES = {name: value for name, (value, _) in AS_JSON.items()} | NO_JSON
