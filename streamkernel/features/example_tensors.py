"""Examples and sets of names as tensors, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, Rows
from streamkernel.tensor_file import Tensors, require_tensor


def pack_examples(name: str, examples: Sequence[tuple[Rows, float | F64]]) -> Tensors:
    """Return examples with their targets, single ones or many, as tensors; their names are kept as hashes."""
    if not examples:
        return {f"{name}.targets": np.zeros(0)}
    rows = Rows.stack([row for row, _ in examples])
    weights = {} if (rows.weights == 1.0).all() else {f"{name}.weights": rows.weights}
    return weights | {
        f"{name}.targets": np.hstack([target for _, target in examples]).astype(np.float64),
        f"{name}.start": rows.start,
        f"{name}.hashes": rows.hashes.view(np.int64),
        f"{name}.readers": rows.readers,
        f"{name}.values": rows.values,
    }


def unpack_examples(name: str, tensors: Mapping[str, Any], directions: Directions) -> list[tuple[Rows, float]] | None:
    """Return what :func:`pack_examples` packed under `name`; ``None`` if nothing was.

    Raises
    ------
    ValueError
        If the tensors do not fit together.
    """
    if f"{name}.targets" not in tensors:
        return None
    targets = require_tensor(tensors, f"{name}.targets", np.float64, (None,))
    if not len(targets):
        return []
    start = require_tensor(tensors, f"{name}.start", np.int64, (len(targets) + 1,))
    values = require_tensor(tensors, f"{name}.values", np.float64, (None,))
    hashes = require_tensor(tensors, f"{name}.hashes", np.int64, (len(values),))
    readers = require_tensor(tensors, f"{name}.readers", np.int64, (len(values),))
    if start[0] != 0 or start[-1] != len(values) or (np.diff(start) < 0).any():
        raise ValueError(f"expected rows that follow each other as {name}.start, got {start.tolist()[:9]}")
    weights = np.ones(len(targets))
    if f"{name}.weights" in tensors:
        weights = require_tensor(tensors, f"{name}.weights", np.float64, (len(targets),))
        if not (weights > 0.0).all():
            raise ValueError(f"expected positive weights as {name}.weights, got {weights.min()}")
    rows = directions.restore_rows(start, hashes.view(np.uint64), readers, values, weights)
    return [(rows.part(i, i + 1), float(target)) for i, target in enumerate(targets)]


def pack_hashes(name: str, hashes: Iterable[int]) -> Tensors:
    """Return a set of hashes as a tensor; nothing if there is none."""
    found = np.array(sorted(hashes), np.uint64).view(np.int64)
    return {name: found} if len(found) else {}


def unpack_hashes(name: str, tensors: Mapping[str, Any]) -> frozenset[int]:
    """Return what :func:`pack_hashes` returned.

    Raises
    ------
    ValueError
        If the tensor does not fit.
    """
    if name not in tensors:
        return frozenset()
    return frozenset(require_tensor(tensors, name, np.int64, (None,)).view(np.uint64).tolist())
