"""The scalar state of a learner: one record that compiled code accesses by name, and its order in files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types

from streamkernel.features.rows import F64, I64

LEARNED_INTS = ("blocks", "steps", "reused_steps", "examples", "buffered", "forced_steps")
"""The learned counters, in the order of files: blocks of features; steps; steps that added no block; examples learned;
examples buffered for a Newton step; and steps that would have added a block if the cap had allowed one."""

LEARNED_REALS = (
    "scale", "gradient_bound", "scale_sum", "squared_norm", "running_loss", "last_step", "offset", "predicted_offset",
    "error_scale", "mean_square", "mean_fourth", "gradient_sum", "distance2", "weight", "log_odds", "new_descent",
    "old_descent",
)  # fmt: skip
"""The learned real numbers, in the order of files:

* ``scale``: the lazy scale of α and β;
* ``gradient_bound``: the bound M on the derivative, or the loss's parameter if it follows the errors;
* ``scale_sum``: Σ scale × weight, for the averaged iterate;
* ``squared_norm``: Σ‖α_b‖² without the scale;
* ``running_loss``, ``last_step``: the running regularised loss, and the last step size η;
* ``offset``, ``predicted_offset``: the constant added to f, and to predictions (averaged if predictions are);
* ``error_scale``: the running mean of |f(x) - y|, or of the squared targets for second-order steps;
* ``mean_square``, ``mean_fourth``: the running means of |z|² and |z|⁴ over features and examples;
* ``gradient_sum``, ``distance2``: Σ‖∇‖², and ‖f‖² accumulated over steps, for automatic step sizes;
* ``weight``: the sum of the weights of all examples;
* ``log_odds``: s of :mod:`streamkernel.learners.scoring`;
* ``new_descent``, ``old_descent``: the shares of the loss that new features and old ones were expected to gain at the
  last check.
"""

_GIVEN_INTS = (
    "columns", "block_size", "batch_size", "most_blocks", "loss", "rule", "n_new", "n_reused", "intercept", "rule_key",
    "step_units", "parts", "terms", "components", "last_example", "closed", "looked_at", "panels", "summed",
    "kept_rows", "room_blocks", "working", "worked_at", "unit", "restarted", "compared_at", "averaging", "bandwidths",
    "doubles",
)  # fmt: skip
_GIVEN_REALS = (
    "l2", "loss_parameter", "loss_bound", "max_step_ratio", "ridge", "k_xx", "forgetting", "step_k_xx", "worked_k_xx",
    "loss_per_error", "curvature",
)  # fmt: skip

COEFFICIENTS = (
    "coef", "beta", "newton", "steady", "level", "linear.w", "weights", "signed", "positive", "neighbours.targets",
)  # fmt: skip
"""The tensors of files that scores are sums of."""

LEARNED_NUMBERS = np.dtype([(name, "i8") for name in LEARNED_INTS] + [(name, "f8") for name in LEARNED_REALS])
"""The learned numbers as a record."""

NUMBERS = np.dtype(
    [(name, "i8") for name in (*LEARNED_INTS, *_GIVEN_INTS)]
    + [(name, "f8") for name in (*LEARNED_REALS, *_GIVEN_REALS)]
)
"""The learned numbers and the parameters. Parameters that their names do not explain:

* ``most_blocks``: the cap on blocks; ``loss``, ``rule``: their codes; ``n_new``, ``n_reused``: G and U of UDSG;
* ``intercept``: the kind of offset, one of `NOTHING`, `MEAN`, `LEARNED` and `MARGIN`;
* ``rule_key``: the key of the rule's random draws; ``step_units``: a sum of `PER_K_XX`, `PER_ERROR`, `AUTOMATIC`;
* ``parts``, ``terms``: of the kernel; ``components``: of a feature;
* ``bandwidths``: of the functions that are mixed, 1 for a single function; ``doubles``:
  whether each has the directions of the one before it, at half its bandwidth;
* ``l2``: λ; ``max_step_ratio``: the rule's longest step in units of γ; ``ridge``: ε of the preconditioner, 0 for none;
* ``k_xx``: k(x, x) if it is the same for all x, else 0;
* ``forgetting``: the factor of the past at each example, for second-order steps;
* ``loss_per_error``: the loss's parameter in units of the mean |f(x) - y|, 0 if it is in units of the targets;
* ``curvature``: the bound on the loss's second derivative.
"""

NUMBERS_TYPE = types.Array(from_dtype(NUMBERS), 1, "C")

NOTHING, MEAN, LEARNED, MARGIN = range(4)
"""The offset added to f: none; the running mean of the targets; a constant learned like f, as if 1 were added to the
kernel; or -τ, a threshold learned with f."""

PER_K_XX, PER_ERROR, AUTOMATIC = 1, 2, 4
"""Units of γ, as flags: 1/k(x, x), so that a step moves f equally far with every kernel; the mean absolute error; and
automatic sizes of steps that move all blocks (:mod:`streamkernel.first_order.step_choices`)."""

HORIZON = 1000.0
"""Examples over which the running loss is averaged."""

ERROR_HORIZON = 100.0
"""Number of examples over which the mean absolute error is averaged: small, so that steps follow changing targets."""

LARGEST_DEVIATION = 10.0
"""The cap on an example's contribution to the mean absolute error, in units of that mean: it limits outliers."""

DONE, BAD_VALUE, DIVERGED, CLOSED, NO_ROOM, UNREAD, DUE, NO_PLACE, NO_MEMORY = range(9)
"""The status that a compiled call returns: an example was learned; a value is unusable; the steps have diverged; the
arrays have been copied, so that changes to them would be lost; the arrays cannot hold another block; the dictionary
could not be read; an example was learned and another change must follow; the table cannot hold another name; the
memory is too small for the work arrays. The state has changed only if an example was learned."""


def pack_learned(numbers: Any) -> dict[str, Any]:
    """Return the learned part of a record as tensors.

    Examples
    --------
    >>> numbers = np.zeros(1, NUMBERS)[0]
    >>> numbers["steps"], numbers["scale"] = 7, 0.5
    >>> unpack_learned(**pack_learned(numbers))[["steps", "scale"]].item()
    (7, 0.5)
    """
    ints = np.array([numbers[name] for name in LEARNED_INTS], np.int64)
    return {"ints": ints, "reals": np.array([numbers[name] for name in LEARNED_REALS], np.float64)}


def unpack_learned(ints: I64, reals: F64) -> Any:
    """Return the learned part of the scalar state in a file's tensors as a record."""
    return np.array([(*ints.tolist(), *reals.tolist())], LEARNED_NUMBERS)[0]


def set_learned(numbers: Any, learned: Any) -> None:
    """Set the learned part of a record."""
    for name in LEARNED_INTS + LEARNED_REALS:
        numbers[name] = learned[name]
