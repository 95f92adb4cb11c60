"""Which coordinate a step takes, a new block of features or an old one, and how far it goes.

DSG is from Dai et al. 2014, UDSG and CDSG from Li and Póczos 2016. At the cap on features no rule adds a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numba import types

from streamkernel.features.counter_rng import counter_bits
from streamkernel.jit import inlined, unit
from streamkernel.learners.state import NUMBERS_TYPE

__all__ = ["CDSG", "DSG", "UDSG", "Rule"]

_DSG, _UDSG, _CDSG = range(3)


@inlined
def longest_checked_step(beta, scale, g, gamma, noise):  # type: ignore[no-untyped-def]
    """Return the old block with the longest checked step η, and η (Li and Póczos 2016, eq. 9, signs resolved).

    The step of block k is the largest η for which

        2‖β_k - ηḡ‖² + 2η²(Mσ/B)² ≤ ‖β_k‖² + γ²‖ḡ‖²,

    the larger root of aη² + bη + c = 0 with a = 2‖ḡ‖² + 2(Mσ/B)², b = -4⟨β_k, ḡ⟩, c = ‖β_k‖² - γ²‖ḡ‖².
    With several columns (classes) ‖·‖² is the squared norm over them. η is 0 where no block has such a step.

    Parameters
    ----------
    beta
        The β_k without their common scale, shape (blocks, columns).
    scale
        The scale.
    g
        The mean gradient ḡ, shape (columns,).
    gamma
        The step γ of a new block.
    noise
        (Mσ/B)².
    """
    g2 = 0.0
    for c in range(len(g)):
        g2 += g[c] * g[c]
    a = 2.0 * (g2 + noise)
    best, longest = -1, 0.0
    for k in range(len(beta)):
        dot = 0.0
        norm2 = 0.0
        for c in range(len(g)):
            dot += beta[k, c] * g[c]
            norm2 += beta[k, c] * beta[k, c]
        b = -4.0 * dot * scale
        c0 = norm2 * scale * scale - gamma * gamma * g2
        square = b * b - 4.0 * a * c0
        if square >= 0.0 and a > 0.0:
            eta = (-b + math.sqrt(square)) / (2.0 * a)
            if eta > longest:
                best, longest = k, eta
    return best, longest


@inlined
def _uniform(key, t, n):  # type: ignore[no-untyped-def]
    """Return a number below `n`, drawn for step `t`."""
    return int((counter_bits(key, t) >> 11) * 2.0**-53 * n)


@unit(
    types.Tuple((types.int64, types.float64))(
        NUMBERS_TYPE, types.float64[:, ::1], types.float64[::1], types.float64, types.float64
    )
)
def choose(state, beta, g, gamma, noise):  # type: ignore[no-untyped-def]
    """Return the block to update, the number of blocks for a new one, and the step to take.

    Parameters
    ----------
    state
        The record of :mod:`streamkernel.learners.state`.
    beta
        The β_k without their common scale, with or without room for more blocks.
    g
        The mean gradient ḡ.
    gamma
        The step γ of a new block.
    noise
        (Mσ/B)².
    """
    numbers = state[0]
    blocks, t = numbers.blocks, numbers.steps
    room = blocks < numbers.most_blocks  # where there is none there is an old block
    if numbers.rule == _CDSG:
        k, eta = longest_checked_step(beta[:blocks], numbers.scale, g, gamma, noise)
        if eta > gamma:
            return k, min(eta, numbers.max_step_ratio * gamma)
        if room:
            return blocks, gamma
        if k >= 0:
            return k, eta
    elif room and (blocks == 0 or numbers.rule == _DSG or t % (numbers.n_new + numbers.n_reused) < numbers.n_new):
        return blocks, gamma
    return _uniform(np.uint64(numbers.rule_key), t, blocks), gamma


class Rule(Protocol):
    """A coordinate rule."""

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """What the compiled choice is told: the rule's code, G, U, and the longest step in units of γ_t."""


@dataclass(frozen=True)
class DSG:
    """A new block at every step (Dai et al. 2014, Algorithm 1); at the cap an old one, drawn uniformly.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, rules
    >>> model = KernelClassifier(rule=rules.DSG(), features_per_seed=16, max_features=64)
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
    grow, reuse
        G and U, both at least 1.

    Raises
    ------
    ValueError
        If one of them is smaller.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, rules
    >>> model = KernelClassifier(rule=rules.UDSG(grow=1, reuse=4), features_per_seed=16, max_features=64)
    >>> for i in range(10):
    ...     model.learn_one({"x": float(i)}, i % 2 == 0)
    >>> model.n_seeds, model.n_reused
    (2, 8)
    """

    grow: int = 1
    reuse: int = 1
    code: ClassVar[int] = _UDSG

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name, steps in (("grow", self.grow), ("reuse", self.reuse)):
            if not isinstance(steps, (int, np.integer)) or steps < 1:
                raise ValueError(f"Expected an integer {name} >= 1, got {steps!r}")

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """The code, G and U."""
        return self.code, self.grow, self.reuse, math.inf


@dataclass(frozen=True)
class CDSG:
    """The old block whose checked step is longest, if that is worth a new block's; else a new one.

    At the cap it takes the old block of the longest checked step even if that is shorter than γ, and a uniformly
    drawn one where no block has a checked step at all (Li and Póczos 2016, Algorithm 4 and eq. 9).

    Parameters
    ----------
    longest
        The longest step to take, in units of γ_t. Infinity is the paper's line search, good with batches; with
        single examples and a constant γ its long steps add noise that never settles, and 1 does better.

    Raises
    ------
    ValueError
        If `longest` is below 1.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, rules
    >>> model = KernelClassifier(rule=rules.CDSG(), features_per_seed=16, max_features=64)
    >>> for i in range(10):
    ...     model.learn_one({"x": float(i)}, i % 2 == 0)
    >>> model.n_seeds, model.n_reused
    (1, 9)
    """

    longest: float = math.inf
    code: ClassVar[int] = _CDSG

    def __post_init__(self) -> None:
        """Check the parameter."""
        if not self.longest >= 1.0:
            raise ValueError(f"Expected longest >= 1, got {self.longest!r}")

    @property
    def parameters(self) -> tuple[int, int, int, float]:
        """The code and the longest step."""
        return self.code, 1, 0, self.longest
