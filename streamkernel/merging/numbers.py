"""Counters and running means of models that learnt apart, as those of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel import state
from streamkernel.rows import F64, I64

_MEANS = [state.SQUARE, state.FOURTH]
"""Means over all examples."""


def added(parts: Sequence[Any], base: Any) -> Any:
    """Return the base and what each part has more than it."""
    return sum(parts[1:], parts[0]) - (len(parts) - 1) * base


def merged_numbers(parts: Sequence[Mapping[str, Any]], base: Mapping[str, Any], weights: F64) -> tuple[I64, F64]:
    """Return `ints` and `reals` as :mod:`streamkernel.state` names them.

    Parameters
    ----------
    parts, base
        Summaries with ``ints``, ``reals``, and ``is_mean``: whether the offset is one over all examples.
    weights
        Of the parts.
    """
    ints: I64 = added([part["ints"] for part in parts], base["ints"])
    ints[state.BLOCKS] = max(part["ints"][state.BLOCKS] for part in parts)
    ints[state.WAITING] = 0
    reals: F64 = np.stack([part["reals"] for part in parts]).T @ weights
    reals[state.SCALE], reals[state.SCALE_SUM] = 1.0, 0.0
    reals[state.BOUND] = max(part["reals"][state.BOUND] for part in parts)
    reals[state.ETA] = parts[-1]["reals"][state.ETA]
    examples = [int(part["ints"][state.EXAMPLES]) for part in parts]
    before, seen = int(base["ints"][state.EXAMPLES]), int(ints[state.EXAMPLES])
    offsets = [state.OFFSET, state.PREDICTED_OFFSET] if parts[0]["is_mean"] else []
    for place in (*_MEANS, *offsets):
        sums = [n * part["reals"][place] for n, part in zip(examples, parts, strict=True)]
        reals[place] = added(sums, before * base["reals"][place]) / max(1, seen)
    return ints, reals
