"""What can be done to a running model from time to time, and when, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from streamkernel.solvers.saddle_point.conjugates import LOSSES
from streamkernel.upkeep.functions import Function


def _at_least(least: int, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"Expected {name} as an integer of at least {least}, got {value!r}")


@dataclass(frozen=True)
class Task:
    """What is done after every so many events, by another thread, from the last of them.

    The result is swapped in at a fixed position of the stream, half of `every` events after it was begun, when
    it has learned the events between as well. So the same events give the same bits, however fast they come.
    """

    every: int
    window: int

    def __post_init__(self) -> None:
        """Check the parameters."""
        _at_least(2, "every", self.every)
        _at_least(2, "window", self.window)

    def check(self, function: Function, max_features: int | str | None) -> None:
        """Raise a ValueError if this can never be done to a function like this, with this cap on its features."""
        raise NotImplementedError


def kept_blocks(cap: int, keep: float) -> tuple[int, int]:
    """Return how many blocks are kept of a first-order model, and how many it may have then.

    Examples
    --------
    >>> kept_blocks(16, 0.25), kept_blocks(4, 0.25)
    ((2, 4), (1, 1))
    """
    most = max(1, int(keep * cap))
    return -(-most // 2), most


@dataclass(frozen=True)
class Pruning(Task):
    """Prune a model to the features that matter.

    On a window of recent events, features are chosen sparsely (AsyDSSKL): those whose coefficients are not 0 where what
    was learned is approximated at a price for each of them. Then coefficients are fitted to that, so that it stays,
    also what is older than the window.

    With first-order steps, half of the blocks that a model may have from then on are kept, at least one, and the others
    are free to grow again until the next time. With second-order steps each block keeps its share, and groups of blocks
    begin and end as before; that is done once, when a model has more than half of the features it may have.

    Parameters
    ----------
    every
        Events from one time to the next.
    window
        Events to look at, those before.
    keep
        Features that the model may have then, as a part of `max_features`, in (0, ½]; rounded to whole blocks.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Gu, Miao, Huo and Huang, "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018.

    Examples
    --------
    >>> from streamkernel import KernelRegressor
    >>> model = KernelRegressor(learner="dsg", max_features=256, pruning=Pruning(every=500, window=400))
    >>> for i in range(1010):
    ...     model.learn_one({"x": i % 10}, float(i % 10))
    >>> model.n_prunings, model.n_features
    (1, 64)
    """

    every: int = 65_536
    window: int = 4096
    keep: float = 0.25

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if not isinstance(self.keep, (int, float)) or not 0.0 < self.keep <= 0.5:
            raise ValueError(f"Expected 0 < keep <= 0.5, got {self.keep!r}")

    def check(self, function: Function, max_features: int | str | None) -> None:
        """Raise a ValueError if there is no cap on the features, or they are not drawn one by one."""
        if max_features is None:
            raise ValueError("Expected a cap on the features with pruning, got max_features=None")
        if function.directions.plan.is_sketch:
            raise ValueError(f"Expected a kernel whose features are drawn one by one, got {function.kernel!r}")


@dataclass(frozen=True)
class Refit(Task):
    """Solve the coefficients of a model's features on a window of recent events, to a certified gap (DSPDC).

    It is for first-order learning; second-order steps solve for their coefficients at every step.

    Parameters
    ----------
    every
        Events from one time to the next.
    window
        Events to look at, those before.
    tol
        The primal-dual gap at which it ends.
    l2
        λ of (1/n) Σ ℓ + (λ/2)‖α‖² over all coefficients.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem".

    Examples
    --------
    >>> Refit(every=10_000).window
    4096
    """

    every: int = 65_536
    window: int = 4096
    tol: float = 1e-4
    l2: float = 1e-4

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        for name in ("tol", "l2"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
                raise ValueError(f"Expected {name} > 0, got {value!r}")

    def check(self, function: Function, max_features: int | str | None) -> None:
        """Raise a ValueError if the loss has no dual."""
        if function.loss not in LOSSES.values():
            raise ValueError(f"Expected a loss of {', '.join(LOSSES)} with refit, got {function.loss!r}")
