"""Learners: values for the parameter `learner` of the estimators, and the code that they share.

Examples
--------
>>> from streamkernel import KernelClassifier, learners, rules
>>> KernelClassifier(learner=learners.DSG(rule=rules.DSG(), batch_size=8)).learner_.features_per_seed
256
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkernel import rules, step_sizes
from streamkernel.errors import is_count, is_real

__all__ = ["DSG", "Newton"]

_CDSG = rules.CDSG()

LEAST_L2, LARGEST_L2 = 1e-30, 1e30
"""λ between these, and λ times the largest gradient, is a number in factors of single precision; so is 1/λ."""

LEAST_FORGETTING = 0.01
"""A smaller factor leaves nothing of the examples before, and no number to divide by."""

LARGEST_BLOCK = 1 << 20
"""Features of a seed, and examples of a first-order step, at most: the first step takes memory for all of them."""

LARGEST_BATCH = 4096
"""Examples of a Newton step at most; memory for the features of this number is reserved from the start."""


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Second-order learning: blocks of features learned by Newton steps and by constant steps, and a mixture of them.

    Larger groups of blocks, learned jointly, are added where more features reduce the loss.

    Parameters
    ----------
    forgetting : float or str, default "auto"
        The factor of the past in the Newton steps at each example, from 0.01 to 1: 0.999 remembers about a thousand
        examples, 1.0 all. ``"auto"`` is 1.0, with an additional group that forgets; where this group
        has a lower loss, groups misled by the past are reset. With ``joint``, ``"auto"`` is 1.0. The function
        linear in the inputs remembers about two thousand examples with ``"auto"``.
    batch_size : int or None, default None
        Number of examples in a Newton step, from 2 to 4,096. ``None`` increases it from 8 to 64 or 128 with the
        number of examples.
    features_per_seed : int or "auto", default "auto"
        Number of random features in a block. ``"auto"`` is 256, or a quarter of the estimator's `max_features` if
        that is less.
    joint : bool, default False
        Take one Newton step over all blocks from the first example.
    step_size : float or step_sizes.Step or "auto", default "auto"
        The step γ of the constant steps, in units of 1/k(x, x). ``"auto"`` is 0.75 divided by the bound on the second
        derivative of the loss.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Hazan, Agarwal and Kale, "Logarithmic Regret Algorithms for Online Convex Optimization", Machine Learning 2007.

    Examples
    --------
    >>> from streamkernel import KernelRegressor, learners
    >>> model = KernelRegressor(learner=learners.Newton(forgetting=0.999), max_features=256)
    >>> model.learner_
    Newton(forgetting=0.999, batch_size=None, features_per_seed=64, joint=False, step_size=Constant(gamma=0.75))
    """

    forgetting: float | str = "auto"
    batch_size: int | None = None
    features_per_seed: int | str = "auto"
    joint: bool = False
    step_size: float | str | step_sizes.Step = "auto"

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.forgetting != "auto" and not (is_real(self.forgetting) and LEAST_FORGETTING <= self.forgetting <= 1.0):  # type: ignore[operator]
            raise ValueError(f'Expected forgetting from {LEAST_FORGETTING} to 1 or "auto", got {self.forgetting!r}')
        if self.batch_size is not None and not (is_count(self.batch_size, 2) and self.batch_size <= LARGEST_BATCH):
            raise ValueError(
                f"Expected an integer batch_size from 2 to {LARGEST_BATCH:,}, or None, got {self.batch_size!r}"
            )
        _check_block(self.features_per_seed)
        if not isinstance(self.joint, (bool, np.bool_)):
            raise ValueError(f"Expected joint to be a Boolean, got {self.joint!r}")
        check_step_size(self.step_size)


