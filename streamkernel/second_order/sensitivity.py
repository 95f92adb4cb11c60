"""Mean squared derivatives of f along each name, collected with the gradients of a metric.

The derivative along a name is by its value, in units of the scale in use: how much f changes per deviation of the name.
Importances are computed from its mean square.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel import tensor_file

MOST_NAMES = 1024
"""Names at most, the first ones; their table takes 48 kB."""

SENSITIVITY = np.dtype([("key", "u8"), ("squares", "f8"), ("present", "f8")])
"""Of a name: its hash, 0 for an empty row; the sum of squared derivatives of f along it, of the gradients at examples
that have it; and how many these are."""

NAMES, WEIGHT = 0, 1
"""Entries of `totals`: names in the table, and gradients in the sums; the older ones count less."""


def empty() -> tuple[Any, Any]:
    """Return the table and the totals before the first gradient."""
    return np.zeros(2 * MOST_NAMES, SENSITIVITY), np.zeros(2)


def of_names(rows: Any, weight: float) -> tuple[Any, Any]:
    """Return a table with these rows, of different names, and its totals."""
    table, totals = empty()
    keys = table["key"]
    for row in rows[:MOST_NAMES]:
        at = int(row["key"]) % len(table)
        while keys[at]:
            at = (at + 1) % len(table)
        table[at] = row
    totals[:] = min(len(rows), MOST_NAMES), weight
    return table, totals


def rows_of(table: Any) -> Any:
    """Return the rows of the names in a table, in the order of their hashes."""
    return np.sort(table[table["key"] > 0], order="key")


def merge_tables(tables: Sequence[Any], weights: Sequence[float]) -> tuple[Any, Any]:
    """Return the sum of several tables; beyond the limit, the names of the most examples stay."""
    rows = np.concatenate([rows_of(table) for table in tables])
    keys, at = np.unique(rows["key"], return_inverse=True)
    summed = np.zeros(len(keys), SENSITIVITY)
    summed["key"] = keys
    for name in ("squares", "present"):
        summed[name] = np.bincount(at, rows[name], len(keys))
    return of_names(summed[np.argsort(-summed["present"], kind="stable")], float(sum(weights)))


def tensors(table: Any, totals: Any) -> dict[str, Any]:
    """Return the tensors of a file."""
    rows = rows_of(table)
    return {
        "metric.sensitive_names": rows["key"].view(np.int64).copy(),
        "metric.sensitivities": np.stack([rows["squares"], rows["present"]], axis=1),
        "metric.weight": totals[WEIGHT:].copy(),
    }


def restore(stored: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the table and totals in a file, or empty ones; raise a ValueError if one is missing or does not fit."""
    if "metric.sensitive_names" not in stored:
        return empty()
    names = tensor_file.require_tensor(stored, "metric.sensitive_names", np.int64, (None,)).view(np.uint64)
    n = len(names)
    if n > MOST_NAMES or (names == 0).any() or (names[1:] <= names[:-1]).any():
        raise ValueError(f"expected up to {MOST_NAMES} sorted hashes as metric.sensitive_names, got {n} others")
    sums = tensor_file.require_tensor(stored, "metric.sensitivities", np.float64, (n, 2))
    (weight,) = tensor_file.require_tensor(stored, "metric.weight", np.float64, (1,)).tolist()
    if not (
        0.0 <= weight < np.inf and np.isfinite(sums).all() and (sums >= 0.0).all() and (sums[:, 1] <= weight).all()
    ):
        raise ValueError("expected sums over squared derivatives as metric.sensitivities, got other numbers")
    rows = np.zeros(n, SENSITIVITY)
    rows["key"], rows["squares"], rows["present"] = names, sums[:, 0], sums[:, 1]
    return of_names(rows, weight)
