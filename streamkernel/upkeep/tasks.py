"""Periodic tasks on a running model, as values, the functions that they accept, and a log of recent examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.solvers.saddle_problem import LOSSES

Function = FirstOrderLearner | SecondOrderLearner
Build = Callable[[int], Function]
"""Returns an untrained function with a number of columns."""
T = TypeVar("T")


def _at_least(least: int, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"Expected {name} as an integer of at least {least}, got {value!r}")


@dataclass(frozen=True)
class Task:
    """A task that runs in another thread after every `every` events, on the last of them.

    The result learns the events that arrive meanwhile and replaces the model at a fixed position of the stream, half
    of `every` events after the start. So the same events give the same bits at any speed.
    """

    every: int
    window: int

    def __post_init__(self) -> None:
        """Check the parameters."""
        _at_least(2, "every", self.every)
        _at_least(2, "window", self.window)

    def check(self, function: Function, max_features: int | str | None) -> None:
        """Raise a ValueError if the task can never be applied to such a function, with this cap on its features."""
        raise NotImplementedError


def kept_blocks(cap: int, keep: float) -> tuple[int, int]:
    """Return the number of blocks that pruning keeps of a first-order model, and its new limit.

    Examples
    --------
    >>> kept_blocks(16, 0.25), kept_blocks(4, 0.25)
    ((2, 4), (1, 1))
    """
    most = max(1, int(keep * cap))
    return -(-most // 2), most


@dataclass(frozen=True)
class Pruning(Task):
    """Prune a model to its most important features.

    On a window of recent events, AsyDSSKL approximates the model's predictions with an L1 penalty, and features with
    coefficient 0 are dropped. The coefficients of the others are then fitted to the predictions, so the model keeps
    what it learned before the window.

    With first-order steps, half of the new limit of blocks are kept, at least one, and new blocks are
    added until the next pruning. With second-order steps each block keeps its share of the features, and groups of
    blocks begin and end as before; a model is pruned once, when it has more than half of its maximum of features.

    Parameters
    ----------
    every : int, default 65536
        The number of events between two prunings.
    window : int, default 4096
        The number of recent events to fit.
    keep : float, default 0.25
        The new limit of features, as a fraction of `max_features` in (0, ½]; rounded to whole blocks.

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
        """Raise a ValueError if the features have no cap, or cannot be selected one by one."""
        if max_features is None:
            raise ValueError("Expected a cap on the features with pruning, got max_features=None")
        if function.directions.plan.is_sketch:
            raise ValueError(f"Expected a kernel whose features are drawn one by one, got {function.kernel!r}")


@dataclass(frozen=True)
class Refit(Task):
    """Refit the coefficients of a model on a window of recent events, to a certified gap (DSPDC).

    It is for first-order learning; second-order steps solve for the coefficients at every step.

    Parameters
    ----------
    every : int, default 65536
        The number of events between two refits.
    window : int, default 4096
        The number of recent events to fit.
    tol : float, default 0.0001
        The primal-dual gap at which the solver stops.
    l2 : float, default 0.0001
        The regularisation λ of (1/n) Σ ℓ + (λ/2)‖α‖² over all coefficients.

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


@dataclass(frozen=True)
class Log(Generic[T]):
    """A range of the items of a list; longer logs share the list.

    Appending can be repeated: an item from an interrupted attempt is replaced.

    Examples
    --------
    >>> log = Log([]).plus("a").plus("b")
    >>> [*log.plus("c").without(1)], [*log]
    (['b', 'c'], ['a', 'b'])
    """

    items: list[T]
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, items: list[T]) -> Log[T]:
        """Return a log of some items."""
        return cls([*items], 0, len(items))

    def plus(self, item: T) -> Log[T]:
        """Return the log with an item added."""
        if len(self.items) > self.last:
            self.items[self.last] = item
        else:
            self.items.append(item)
        return Log(self.items, self.first, self.last + 1)

    def without(self, n: int) -> Log[T]:
        """Return the log without its first items."""
        first = self.first + n
        if 2 * first <= self.last:
            return Log(self.items, first, self.last)
        return Log(self.items[first : self.last], 0, self.last - first)

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, i: int) -> T:
        return self.items[self.first + i]

    def __iter__(self) -> Iterator[T]:
        return (self.items[i] for i in range(self.first, self.last))  # no copy: some readers want the first alone
