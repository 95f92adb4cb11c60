"""The comparison of an example with the running means of its fields, by mixtures of both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamkernel.estimators.model_state import State
from streamkernel.features.counter_rng import hash64
from streamkernel.features.directions import Directions
from streamkernel.features.field_names import read_fields
from streamkernel.features.rows import F64, I64, U64, Rows
from streamkernel.features.running_moments import moments_of


class Comparison(NamedTuple):
    """The names of an example's fields, with their values and their running means.

    A string is an indicator of its value. Its field also has the indicators of all other values, which are 0 in the
    example; the mean of each is the frequency of its value. Fields and names are in the order of their hashes, so the
    order of the example does not matter.

    Attributes
    ----------
    x
        The example.
    fields
        Its fields.
    field_of
        The number of each name's field.
    hashes, readers
        The names by their hashes, and which parts of the kernel read them.
    values, means
        The values in the example, and those it is compared with.
    """

    x: Mapping[Hashable, Any]
    fields: tuple[Hashable, ...]
    field_of: I64
    hashes: U64
    readers: I64
    values: F64
    means: F64

    def row(self, directions: Directions) -> Rows:
        """Return the example, with entries of value 0."""
        n = len(self.hashes)
        return directions.restore_rows(np.array([0, n]), self.hashes, self.readers, self.values, np.ones(1))

    def rows(self, directions: Directions, chosen: Any) -> Rows:
        """Return examples with some fields from the example and the others at their means.

        Parameters
        ----------
        directions
            The directions that read the rows.
        chosen
            A mask of the fields, shape (examples, fields).
        """
        n, width = len(chosen), len(self.hashes)
        if directions.plan.transforms:  # these know names, not hashes; there are no means
            return Rows.stack([directions.row(self._part(own)) for own in chosen])
        values = np.where(chosen[:, self.field_of], self.values, self.means).ravel()
        start = np.arange(0, n * width + 1, width) if width else np.zeros(n + 1, np.int64)
        one = self.row(directions)
        tiled = np.tile(one.slots, n), np.tile(one.hashes, n), np.tile(one.readers, n)
        return Rows(start, *tiled, values, np.ones(n))

    def _part(self, chosen: Any) -> dict[Hashable, Any]:
        """Return the chosen fields of the example."""
        return {name: self.x[name] for name, is_chosen in zip(self.fields, chosen, strict=True) if is_chosen}


def compare(found: State, x: Mapping[Hashable, Any]) -> Comparison:
    """Return the comparison of an example with the running means, which are 0 if inputs are not scaled.

    A missing field of `x` that is usually present is compared with its own mean, and so does not differ.

    Raises
    ------
    InputError
        If a value is neither a number, a string nor missing, or a string where a number was learned.
    """
    directions = found.learner.directions
    fields = tuple(sorted(x, key=hash64))
    number = {name: i for i, name in enumerate(fields)}
    row = directions.row(x, found.numeric)
    if directions.plan.transforms:
        nothing: Any = np.zeros(0)
        return Comparison(x, fields, nothing.astype(int), row.hashes[:0], row.readers[:0], nothing, nothing)
    field_of = {one: number[name] for one, name in read_fields(x).items()}
    given, values = row.hashes.tolist(), dict(zip(row.hashes.tolist(), row.values.tolist(), strict=True))
    readers = dict(zip(given, row.readers.tolist(), strict=True))
    means = dict.fromkeys(given, 0.0)
    if found.scales is not None:
        for one, field in (found.numeric.fields or {}).items():
            if field in number:
                field_of.setdefault(one, number[field])
        hashes = np.array(sorted(field_of), np.uint64)
        moments = moments_of(found.scales.state, hashes)
        for one, mean, is_usual in zip(hashes.tolist(), moments.mean.tolist(), moments.is_usual, strict=True):
            if one in values or not is_usual:
                means[one] = mean
    hashes = np.array(sorted(means), np.uint64)
    names = hashes.tolist()
    return Comparison(
        x,
        fields,
        np.array([field_of[one] for one in names], np.int64),
        hashes,
        np.array([readers.get(one, 1) for one in names], np.int64),
        np.array([values.get(one, 0.0) for one in names], np.float64),
        np.array([means[one] for one in names], np.float64),
    )
