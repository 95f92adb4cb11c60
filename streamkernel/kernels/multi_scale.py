"""A stationary kernel on several scales at once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from streamkernel.features.compiled_kernel import MULTI_SCALE
from streamkernel.kernels.base import FeatureRecipe, Kernel, SimpleKernel
from streamkernel.kernels.stationary import Stationary

_MOST = 64
_LARGEST = 1e3


@dataclass(frozen=True)
class MultiScale(SimpleKernel):
    """k(x, x') = (1/M) Σₘ k₁(x/m, x'/m): the mean of a stationary kernel over M multiples m of its bandwidth.

    Block b of a model uses the multiple number b mod M, so the features estimate k if the number of blocks is a
    multiple of M. Without blocks, as in :class:`~streamkernel.RandomFeatures`, features use the multiples in turn. A
    feature costs as much as one of k₁.

    Parameters
    ----------
    kernel : Stationary
        The kernel k₁, one of Gaussian, Laplacian, Cauchy and Matern. Its bandwidth may be ``"median"``.
    multiples : tuple of float, default (0.25, 0.5, 1.0, 2.0)
        The multiples m, at most 64 of them, from 0.001 to 1000.

    Raises
    ------
    ValueError
        If `kernel` is not one of these, a multiple is out of its range, or there are no multiples or more than 64.
        Models refuse a product of two such kernels, because equal multiples would always be paired.

    References
    ----------
    The mixture of random features over bandwidths is that of a sum of kernels, Dai et al. 2014, Theorem 3, drawn in
    turns instead of at random.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> k = MultiScale(kernels.Laplacian(1.0), (0.5, 1.0))
    >>> k({"a": 1.0}, {"a": 0.0}).__round__(4)
    0.2516
    """

    kernel: Stationary
    multiples: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not isinstance(self.kernel, Stationary):
            raise ValueError(f"Expected a kernel with a bandwidth for a MultiScale, got {self.kernel!r}")
        try:
            found = tuple(float(m) for m in self.multiples)
        except (TypeError, ValueError):
            raise ValueError(f"Expected numbers as multiples, got {self.multiples!r}") from None
        if not 1 <= len(found) <= _MOST or not all(1.0 / _LARGEST <= m <= _LARGEST for m in found):
            raise ValueError(
                f"Expected 1 to {_MOST} multiples from {1.0 / _LARGEST:g} to {_LARGEST:g}, got {self.multiples!r}"
            )
        object.__setattr__(self, "multiples", found)

    @property
    def norm(self) -> int:
        """That of the kernel."""
        return self.kernel.norm

    @property
    def is_pending(self) -> bool:
        """Whether the bandwidth is still to be taken from a stream."""
        return self.kernel.is_pending

    def with_medians(self, medians: Iterator[float]) -> Kernel:
        """Return the same of the kernel with its bandwidth taken from a median distance."""
        return replace(self, kernel=self.kernel.with_medians(medians))

    @property
    def part(self) -> FeatureRecipe:
        """Phases in units of the shortest bandwidth, and what each multiple multiplies them by, at most 1."""
        part, least = self.kernel.part, min(self.multiples)
        factors = tuple(least / m for m in self.multiples)
        return part._replace(form=MULTI_SCALE, scale=part.scale / least, order=len(factors), table=factors)

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2)."""
        values = [
            self.kernel.exact(*({name: v / m for name, v in one.items()} for one in (x, x2))) for m in self.multiples
        ]
        return math.fsum(values) / len(values)
