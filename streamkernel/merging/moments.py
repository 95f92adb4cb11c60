"""Merging of scales: the moments of all events, and the scales in use, which may have changed in one part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel.errors import MergeError
from streamkernel.features.rows import I64
from streamkernel.features.scale_moments import HORIZON
from streamkernel.features.scale_table import MOST_NAMES
from streamkernel.features.scaling import MOMENTS
from streamkernel.learners import schedule
from streamkernel.merging.numbers import add_parts


def merge_scales(parts: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the tensors of the merged :class:`~streamkernel.features.scaling.Scales`.

    A part has k values of mean m and sum of squares M about the mean. Relative to one c for all parts of a name (Chan,
    Golub and LeVeque 1983), k, s = k(m - c) and q = M + k(m - c)² are sums over the parts, in which the base counts
    once. The last value comes from the first part.

    The scale in use of a name is the base's, or the scale of the part that has changed it since. What the other parts
    have learned is added as it is: a model that changes a scale keeps what it has learned, too.

    Parameters
    ----------
    parts, base
        Results of `Scales.tensors`: for each part, and for the common base, or ``None``.

    Raises
    ------
    MergeError
        If a name is scaled differently: without a base at all, with a base by two parts that have changed it.
    """
    everything = [*parts, *([] if base is None else [base])]
    names: I64 = np.unique(np.concatenate([part["scales.names"] for part in everything]).view(np.uint64)).view(np.int64)
    known = np.zeros((len(everything), len(names)), bool)
    moments = np.zeros((len(everything), len(names), len(MOMENTS)))
    in_use = np.zeros((len(everything), len(names), 2))
    for i, part in enumerate(everything):
        at = np.searchsorted(names.view(np.uint64), part["scales.names"].view(np.uint64))
        known[i, at], moments[i, at], in_use[i, at] = True, part["scales.moments"], part["scales.in_use"]
    first = known.argmax(axis=0)
    every = np.arange(len(names))
    before = in_use[first, every] if base is None else in_use[-1]  # of a name that is new it is 0
    has_changed = known & (in_use != before).any(axis=2)
    now = np.where(has_changed.any(axis=0)[:, None], in_use[has_changed.argmax(axis=0), every], before)
    differ = has_changed.any(axis=0) if base is None else (has_changed & (in_use != now).any(axis=2)).any(axis=0)
    if differ.any():
        raise MergeError(
            f"Expected models with equal scales of their inputs, got {differ.sum()} of {len(names)} inputs on other "
            "scales; give both a kernel, or let both continue from one model and merge them before both change scales"
        )
    centre = moments[first, every, 1]
    off = np.where(known, moments[:, :, 1] - centre, 0.0)
    weights, n = (np.stack([part[f"scales.{name}"] for part in everything]) for name in ("weights", "n"))
    share = np.ones(len(everything))
    if base is not None:
        left = [_share_left(base, part) for part in parts]
        share[-1] = np.prod(left) - sum(left)
    sums = (moments[:, :, 0], moments[:, :, 0] * off, moments[:, :, 2] + moments[:, :, 0] * off**2, weights[:, :1])
    count, s, q, (weight,) = (share @ values for values in sums)
    mean = np.divide(s, count, out=np.zeros_like(s), where=count > 0.0)
    found = [np.minimum(count, weight), centre + mean, np.maximum(q - s * mean, 0.0)]
    found += [np.clip(share @ moments[:, :, i], 0.0, weight) for i in range(3, len(MOMENTS) - 1)]
    found.append(moments[first, every, -1])
    kept = slice(MOST_NAMES)
    return {
        "scales.n": add_parts([*n[: len(parts)]], n[-1] if base is not None else 0),
        "scales.weights": np.array([weight, weights[:, 1].max()]),
        "scales.names": names[kept],
        "scales.moments": np.stack(found, axis=1)[kept],
        "scales.in_use": now[kept],
    }


def _share_left(base: Mapping[str, Any], part: Mapping[str, Any]) -> float:
    """Return the weight that the moments of a base still have in a part, whose moments are halved periodically."""
    (n,), (last,), weight, left = base["scales.n"], part["scales.n"], base["scales.weights"][0], 1.0
    if part["scales.weights"][0] == weight + last - n:
        return left
    while (due := n + schedule.until_due(int(n))) <= last:
        n, weight = due, weight + due - n
        if weight >= HORIZON:
            weight, left = 0.5 * weight, 0.5 * left
    return left
