"""The features that a pruned function has kept: their origins, and their tensor in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.compiled_kernel import BLOCK
from streamkernel.features.rows import I64


def features_at(kept: I64, block_size: int, positions: I64) -> I64:
    """Return block, index and scale of the features at these positions, as `features.compiled_kernel` does."""
    block = positions // block_size
    features: I64 = np.stack([block + kept[-1, BLOCK], positions % block_size, block], axis=1)
    packed = positions < len(kept) - 1
    features[packed] = kept[positions[packed]]
    return features


def pack(kept: I64) -> dict[str, Any]:
    """Return the kept features as a tensor, if there are any."""
    return {"kept": kept.copy()} if len(kept) > 1 else {}


def unpack(tensors: Mapping[str, Any]) -> I64 | None:
    """Return the kept features in `tensors`, or ``None``.

    Raises
    ------
    ValueError
        If these are not features that a function can keep.
    """
    if "kept" not in tensors:
        return None
    kept: I64 = tensor_file.require_tensor(tensors, "kept", np.int64, (None, 3))
    if len(kept) < 2 or (kept < 0).any() or (kept >= 1 << 62).any() or kept[-1, 2]:
        raise ValueError("expected features of whole blocks as kept")
    return kept
