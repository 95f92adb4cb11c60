"""Step sizes as values: γ_t as a function of the number t = 1, 2, ... of the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from streamkernel.errors import is_real

__all__ = ["Constant", "InverseTime", "PowerDecay", "Step"]

Number = TypeVar("Number", float, npt.NDArray[np.float64])


class Step(Protocol):
    """A step size."""

    def __call__(self, t: Number) -> Number:
        """Return γ_t for the number `t` of a step, or an array of them, counted from 1."""


def _positive(name: str, value: float) -> None:
    if not (is_real(value) and 0 < value < float("inf")):
        raise ValueError(f"Expected {name} > 0, got {value!r}")


@dataclass(frozen=True)
class Constant:
    """γ_t = γ: it never stops learning, as a stream that drifts requires.

    Parameters
    ----------
    gamma : float
        The step γ > 0.

    Examples
    --------
    >>> import numpy as np
    >>> Constant(0.5)(np.array([1.0, 100.0]))
    array([0.5, 0.5])
    """

    gamma: float

    def __post_init__(self) -> None:
        _positive("gamma", self.gamma)

    def __call__(self, t: Number) -> Number:
        """Return γ."""
        return self.gamma + 0.0 * t


@dataclass(frozen=True)
class InverseTime:
    """γ_t = θ/t: with θλ in (1, 2) or a positive integer, the error falls as 1/t (Dai et al. 2014, Theorem 4).

    Parameters
    ----------
    theta : float
        The numerator θ > 0, chosen for the regularisation λ of the model.

    Examples
    --------
    >>> import numpy as np
    >>> InverseTime(2.0)(np.array([1.0, 4.0]))
    array([2. , 0.5])
    """

    theta: float

    def __post_init__(self) -> None:
        _positive("theta", self.theta)

    def __call__(self, t: Number) -> Number:
        """Return θ/t."""
        return self.theta / t


@dataclass(frozen=True)
class PowerDecay:
    """γ_t = γ₀/(1 + c t)^p, the schedule used in practice.

    Parameters
    ----------
    gamma : float
        The initial step γ₀ > 0.
    c : float, default 0.0001
        The rate c > 0: the first 1/c steps are close to γ₀. Dai et al. used 10⁻⁴ with p = 1.
    power : float, default 1.0
        The exponent p > 0.

    Examples
    --------
    >>> import numpy as np
    >>> PowerDecay(1.0, c=1.0, power=0.5)(np.array([3.0, 8.0])).round(3)
    array([0.5  , 0.333])
    """

    gamma: float
    c: float = 1e-4
    power: float = 1.0

    def __post_init__(self) -> None:
        _positive("gamma", self.gamma)
        _positive("c", self.c)
        _positive("power", self.power)

    def __call__(self, t: Number) -> Number:
        """Return γ₀/(1 + c t)^p; of an array one by one, because NumPy's powers may differ in the last bit."""
        if isinstance(t, np.ndarray):
            return np.array([self.gamma / (1.0 + self.c * one) ** self.power for one in t.tolist()])
        step: Number = self.gamma / (1.0 + self.c * t) ** self.power
        return step
