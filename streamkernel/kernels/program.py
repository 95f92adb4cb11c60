"""The compiled form of a kernel: k = Σ_t w_t ∏ parts, each part with its inputs."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamkernel.errors import InputError
from streamkernel.features import distributions
from streamkernel.features.compiled_kernel import (
    ADDITIVE,
    BY_BLOCKS,
    LARGEST_VALUE,
    MULTI_SCALE,
    PART,
    PHASE,
    SHARED,
    SKETCH,
    TABLE_SIZE,
)
from streamkernel.features.counter_rng import domain_key
from streamkernel.features.feature_maps import combine, form
from streamkernel.features.rows import F64, I64, DerivedName, Rows, numbers

if TYPE_CHECKING:
    from streamkernel.kernels.base import Kernel, SimpleKernel, X
    from streamkernel.kernels.composite import Transformed

MOST_PARTS = 62
"""Bits of a name's readers."""

MOST_TERMS = 70
"""Terms of a sum of products."""

LARGEST_FACTOR = 1e60
"""Its root still is a float32."""


_FIXED = ("distribution", "form", "transform", "order", "key")
"""The fields of a part that are equal in two plans with the same directions."""


class PartView(NamedTuple):
    """The inputs of a part: the example's (space 0) or a transform's outputs, limited by filters of names."""

    space: int = 0
    names: tuple[frozenset[Hashable], ...] = ()

    def reads(self, name: Hashable) -> bool:
        """Return whether the part reads a name of an expanded example."""
        space, name = name if isinstance(name, DerivedName) else (0, name)
        return space == self.space and all(covers(names, name) for names in self.names)


class Term(NamedTuple):
    """A weight times a product of parts, which are given by their numbers."""

    weight: float
    parts: tuple[int, ...]


