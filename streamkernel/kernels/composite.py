"""Compositions of kernels (Dai et al. 2014, Theorem 3): sums, products, multiples, selected inputs, transforms."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamkernel.errors import InputError, is_real
from streamkernel.kernels import transforms
from streamkernel.kernels.base import Kernel, Transform, X
from streamkernel.kernels.program import KernelProgram, PartView, Term, covers


class _Composite(Kernel):
    """A kernel with kernels as fields."""

    @property
    def _kernels(self) -> dict[str, Kernel]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Kernel)}

    @property
    def is_pending(self) -> bool:
        """Whether one of the kernels has a bandwidth to be taken from a stream."""
        return any(kernel.is_pending for kernel in self._kernels.values())

    def with_medians(self, medians: Iterator[float]) -> Kernel:
        """Return the same of the kernels with their bandwidths taken from median distances."""
        kernels: dict[str, Any] = {name: kernel.with_medians(medians) for name, kernel in self._kernels.items()}
        return replace(self, **kernels)  # type: ignore[type-var]  # all are dataclasses


@dataclass(frozen=True)
class _Pair(_Composite):
    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        for name, kernel in (("left", self.left), ("right", self.right)):
            if not isinstance(kernel, Kernel):
                raise ValueError(f"Expected {name} as a kernel for a {type(self).__name__}, got {kernel!r}")


@dataclass(frozen=True)
class Sum(_Pair):
    """k(x, x') = k₁(x, x') + k₂(x, x'); written ``k1 + k2``. Its features are the features of both kernels.

    Parameters
    ----------
    left, right : Kernel
        The kernels.

    Raises
    ------
    ValueError
        If `left` or `right` is not a kernel.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> k = kernels.Gaussian(1.0) + kernels.Polynomial(degree=1, c=0.0)
    >>> k({"a": 2.0}, {"a": 2.0})
    5.0
    """

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2)."""
        return self.left(x, x2) + self.right(x, x2)

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Add the terms of both kernels."""
        return [*self.left.add_to_program(plan, view), *self.right.add_to_program(plan, view)]


@dataclass(frozen=True)
class Product(_Pair):
    """k(x, x') = k₁(x, x') k₂(x, x'); written ``k1 * k2``. A feature is a product of independent features.

    Parameters
    ----------
    left, right : Kernel
        The kernels.

    Raises
    ------
    ValueError
        If `left` or `right` is not a kernel.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> k = kernels.Gaussian(1.0).on("a") * kernels.Polynomial(degree=1, c=0.0).on("b")
    >>> k({"a": 2.0, "b": 3.0}, {"a": 2.0, "b": 1.0})
    3.0
    """

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2)."""
        return self.left(x, x2) * self.right(x, x2)

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Multiply each term of one kernel by each term of the other."""
        left, right = self.left.add_to_program(plan, view), self.right.add_to_program(plan, view)
        plan.allow(len(left) * len(right))  # here, because products of sums soon have more terms than fit in memory
        return [Term(a.weight * b.weight, a.parts + b.parts) for a in left for b in right]


@dataclass(frozen=True)
class _Wrapper(_Composite):
    kernel: Kernel

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ValueError(f"Expected a kernel, got {self.kernel!r}")


@dataclass(frozen=True)
class Scaled(_Wrapper):
    """k(x, x') = factor · k₁(x, x'); written ``2.0 * k1``.

    Parameters
    ----------
    kernel : Kernel
        The kernel k₁.
    factor : float, default 1.0
        The factor, greater than 0.

    Raises
    ------
    ValueError
        If `factor` is not positive.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> (2.0 * kernels.Gaussian(1.0))({"a": 1.0}, {"a": 1.0})
    2.0
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_real(self.factor) and 0 < self.factor < math.inf):
            raise ValueError(f"Expected a positive factor, got {self.factor!r}")

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2)."""
        return self.factor * self.kernel(x, x2)

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Multiply the weights."""
        return [Term(self.factor * weight, parts) for weight, parts in self.kernel.add_to_program(plan, view)]


@dataclass(frozen=True)
class OnInputs(_Wrapper):
    """k₁ on some of the inputs; written ``k1.on("a", "b")``.

    Parameters
    ----------
    kernel : Kernel
        The kernel k₁.
    names : tuple of str, default ()
        The names that the kernel reads. A name includes its indicators ``name=value``.

    Raises
    ------
    ValueError
        If `names` is empty or is not a sequence of names.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> kernels.Gaussian(1.0).on("a")({"a": 1.0, "b": 5.0}, {"a": 1.0})
    1.0
    """

    names: tuple[Hashable, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.names, str) or not self.names:
            raise ValueError(f"Expected a list of names, got {self.names!r}")
        object.__setattr__(self, "names", tuple(_as_name(name) for name in self.names))

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2)."""
        return self.kernel(*({name: v for name, v in one.items() if self._reads(name, v)} for one in (x, x2)))

    def _reads(self, name: Hashable, value: Any) -> bool:
        return covers(self.names, name) or (isinstance(value, str) and covers(self.names, f"{name}={value}"))

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Limit the inputs that are read."""
        return self.kernel.add_to_program(plan, PartView(view.space, (*view.names, frozenset(self.names))))


@dataclass(frozen=True)
class Transformed(_Wrapper):
    """k(x, x') = k₁(ψ(x), ψ(x')); written ``k1.of(transform)``.

    Parameters
    ----------
    kernel : Kernel
        The kernel k₁.
    transform : str or callable, default "unit"
        The name of a transform in :mod:`streamkernel.kernels.transforms`, or a function from a dictionary of inputs to
        a dictionary of new inputs. A model with a function can be pickled if the function can, but not saved.

    Raises
    ------
    ValueError
        If no transform has this name.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> k = kernels.DotProduct([0.0, 1.0])
    >>> k.of("unit")({"a": 3.0, "b": 4.0}, {"a": 1.0}).__round__(4)
    0.6
    >>> k.of(lambda x: {"length": len(x["text"])})({"text": "abc"}, {"text": "ab"})
    6.0
    """

    transform: str | Transform = "unit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.transform) and self.transform not in transforms.__all__:
            names = ", ".join(transforms.__all__)
            raise ValueError(f"Expected a function or one of {names} as transform, got {self.transform!r}")

    def __call__(self, x: X, x2: X) -> float:
        """Return k(x, x2)."""
        return self.kernel(self.transformed(x), self.transformed(x2))

    def add_to_program(self, plan: KernelProgram, view: PartView) -> list[Term]:
        """Add a part that reads the outputs of the transform."""
        return self.kernel.add_to_program(plan, plan.space(self, view))

    def transformed(self, x: X) -> X:
        """Return ψ(x).

        Raises
        ------
        InputError
            If the transform fails, or gives something else than features by name.
        """
        function = self.transform if callable(self.transform) else getattr(transforms, self.transform)
        try:
            features = function(x)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"Expected a transform of x, got {type(error).__name__}: {error} - at {function!r}"
            ) from error
        if not isinstance(features, Mapping):
            raise InputError(
                f"Expected features by name, got {type(features).__name__} {features!r} - from {function!r}"
            )
        return features


def _as_name(name: Any) -> Hashable:
    """Return a name as a key: a list, as JSON has it, is a tuple."""
    return tuple(_as_name(part) for part in name) if isinstance(name, list) else name
