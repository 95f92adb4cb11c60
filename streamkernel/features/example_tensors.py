"""Examples, weights and the kept features of pruned functions as tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.compiled_kernel import BLOCK
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, I64, Rows
from streamkernel.tensor_file import Tensors, require_tensor


def features_at(kept: I64, block_size: int, positions: I64, sharing: int = 1) -> I64:
    """Return block, index and scale of the features at these positions, as `features.compiled_kernel` does.

    `sharing` is the number of blocks that share directions.
    """
    block = positions // block_size
    features: I64 = np.stack([(block + kept[-1, BLOCK]) // sharing, positions % block_size, block], axis=1)
    packed = positions < len(kept) - 1
    features[packed] = kept[positions[packed]]
    return features


def pack_kept(kept: I64) -> dict[str, Any]:
    """Return the kept features as a tensor, if there are any."""
    return {"kept": kept.copy()} if len(kept) > 1 else {}


def unpack_kept(tensors: Mapping[str, Any]) -> I64 | None:
    """Return the kept features in `tensors`, or ``None``.

    Raise a ValueError if these are not features that a function can keep.
    """
    if "kept" not in tensors:
        return None
    kept: I64 = tensor_file.require_tensor(tensors, "kept", np.int64, (None, 3))
    if len(kept) < 2 or (kept < 0).any() or (kept >= 1 << 62).any() or kept[-1, 2]:
        raise ValueError("expected features of whole blocks as kept")
    return kept


def pack_examples(name: str, examples: Sequence[tuple[Rows, float | F64]]) -> Tensors:
    """Return examples with their targets, one or many, as tensors, with the hashes of their names."""
    if not examples:
        return {f"{name}.targets": np.zeros(0)}
    rows = Rows.stack([row for row, _ in examples])
    return pack_weights(f"{name}.weights", rows.weights) | {
        f"{name}.targets": np.hstack([target for _, target in examples]).astype(np.float64),
        f"{name}.start": rows.start,
        f"{name}.hashes": rows.hashes.view(np.int64),
        f"{name}.readers": rows.readers,
        f"{name}.values": rows.values,
    }


def unpack_examples(
    name: str, tensors: Mapping[str, Any], directions: Directions, targets: int = 1
) -> list[tuple[Rows, Any]] | None:
    """Return the examples that :func:`pack_examples` packed under `name`, or ``None``.

    An example of several `targets` has an array of them. Raise a ValueError if the tensors do not fit together.
    """
    if f"{name}.targets" not in tensors:
        return None
    y = require_tensor(tensors, f"{name}.targets", np.float64, (None,))
    if not len(y):
        return []
    if len(y) % targets:
        raise ValueError(f"expected {targets} targets of each example as {name}.targets, got {len(y)}")
    n = len(y) // targets
    start = require_tensor(tensors, f"{name}.start", np.int64, (n + 1,))
    values = require_tensor(tensors, f"{name}.values", np.float64, (None,))
    hashes = require_tensor(tensors, f"{name}.hashes", np.int64, (len(values),))
    readers = require_tensor(tensors, f"{name}.readers", np.int64, (len(values),))
    if start[0] != 0 or start[-1] != len(values) or (np.diff(start) < 0).any():
        raise ValueError(f"expected rows that follow each other as {name}.start, got {start.tolist()[:9]}")
    weights = unpack_weights(f"{name}.weights", tensors, n)
    rows = directions.restore_rows(start, hashes.view(np.uint64), readers, values, weights)
    each = y.tolist() if targets == 1 else [*y.reshape(n, targets)]
    return [(rows.part(i, i + 1), target) for i, target in enumerate(each)]


def pack_weights(name: str, weights: F64) -> Tensors:
    """Return weights of examples as a tensor; none if all are 1."""
    return {} if (weights == 1.0).all() else {name: weights}


def unpack_weights(name: str, tensors: Mapping[str, Any], n: int) -> F64:
    """Return the weights of n examples that :func:`pack_weights` packed under `name`.

    Raise a ValueError if the tensor does not fit, or a weight is not positive.
    """
    if name not in tensors:
        return np.ones(n)
    weights: F64 = require_tensor(tensors, name, np.float64, (n,))
    if not (weights > 0.0).all():
        raise ValueError(f"expected positive weights as {name}, got {weights.min()}")
    return weights
