"""The scalar state of a learner: one record that compiled code accesses by name, and its order in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import from_dtype, types

from streamkernel.features.rows import F64, I64

LEARNED_INTS = ("blocks", "steps", "reused_steps", "examples", "buffered", "forced_steps")
"""What is learned, in the order that files have: blocks of features, steps, steps that added no block, examples, those
that wait for a Newton step, and steps that would have added a block if there had been room."""

LEARNED_REALS = (
    "scale", "gradient_bound", "scale_sum", "squared_norm", "running_loss", "last_step", "offset", "predicted_offset",
    "error_scale", "mean_square", "mean_fourth", "gradient_sum", "distance2", "weight", "log_odds",
)  # fmt: skip
"""The lazy scale of α and β; the bound M on the derivative, or the loss's parameter where that follows the errors;
Σ scales times weights for the averaged iterate; Σ‖α_b‖² without the scale; the running loss; the last step; the
offset added to f, and that of predictions, which is averaged if they are; the running mean of |f(x) - y|, or of the
squared targets for second-order steps; the running means of |z|² and |z|⁴ over features and examples; for steps of
automatic size Σ‖∇‖², and ‖f‖² by what each step changed; the weights of all examples together; and s of
:mod:`streamkernel.learners.averaging`."""

_GIVEN_INTS = (
    "columns", "block_size", "batch_size", "most_blocks", "loss", "rule", "n_new", "n_reused", "intercept", "rule_key",
    "step_units", "parts", "terms", "components", "last_example", "closed", "looked_at", "panels", "summed",
    "kept_rows", "room_blocks", "working", "worked_at", "unit", "restarted", "compared_at", "averaging",
)  # fmt: skip
_GIVEN_REALS = (
    "l2", "loss_parameter", "loss_bound", "max_step_ratio", "ridge", "k_xx", "forgetting", "step_k_xx", "worked_k_xx",
    "loss_per_error", "curvature",
)  # fmt: skip

LEARNED_NUMBERS = np.dtype([(name, "i8") for name in LEARNED_INTS] + [(name, "f8") for name in LEARNED_REALS])
"""What is learned, as a record."""

NUMBERS = np.dtype(
    [(name, "i8") for name in (*LEARNED_INTS, *_GIVEN_INTS)]
    + [(name, "f8") for name in (*LEARNED_REALS, *_GIVEN_REALS)]
)
"""All of it, with what is given: columns of f, features per block, examples per step, most blocks; codes of loss and
rule, G and U of UDSG, what is added to f, the key of the rule's draws, the units of γ; parts, terms of the kernel and
components of a feature; sizes of the arrays beside this record; λ, the loss's parameter and bound, the rule's
longest step in units of γ, ε of the preconditioner (0 for none), k(x, x) where it is the same for all x, else 0, and
what second-order steps keep of the past at each example, and their loss's parameter in units of the mean |f(x) - y|,
0 where it is in units of the targets; the bound on the loss's second derivative."""

NUMBERS_TYPE = types.Array(from_dtype(NUMBERS), 1, "C")

NOTHING, MEAN, LEARNED, MARGIN = range(4)
"""What is added to f: nothing; the running mean of the targets; a constant that is learned as f is, as if 1 were
added to the kernel; or -τ, a threshold that is learned with f."""

PER_K_XX, PER_ERROR, AUTOMATIC = 1, 2, 4
"""Units of γ, added up: 1/k(x, x), so that a step moves f as far with every kernel; the mean absolute error; and
whether steps move all blocks, as far as the gradients so far say (:mod:`streamkernel.first_order.automatic_step`)."""

HORIZON = 1000.0
"""Examples over which the running loss is averaged."""

ERROR_HORIZON = 100.0
"""Examples over which the mean absolute error is averaged: few, so that steps follow targets that change."""

LARGEST_DEVIATION = 10.0
"""In units of the mean absolute error so far, what an example counts for in it at most: one outlier does not ruin
it."""

DONE, BAD_VALUE, DIVERGED, CLOSED, NO_ROOM, UNREAD, DUE, NO_PLACE, NO_MEMORY = range(9)
"""What a compiled call returns. An example is learned; a value could not be used; the steps have diverged; the
arrays have been copied, and what is learned in them would be lost; there is no room for another block; the
dictionary could not be read; an example is learned, and more follows from it; there is no place for a new name; the
memory for work arrays is too small. Nothing is changed but where an example is learned."""


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


def pad_tensors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of a file, extended by the entries that older files lack.

    They are 0 for steps of automatic size and averages, and a weight of 1 for each example.

    Examples
    --------
    >>> found = pad_tensors({"ints": np.arange(5), "reals": np.ones(11)})
    >>> len(found["ints"]), found["reals"][-4:].tolist()
    (6, [0.0, 0.0, 3.0, 0.0])
    """
    found = dict(tensors)
    ints, reals = tensors.get("ints"), tensors.get("reals")
    if isinstance(ints, np.ndarray) and ints.shape == (len(LEARNED_INTS) - 1,):
        found["ints"] = ints = np.append(ints, np.zeros(1, ints.dtype))
    if isinstance(reals, np.ndarray) and reals.shape == (len(LEARNED_REALS) - 4,):
        reals = np.append(reals, np.zeros(2, reals.dtype))
    if isinstance(reals, np.ndarray) and reals.shape == (len(LEARNED_REALS) - 2,) and ints is not None:
        examples = ints[LEARNED_INTS.index("examples")] if np.shape(ints) == (len(LEARNED_INTS),) else 0
        reals = np.append(reals, np.array([examples], reals.dtype))
    if isinstance(reals, np.ndarray) and reals.shape == (len(LEARNED_REALS) - 1,):
        found["reals"] = np.append(reals, np.zeros(1, reals.dtype))
    return found


def unpack_learned(ints: I64, reals: F64) -> Any:
    """Return the learned part of the scalar state in a file's tensors as a record."""
    return np.array([(*ints.tolist(), *reals.tolist())], LEARNED_NUMBERS)[0]


def set_learned(numbers: Any, learned: Any) -> None:
    """Set the learned part of a record."""
    for name in LEARNED_INTS + LEARNED_REALS:
        numbers[name] = learned[name]
