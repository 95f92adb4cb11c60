"""Merging of counters and running means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from streamkernel.features.rows import F64
from streamkernel.learners.span import BOUNDED, LEAST, SPREAD, USUAL
from streamkernel.learners.state import LEARNED_INTS, LEARNED_REALS, NUMBERS

_MEANS = ("mean_square", "mean_fourth")
"""Means over all examples, whatever their weights."""


def add_parts(parts: Sequence[Any], base: Any) -> Any:
    """Return the base plus each part's increase."""
    return sum(parts[1:], parts[0]) - (len(parts) - 1) * base


def no_numbers() -> Any:
    """Return the scalar state before the first example."""
    return np.zeros(1, NUMBERS)[0]


class CountingSummary(Protocol):
    """A summary with the scalar state of a function."""

    @property
    def numbers(self) -> Any:
        """The record of :mod:`streamkernel.learners.state`."""

    @property
    def is_mean(self) -> bool:
        """Whether the offset is a mean over all examples."""

    @property
    def span(self) -> F64:
        """The range of each target and what belongs to it, shape (targets, entries)."""


def merge_numbers(parts: Sequence[CountingSummary], base: CountingSummary, weights: F64) -> Any:
    """Return the merged learned part of the scalar state, as a record of :mod:`streamkernel.learners.state`.

    Parameters
    ----------
    parts, base
        Summaries of the functions, and of their common base.
    weights
        The weights of the parts.
    """
    own, root, found = [part.numbers for part in parts], base.numbers, no_numbers()
    for name in LEARNED_INTS:
        found[name] = add_parts([int(part[name]) for part in own], int(root[name]))
    found["blocks"], found["buffered"] = max(part["blocks"] for part in own), 0
    for name in LEARNED_REALS:
        found[name] = np.array([part[name] for part in own]) @ weights
    found["scale"], found["scale_sum"] = 1.0, 0.0
    found["gradient_sum"] = add_parts([float(part["gradient_sum"]) for part in own], float(root["gradient_sum"]))
    found["weight"] = add_parts([float(part["weight"]) for part in own], float(root["weight"]))
    found["gradient_bound"] = max(part["gradient_bound"] for part in own)
    found["last_step"] = own[-1]["last_step"]
    means = {"examples": _MEANS, "weight": ("offset", "predicted_offset") if parts[0].is_mean else ()}
    for count, names in means.items():
        for name in names:
            sums = [float(part[count]) * float(part[name]) for part in own]
            found[name] = add_parts(sums, float(root[count]) * float(root[name])) / (float(found[count]) or 1.0)
    return found


def merge_spans(parts: Sequence[CountingSummary], base: CountingSummary) -> F64:
    """Return the range of each target, and the other entries of its span, over all parts, shape (targets × entries,).

    Parameters
    ----------
    parts, base
        As for :func:`merge_numbers`.
    """
    spans = np.array([part.span for part in parts if part.numbers["examples"]] or [np.zeros_like(parts[0].span)])
    root = base.span if base.numbers["examples"] else np.zeros_like(spans[0])
    merged = spans.max(axis=0)
    merged[:, LEAST] = spans[:, :, LEAST].min(axis=0)
    merged[:, [SPREAD, USUAL]] = spans[:, :, [SPREAD, USUAL]].mean(axis=0)
    merged[:, BOUNDED:] = root[:, BOUNDED:] + (spans - root)[:, :, BOUNDED:].sum(axis=0)
    return np.asarray(merged.ravel())
