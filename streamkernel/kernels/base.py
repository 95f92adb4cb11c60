"""The base classes of kernels: exact values, parts of features, and composition."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkernel.errors import InputError
from streamkernel.features.compiled_kernel import IDENTITY, LARGEST_VALUE
from streamkernel.features.rows import numbers

if TYPE_CHECKING:
    from streamkernel.kernels.composite import OnInputs, Product, Scaled, Sum, Transformed
    from streamkernel.kernels.program import KernelProgram, PartView, Term

X = Mapping[Hashable, Any]
Transform = Callable[[X], X]

KERNEL = """
Parameters
----------
sigma : float or "median", default "median"
    The bandwidth σ > 0, in units of x. ``"median"`` is the median distance between the first 256 examples.
median_factor : float, default 1.0
    The factor of the median distance, greater than 0; used with ``"median"``.

Raises
------
ValueError
    If a parameter is out of its range.

References
----------
Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, Table 1.
"""
"""Parts of docstrings that kernels with parameters have in common."""


class FeatureRecipe(NamedTuple):
    """The features of a simple kernel: the codes and numbers that compiled code gets.

    `form`, `measure` and `transform` are codes of `features.compiled_kernel` and `features.distributions`. Inputs of
    less than `least` are refused, transformed inputs multiplied by `scale`; `shape` is a number of the measure or form,
    `shift` of the transform. `itself` is k(x, x) where it is the same for all x, else 0.
    """

    form: int
    measure: int
    scale: float = 1.0
    transform: int = IDENTITY
    shape: float = 0.0
    shift: float = 1.0
    least: float = -math.inf
    order: int = 0
    table: tuple[float, ...] = ()
    itself: float = 0.0

    @property
    def unit(self) -> float:
        """The factor by which an input is multiplied before it is compared with the largest usable value."""
        return self.scale if self.transform == IDENTITY else 1.0


class Kernel:
    """A kernel k(x, x') on examples: numbers, or strings as indicators, by name. A name that is missing counts as 0.

    Kernels add and multiply: ``k1 + k2``, ``k1 * k2``, ``2.0 * k1``. ``k1.on("a", "b")`` reads these names only, and
    ``k1.of(transform)`` is the kernel k1(ψ(x), ψ(x')).

    Examples
    --------
    >>> from streamkernel import kernels
    >>> k = kernels.Gaussian(1.0).on("a") + 2.0 * kernels.Intersection().on("colour")
    >>> k({"a": 1.0, "colour": "red"}, {"a": 1.0, "colour": "red"})
    3.0
    """

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2).

        Raises
        ------
        InputError
            If a value is neither a number nor a string, or is outside of the kernel's domain; names the feature.
        ValueError
            If a bandwidth is still to be taken from a stream.
        """
        raise NotImplementedError

    def __add__(self, other: Kernel) -> Sum:
        """Return k + k', whose features stand side by side."""
        from streamkernel.kernels.composite import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Product | Scaled:
        """Return k·k', whose features are products of independent features; or a multiple of k."""
        from streamkernel.kernels.composite import Product, Scaled

        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if isinstance(other, (int, float)) else NotImplemented

    def __rmul__(self, factor: float) -> Scaled:
        """Return a multiple of k."""
        from streamkernel.kernels.composite import Scaled

        return Scaled(self, factor) if isinstance(factor, (int, float)) else NotImplemented

    def on(self, *names: Hashable) -> OnInputs:
        """Return this kernel on some of the features; a name stands also for its indicators ``name=value``.

        Parameters
        ----------
        *names : str
            The names that the kernel reads. A name includes its indicators ``name=value``.
        """
        from streamkernel.kernels.composite import OnInputs

        return OnInputs(self, names)

    def of(self, transform: str | Transform) -> Transformed:
        """Return this kernel of ψ(x): a name of :mod:`streamkernel.kernels.transforms`, or a function of x.

        Parameters
        ----------
        transform : str or callable
            The name of a transform, or a function from a dictionary of inputs to a dictionary of new inputs.
        """
        from streamkernel.kernels.composite import Transformed

        return Transformed(self, transform)

    @property
    def is_pending(self) -> bool:
        """Whether a bandwidth is still to be taken from a stream."""
        return False

    def with_medians(self, medians: Iterator[float]) -> Kernel:
        """Return the kernel with the bandwidths that are pending taken from median distances, one for each part."""
        raise NotImplementedError

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Add the parts of this kernel to `plan`, and return its terms, Σ weight ∏ parts."""
        raise NotImplementedError


@dataclass(frozen=True)
class SimpleKernel(Kernel):
    """A kernel with features of one form."""

    @property
    def part(self) -> FeatureRecipe:
        """The recipe of its features."""
        raise NotImplementedError

    @property
    def norm(self) -> int:
        """Of the distance, the 1- or 2-norm, whose median a bandwidth is a multiple of; 0 if it has none."""
        return 0

    def exact(self, x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> float:
        """Return k(x, x2) for numbers in the domain."""
        raise NotImplementedError

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2); see :meth:`Kernel.__call__`."""
        if self.is_pending:
            raise ValueError(f'Expected numbers, got "median", which is taken from a stream: {self!r}')
        inputs = numbers(x), numbers(x2)
        for one in inputs:
            for name, value in one.items():
                self.check(name, value)
        return self.exact(*inputs)

    def check(self, name: Hashable, value: float) -> None:
        """Raise an InputError that names the feature if its value is not finite, too large or outside of the domain."""
        part = self.part
        where = f"x[{name!r}]"
        if not abs(value) * part.unit <= LARGEST_VALUE:
            raise InputError(f"Expected a finite number of usable size, got {value!r} - at {where}")
        if value < part.least:
            domain = "of at least 0" if part.least == 0.0 else f"above {-part.shift:g}"
            raise InputError(f"Expected a number {domain} for {type(self).__name__}, got {value!r} - at {where}")

    def with_medians(self, medians: Iterator[float]) -> Kernel:
        """Return the kernel itself, which has no bandwidth."""
        next(medians)
        return self

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Add this part to `plan`."""
        return plan.add(self, view)


def pairs(x: Mapping[Hashable, float], x2: Mapping[Hashable, float]) -> list[tuple[float, float]]:
    """Return the values of each name in `x` and `x2`, 0 where it is missing."""
    return [(x.get(name, 0.0), x2.get(name, 0.0)) for name in x.keys() | x2.keys()]
