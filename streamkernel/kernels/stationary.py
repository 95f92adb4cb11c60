"""Kernels of the difference x - x', through Bochner's theorem: cosines and sines of random projections."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Gaussian:
    """k(x, x') = exp(-‖x - x'‖² / 2σ²), whose random directions are N(0, 1/σ²) in every dimension.

    Parameters
    ----------
    sigma
        The bandwidth σ > 0, in units of x, or ``"median"``: the median distance between the first examples of
        the stream, which the model takes itself.
    multiple
        With ``"median"``, what the median is multiplied by.

    Raises
    ------
    ValueError
        If `sigma` is neither a positive number nor ``"median"``, or `multiple` is not positive.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, Table 1.

    Examples
    --------
    >>> Gaussian(sigma=1.0)({"a": 1.0}, {"a": 1.0, "b": 1.0}).__round__(4)
    0.6065
    """

    sigma: float | Literal["median"] = "median"
    multiple: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        number = isinstance(self.sigma, (int, float)) and not isinstance(self.sigma, bool)
        if self.sigma != "median" and not (number and 0 < float(self.sigma) < math.inf):
            raise ValueError(f'Expected sigma to be a positive number or "median", got {self.sigma!r}')
        if not 0 < self.multiple < math.inf:
            raise ValueError(f"Expected multiple > 0, got {self.multiple!r}")

    def __call__(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2); a name that is missing counts as 0.

        Raises
        ------
        ValueError
            If the bandwidth is still to be taken from a stream.
        """
        squares = ((x.get(name, 0.0) - x2.get(name, 0.0)) ** 2 for name in x.keys() | x2.keys())
        return math.exp(-0.5 * math.fsum(squares) / self._number() ** 2)

    @property
    def input_scale(self) -> float:
        """What x is multiplied by before its projection on N(0, 1) directions counts turns of the circle."""
        return 1.0 / (2.0 * math.pi * self._number())

    @property
    def feature_variance(self) -> float:
        """A bound on σ² = E_ω Var(φ_ω(y)·φ_ω(x) - k(y, x)) for one feature, a cosine of N(0, 1) phases: ½."""
        return 0.5

    def with_median(self, median: float) -> Gaussian:
        """Return the kernel whose bandwidth is `multiple` times a median distance."""
        return Gaussian(self.multiple * median)

    def _number(self) -> float:
        if isinstance(self.sigma, str):
            raise ValueError('sigma="median" is taken from a stream; it has no value yet')
        return float(self.sigma)
