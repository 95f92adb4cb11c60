"""Rules that choose between a new block of features and an old one at each step, and bound the step.

DSG is from Dai et al. 2014, UDSG and CDSG from Li and Póczos 2016. At the cap on features no rule adds a block. With
steps of automatic size, which move all blocks, a rule decides only whether a step adds one, and CDSG has no check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from streamkernel.errors import is_count, is_real

__all__ = ["CDSG", "DSG", "UDSG", "Rule"]

_DSG, _UDSG, _CDSG = range(3)


class Rule(Protocol):
    """A coordinate rule."""

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """The arguments of the compiled choice: the rule's code, G, U, and the longest step in units of γ_t."""


@dataclass(frozen=True)
class DSG:
    """A new block at every step (Dai et al. 2014, Algorithm 1); at the cap an old one, drawn uniformly.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, learners, rules
    >>> model = KernelClassifier(learner=learners.DSG(rule=rules.DSG(), features_per_seed=16), max_features=64)
    >>> for i in range(10):
    ...     model.learn_one({"x": float(i)}, i % 2 == 0)
    >>> model.n_seeds, model.n_reused
    (4, 6)
    """

    code: ClassVar[int] = _DSG

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """The code, and no numbers."""
        return self.code, 1, 0, math.inf


@dataclass(frozen=True)
class UDSG:
    """New blocks for `grow` steps, then `reuse` steps on old ones drawn uniformly (Li and Póczos, Algorithm 3).

    Parameters
    ----------
    grow : int, default 1
        The number G of consecutive steps that add a block, at least 1.
    reuse : int, default 1
        The number U of steps on old blocks that follow, at least 1.

    Raises
    ------
    ValueError
        If `grow` or `reuse` is below 1.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, learners, rules
    >>> learner = learners.DSG(rule=rules.UDSG(grow=1, reuse=4), features_per_seed=16)
    >>> model = KernelClassifier(learner=learner, max_features=64)
    >>> for i in range(10):
    ...     model.learn_one({"x": float(i)}, i % 2 == 0)
    >>> model.n_seeds, model.n_reused
    (2, 8)
    """

    grow: int = 1
    reuse: int = 1
    code: ClassVar[int] = _UDSG

    def __post_init__(self) -> None:
        for name, steps in (("grow", self.grow), ("reuse", self.reuse)):
            if not is_count(steps, 1):
                raise ValueError(f"Expected an integer {name} >= 1, got {steps!r}")

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """The code, G and U."""
        return self.code, self.grow, self.reuse, math.inf


@dataclass(frozen=True)
class CDSG:
    """The old block with the longest checked step, if that step is at least as long as a new block's; else a new block.

    At the cap it takes the old block with the longest checked step even if that is shorter than γ, or a uniformly
    drawn block if no block has a checked step (Li and Póczos 2016, Algorithm 4 and eq. 9).

    Parameters
    ----------
    max_step_ratio : float, default 1.0
        The longest step, in units of γ_t, at least 1. ``math.inf`` is the paper's line search, which suits batches;
        with single examples and a constant γ, its long steps add noise that never settles. With
        ``step_size="auto"`` there is no check: each step adds a block up to the cap or, without a cap, up to 128√t
        features after t steps.

    Raises
    ------
    ValueError
        If `max_step_ratio` is below 1.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, learners, rules
    >>> model = KernelClassifier(learner=learners.DSG(rule=rules.CDSG(), features_per_seed=16), max_features=64)
    >>> for i in range(10):
    ...     model.learn_one({"x": float(i)}, i % 3 == 0)
    >>> model.n_seeds, model.n_reused
    (4, 6)
    """

    max_step_ratio: float = 1.0
    code: ClassVar[int] = _CDSG

    def __post_init__(self) -> None:
        if not (is_real(self.max_step_ratio) and self.max_step_ratio >= 1.0):
            raise ValueError(f"Expected max_step_ratio >= 1, got {self.max_step_ratio!r}")

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """The code and the longest step."""
        return self.code, 1, 0, self.max_step_ratio
