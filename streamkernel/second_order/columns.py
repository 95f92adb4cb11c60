"""A mixture with one more column, for a new class."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features.rows import F64
from streamkernel.kernels import Kernel
from streamkernel.second_order.arrangement import Arrangement, Arranger
from streamkernel.second_order.linear.state import BOUND
from streamkernel.second_order.mixture_state import OF_MIXTURE
from streamkernel.second_order.neighbours.state import copied
from streamkernel.second_order.weights import less_certain


def with_column(live: Arrangement, arranger: Arranger, kernel: Kernel, numbers: Any, split: F64 | None) -> Arrangement:
    """Return a copy of a mixture with columns for one more class.

    Parameters
    ----------
    live, arranger, kernel
        The mixture.
    numbers
        The records of the new one.
    split
        The factors by which the single column of two classes becomes those of three; ``None`` if each class has
        a column.
    """

    def more(old: F64) -> F64:
        return np.concatenate([old, np.zeros_like(old[:1])]) if split is None else split[:, None] * old

    groups = {
        g: old._replace(newton=more(old.newton), steady=more(old.steady), sums=more(old.sums), change=more(old.change))
        for g, old in enumerate(live.groups)
    }
    function = live.state
    names = *OF_MIXTURE, "bounds", "losses", "priors", "span", "recent", "sampled"
    arrays: dict[str, Any] = {name: getattr(function, name).copy() for name in names}
    arrays |= {"level": more(function.level), "metric": function.metric}
    arrays["mixer"] = less_certain(function.mixer, int(function.numbers[0]["examples"]))
    w = function.linear.w
    w = np.concatenate([w, np.zeros_like(w[:, :1])], axis=1) if split is None else split[None, :, None] * w
    counts = function.linear.counts.copy()
    if split is not None:
        counts[BOUND] *= split.max()
    arrays["linear"] = function.linear._replace(w=w, counts=counts)  # a thread that still predicts uses the old ones
    arrays["neighbours"] = copied(function.neighbours)
    return arranger.arrange(kernel, live.directions, numbers, live.table, groups, arrays)