@dataclass(frozen=True, kw_only=True)
class DSG:
    """First-order learning by doubly stochastic gradients: a step adds at most one block of features, of one seed.

    Parameters
    ----------
    rule : rules.Rule, default rules.CDSG()
        The choice of a new block or an old block at each step. With a given step size, `CDSG` adds a block only where
        no old block reduces the loss as much.
    step_size : float or step_sizes.Step or "auto", default "auto"
        The step γ, by which a step moves one block, used unchanged for every kernel. With ``"auto"`` a step
        moves all blocks, the rule only decides whether a block is added, and the step size follows from the gradients
        so far (distance over gradients; Ivgi, Hinder and Carmon 2023). It adapts to the number and size of blocks, the
        batch, the loss and the kernel.
    features_per_seed : int or "auto", default "auto"
        Number of random features in a block. ``"auto"`` is a quarter of the estimator's `max_features`.
    batch_size : int, default 1
        Number of examples in a step. Examples are buffered over calls, so their grouping into calls never changes the
        model.
    preconditioner : float or None, default None
        ε > 0 of the preconditioner (1/B) Σ φφᵀ + εI, the covariance over the batch of the features of the block that a
        step moves (Dai et al. 2014, section 4). ``None`` is no preconditioner. It needs large batches.
    averaging : bool, default False
        Predict with the average of all iterates (Polyak averaging), as in the theory. Otherwise predictions are those
        of the last iterate or, with ``step_size="auto"``, of a mixture of the last iterate and an average that forgets
        the first steps; their losses on recent examples determine their shares.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.
    Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.
    Ivgi, Hinder and Carmon, "DoG is SGD's Best Friend: A Parameter-Free Dynamic Step Size Schedule", ICML 2023.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, learners, rules
    >>> model = KernelClassifier(learner=learners.DSG(rule=rules.UDSG(), features_per_seed=32))
    >>> for i in range(100):
    ...     model.learn_one({"x": i % 10}, i % 10 > 4)
    >>> model.n_seeds, model.n_features
    (50, 1600)
    """

    rule: rules.Rule = _CDSG
    step_size: float | str | step_sizes.Step = "auto"
    features_per_seed: int | str = "auto"
    batch_size: int = 1
    preconditioner: float | None = None
    averaging: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        if isinstance(self.rule, type) or not hasattr(self.rule, "parameters"):
            raise ValueError(f"Expected rule as one of streamkernel.rules, got {self.rule!r}")
        check_step_size(self.step_size)
        _check_block(self.features_per_seed)
        if not (is_count(self.batch_size, 1) and self.batch_size <= LARGEST_BLOCK):
            raise ValueError(f"Expected an integer batch_size from 1 to {LARGEST_BLOCK:,}, got {self.batch_size!r}")
        epsilon = self.preconditioner
        if epsilon is not None and not (is_real(epsilon) and 0.0 < epsilon < math.inf):
            raise ValueError(f"Expected preconditioner > 0 or None, got {epsilon!r}")
        if not isinstance(self.averaging, (bool, np.bool_)):
            raise ValueError(f"Expected averaging to be a Boolean, got {self.averaging!r}")


BY_NAME: dict[str, type[Newton | DSG]] = {"newton": Newton, "dsg": DSG}
"""The learners by name."""


def resolve_learner(learner: Any) -> Newton | DSG:
    """Return the learner for a value of the parameter `learner`. Raise a ValueError if the value is not a learner."""
    options = BY_NAME[learner]() if isinstance(learner, str) and learner in BY_NAME else learner
    if not isinstance(options, (Newton, DSG)):
        raise ValueError(
            f'Expected learner as "newton", "dsg", learners.Newton(...) or learners.DSG(...), got {learner!r}'
        )
    return options


def as_step(step_size: float | str | step_sizes.Step) -> step_sizes.Step | None:
    """Return a step size as a function of the step's number, or ``None`` for ``"auto"``."""
    if isinstance(step_size, str):
        return None
    return step_size if callable(step_size) else step_sizes.Constant(float(step_size))


def _check_block(features_per_seed: Any) -> None:
    if features_per_seed != "auto" and not (is_count(features_per_seed, 1) and features_per_seed <= LARGEST_BLOCK):
        raise ValueError(
            f'Expected an integer features_per_seed from 1 to {LARGEST_BLOCK:,} or "auto", got {features_per_seed!r}'
        )


def check_step_size(step_size: Any) -> None:
    """Raise a ValueError if a value is not a step size."""
    is_number = is_real(step_size) and 0.0 < step_size < math.inf
    is_step = callable(step_size) and not isinstance(step_size, type)
    if not (is_number or is_step or (isinstance(step_size, str) and step_size == "auto")):
        raise ValueError(
            f'Expected step_size as a number > 0, one of streamkernel.step_sizes or "auto", got {step_size!r}'
        )