class KernelProgram:
    """The parts of a kernel, in their order.

    Bandwidths that are pending count as 1. Each part has a key of its own, so that its directions are independent of
    the others'. `turns` says how the bandwidths of a `MultiScale` take turns, as
    :mod:`streamkernel.features.compiled_kernel` names it. Raise a ValueError if it is no kernel, has too many parts or
    terms, or multiplies two `MultiScale` kernels.
    """

    def __init__(self, kernel: Kernel, seed: int, turns: float = BY_BLOCKS) -> None:
        if isinstance(kernel, type) or not hasattr(kernel, "add_to_program"):
            raise ValueError(f"Expected kernel as one of streamkernel.kernels, got {kernel!r}")
        self.kernel = kernel.with_medians(repeat(1.0)) if kernel.is_pending else kernel
        self.parts: list[tuple[SimpleKernel, PartView]] = []
        self._spaces: list[tuple[Transformed, PartView]] = []
        self.terms: list[Term] = self.kernel.add_to_program(self, PartView())
        self.allow(len(self.terms))
        simple_parts = [part.part for part, _ in self.parts]
        is_complex = any(part.form in (PHASE, ADDITIVE, MULTI_SCALE) for part in simple_parts)
        self.outputs = len(self.terms) * (1 + is_complex)
        self.itself = 0.0
        if all(part.itself > 0.0 for part in simple_parts):
            self.itself = sum(
                weight * float(np.prod([simple_parts[i].itself for i in parts])) for weight, parts in self.terms
            )
        factors = [*(term.weight for term in self.terms), self.itself or 1.0]
        if not all(1 / LARGEST_FACTOR <= factor <= LARGEST_FACTOR for factor in factors):
            raise ValueError(
                f"Expected a kernel whose constant factors are from {1 / LARGEST_FACTOR:g} to {LARGEST_FACTOR:g}, "
                f"got {self.kernel!r}"
            )
        if any(sum(simple_parts[i].form == MULTI_SCALE for i in term.parts) > 1 for term in self.terms):
            raise ValueError(f"Expected at most one MultiScale in a product, got {self.kernel!r}")
        self.parts_compiled = np.zeros(len(simple_parts), PART)
        for i, part in enumerate(simple_parts):
            key = domain_key(seed, f"features/{i}" if i else "features")
            shift = turns if part.form == MULTI_SCALE else part.shift
            table = np.zeros(TABLE_SIZE)
            table[: len(part.table)] = part.table
            self.parts_compiled[i] = (
                part.measure, part.form, part.transform, part.order, key,
                part.scale, part.shape, shift, part.least, part.unit, table,
            )  # fmt: skip
        self._limits = [(part.unit, part.least) for part in simple_parts]
        self.weights: F64 = np.sqrt([term.weight for term in self.terms])
        self.factors = np.array([[i in term.parts for i in range(len(simple_parts))] for term in self.terms], np.uint8)
        self.arrays = self.parts_compiled, self.weights, self.factors  # the first three of a CompiledKernel
        self.reads_all = len(self.parts) == 1 and not self._spaces and not self.parts[0][1].names  # names of examples
        self.transforms = bool(self._spaces)  # whether examples have to be expanded before they are read
        self._made_of = self.kernel, seed, turns
        is_shared = simple_parts[0].form == MULTI_SCALE and turns == SHARED
        self.blocks_per_direction = simple_parts[0].order if is_shared else 1

    def __reduce__(self) -> tuple[type[KernelProgram], tuple[Kernel, int, float]]:
        """Return the constructor's arguments: arrays that joblib maps into memory cannot be passed to compiled code."""
        return KernelProgram, self._made_of

    def has_directions_of(self, other: KernelProgram) -> bool:
        """Return whether another program has the same directions, so that they differ in bandwidths alone."""
        fixed, others = ([part[name] for name in _FIXED] for part in (self.parts_compiled, other.parts_compiled))
        return all(map(np.array_equal, fixed, others)) and np.array_equal(self.factors, other.factors)

    def load(self, kept: bool) -> None:
        """Load the compiled code of this kernel, also for kept features if there are any."""
        for part, _ in self.parts:
            distributions.require(part.part.measure, kept)
            form.require(part.part.form)
        if len(self.parts) > 1:
            combine.require(0)

    def add(self, part: SimpleKernel, view: PartView) -> list[Term]:
        """Add a part that reads `view`, and return its one term."""
        self.parts.append((part, view))
        return [Term(1.0, (len(self.parts) - 1,))]

    def allow(self, terms: int) -> None:
        """Raise a ValueError if there are too many parts or terms."""
        if len(self.parts) > MOST_PARTS or terms > MOST_TERMS:
            raise ValueError(
                f"Expected a kernel of at most {MOST_PARTS} parts and {MOST_TERMS} terms, "
                f"got {len(self.parts)} and {terms}"
            )

    def space(self, kernel: Transformed, view: PartView) -> PartView:
        """Add a transform of what `view` reads, and return a view of its outputs."""
        self._spaces.append((kernel, view))
        return PartView(len(self._spaces))

    @property
    def is_plain(self) -> bool:
        """Whether it is one stationary kernel: phases of projections of the example as it is."""
        return len(self.parts) == 1 and not self._spaces and self.parts[0][0].part.form in (PHASE, MULTI_SCALE)

    @property
    def is_sketch(self) -> bool:
        """Whether features come from a tensor sketch, which cannot be drawn one by one."""
        return bool((self.parts_compiled["form"] == SKETCH).any())

    def expand(self, x: X) -> Mapping[Hashable, float]:
        """Return `x` as numbers, with the outputs of all transforms.

        Raise an InputError if a value is neither a number nor a string, or a transform fails.
        """
        names: dict[Hashable, Any] = dict(x)
        for space, (kernel, view) in enumerate(self._spaces, 1):
            read = {n.name if isinstance(n, DerivedName) else n: v for n, v in names.items() if view.reads(n)}
            names.update((DerivedName(space, name), value) for name, value in kernel.transformed(read).items())
        used = {view.space for _, view in self.parts}
        kept = {n: v for n, v in names.items() if (n.space if isinstance(n, DerivedName) else 0) in used}
        return numbers(kept)

    def readers(self, names: Sequence[Hashable]) -> I64:
        """Return for each name the parts that read it, a bit for each."""
        return np.array(
            [sum(1 << i for i, (_, view) in enumerate(self.parts) if view.reads(name)) for name in names], np.int64
        )

    def check(self, x: X) -> None:
        """Raise the error that names the first feature of `x` that the kernel cannot read. It is an InputError."""
        for name, value in self.expand(x).items():
            for part, view in self.parts:
                if view.reads(name):
                    part.check(name.name if isinstance(name, DerivedName) else name, value)

    def usable(self, rows: Rows) -> bool:
        """Return whether all values are finite, of usable size and in the kernel's domain."""
        for i, (unit, least) in enumerate(self._limits):
            values = rows.values if self.reads_all else rows.values[(rows.readers >> i) & 1 == 1]
            low, high = float(np.minimum.reduce(values, initial=0.0)), float(np.maximum.reduce(values, initial=0.0))
            if not (max(-low, high) * unit <= LARGEST_VALUE and low >= least):
                return False
        return True

    def unusable(self, rows: Rows) -> InputError:
        """Return the error for rows without usable features."""
        worst = max(rows.values.tolist(), key=lambda value: np.inf if np.isnan(value) else abs(value), default=0.0)
        return InputError(f"Expected numbers of usable size for {self.kernel!r}, got {worst!r}")


def covers(names: Collection[Hashable], name: Hashable) -> bool:
    """Return whether `name` is one of `names`, or an indicator ``name=value`` of one.

    Examples
    --------
    >>> covers({"a"}, "a"), covers({"a"}, "a=red"), covers({"a"}, "ab=red")
    (True, True, False)
    """
    return name in names or (isinstance(name, str) and any(name.startswith(f"{one}=") for one in names))
