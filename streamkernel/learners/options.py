"""Which learner an estimator runs, and how: values for the parameter `learner`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkernel import rules, step_sizes

_CDSG = rules.CDSG()


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Second-order learning: blocks of features learned by Newton steps and by constant steps, and a mixture of them.

    Larger groups of blocks, learned together, begin where more features are worth it.

    Parameters
    ----------
    forgetting
        What the Newton steps keep of the past at each example, in (0, 1]: 0.999 remembers about a thousand examples,
        1.0 all. ``"auto"`` keeps all, has two groups that forget beside the others, and resets what these show to
        be misled by the past; with ``joint`` it is 1.0.
    batch_size
        Examples in a Newton step, at least 2; ``None`` for a number that grows from 8 to 64 with the examples.
    features_per_seed
        Random features in a block; ``"auto"`` for 256, or a quarter of the estimator's `max_features` if that is less.
    joint
        Whether one Newton step over all blocks is taken from the beginning.
    step_size
        γ of the constant steps in units of 1/k(x, x): a number or one of :mod:`streamkernel.step_sizes`; ``"auto"`` for
        0.75 divided by the bound on the loss's second derivative.

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
        if self.forgetting != "auto" and not (_is_real(self.forgetting) and 0.0 < self.forgetting <= 1.0):  # type: ignore[operator]
            raise ValueError(f'Expected 0 < forgetting <= 1 or "auto", got {self.forgetting!r}')
        if self.batch_size is not None and not _is_count(self.batch_size, 2):
            raise ValueError(f"Expected an integer batch_size >= 2 or None, got {self.batch_size!r}")
        _check_block(self.features_per_seed)
        if not isinstance(self.joint, (bool, np.bool_)):
            raise ValueError(f"Expected joint to be a Boolean, got {self.joint!r}")
        check_step_size(self.step_size)


@dataclass(frozen=True, kw_only=True)
class DSG:
    """First-order learning by doubly stochastic gradients: features grow by at most one block, of one seed, a step.

    Parameters
    ----------
    rule
        Whether a step takes a new block or an old one, and which: one of :mod:`streamkernel.rules`. `CDSG` adds a block
        only where no old one is worth as much.
    step_size
        γ, by which a step moves one block: a number, or one of :mod:`streamkernel.step_sizes`. With ``"auto"`` a step
        moves all blocks, the rule decides whether there is a new one among them, and how far they move follows from
        the gradients so far, whatever the number of blocks, their size, the batch, the loss and the size of the kernel
        (distance over gradients; Ivgi, Hinder and Carmon 2023).
    features_per_seed
        Random features in a block; ``"auto"`` for a quarter of the estimator's `max_features`.
    batch_size
        Examples in a step. They are gathered over calls, so how events are grouped never changes the model.
    preconditioner
        ε > 0 of (1/B) Σ φφᵀ + εI, the covariance over the batch of the block that a step moves, against which its
        gradient is solved (Dai et al. 2014, section 4); ``None`` for none. It wants large batches.
    averaging
        Whether predictions are those of the average of all iterates (Polyak averaging), which the theory is about. If
        not, they are those of the last one; with ``step_size="auto"`` those of the last one and an average that forgets
        the first steps, each with the share that its losses on the last examples speak for.

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
    (32, 1024)
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
        if not _is_count(self.batch_size, 1):
            raise ValueError(f"Expected an integer batch_size >= 1, got {self.batch_size!r}")
        epsilon = self.preconditioner
        if epsilon is not None and not (_is_real(epsilon) and 0.0 < epsilon < math.inf):
            raise ValueError(f"Expected preconditioner > 0 or None, got {epsilon!r}")
        if not isinstance(self.averaging, (bool, np.bool_)):
            raise ValueError(f"Expected averaging to be a Boolean, got {self.averaging!r}")


BY_NAME: dict[str, type[Newton | DSG]] = {"newton": Newton, "dsg": DSG}
"""What the names of learners stand for."""


def chosen(learner: Any) -> Newton | DSG:
    """Return the learner that a value of the parameter `learner` stands for.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = BY_NAME[learner]() if isinstance(learner, str) and learner in BY_NAME else learner
    if not isinstance(found, (Newton, DSG)):
        raise ValueError(
            f'Expected learner as "newton", "dsg", learners.Newton(...) or learners.DSG(...), got {learner!r}'
        )
    return found


def as_step(step_size: float | str | step_sizes.Step) -> step_sizes.Step | None:
    """Return a step size as a function of the step's number; ``None`` for ``"auto"``."""
    if isinstance(step_size, str):
        return None
    return step_size if callable(step_size) else step_sizes.Constant(float(step_size))


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)


def _check_block(features_per_seed: Any) -> None:
    if features_per_seed != "auto" and not _is_count(features_per_seed, 1):
        raise ValueError(f'Expected an integer features_per_seed >= 1 or "auto", got {features_per_seed!r}')


def check_step_size(step_size: Any) -> None:
    """Raise a ValueError if it is no step size."""
    is_number = _is_real(step_size) and 0.0 < step_size < math.inf
    is_step = callable(step_size) and not isinstance(step_size, type)
    if not (is_number or is_step or (isinstance(step_size, str) and step_size == "auto")):
        raise ValueError(
            f'Expected step_size as a number > 0, one of streamkernel.step_sizes or "auto", got {step_size!r}'
        )
