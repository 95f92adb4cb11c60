"""Scaling of inputs: centred, divided by their spread, and logarithmic far from the mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.rows import F64, I64, U64, Rows, in_order
from streamkernel.features.scale_table import (
    COUNTS,
    HORIZON,
    LEAST_SPREAD,
    LIGHT,
    MOST_NAMES,
    RARE,
    SCALE,
    ScalesState,
    observe_rows,
    rehash,
    rescale,
    scale_rows,
    use_moments,
)
from streamkernel.features.shared_unit import MOST_OWN, is_shared

ABSURD = 1000.0
"""Deviations from the median beyond which a value is far out; tails that are merely heavy stay."""

LEAST = 16
"""Values of a name that tell which of them are far out."""

DEVIATION = 1.4826
"""The deviation of a normal variable over the median distance from its median."""

NOT_SCALED = ScalesState(np.zeros(1, COUNTS), np.zeros(0, SCALE))
"""Scales of no names: rows are taken as they are."""


def state_of(scales: Scales | None) -> ScalesState:
    """Return the state of scales, `NOT_SCALED` without them."""
    return NOT_SCALED if scales is None else scales.state


def without_outliers(rows: Rows) -> Rows:
    """Return rows with NaN in place of rare outliers of each name, or `rows` themselves.

    A name with more than half of its values equal has no spread by medians, and no outliers.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features.directions import Directions
    >>> from streamkernel.kernels.program import KernelProgram
    >>> directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    >>> values = np.array([*range(20), -99999.0])[:, None]
    >>> without_outliers(directions.rows(["a"], values)).values[-3:].tolist()
    [18.0, 19.0, nan]
    """
    hashes, of = rows.names()
    counts = np.bincount(of, minlength=len(hashes))
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(rows.values - _medians(rows.values, of, counts)[of])
        spread = DEVIATION * _medians(distance, of, counts)
        is_far = (distance > ABSURD * spread[of]) & (spread[of] > 0.0)
    far = np.bincount(of, is_far, len(hashes))
    are_rare = (counts >= LEAST) & (far <= RARE * counts)
    absurd = is_far & are_rare[of]
    return rows._replace(values=np.where(absurd, np.nan, rows.values)) if absurd.any() else rows


def _medians(values: F64, of: I64, counts: I64) -> F64:
    """Return the median of each name's values, the lower one of two; `of` has the index of each value's name."""
    middle = np.cumsum(counts) - counts + (counts - 1) // 2
    medians: F64 = values[in_order(values, of)[middle]]
    return medians


def _by_key(table: Any, names: U64) -> Any:
    """Return the rows of names in their order; others for names that have none."""
    by_key = np.sort(table, order="key")
    return by_key[np.minimum(np.searchsorted(by_key["key"], names), len(by_key) - 1)]


MOMENTS = ("count", "mean", "squares", "present", "far", "moved", "last")
"""The columns of moments in a file."""


class Scales:
    r"""The scales of a stream's inputs by name, from running moments, so that inputs need no common unit.

    A value v of a name whose scale is (c, s) becomes

        t(v) = q((v - c)/s),   q(z) = z for \|z\| ≤ √3, else sign(z) √3 (1 + log(\|z\|/√3)).

    With √3 a uniform variable is only shifted and divided, and larger values are compressed, so that spikes and
    outliers neither dominate nor vanish. A missing name has no entry, which is equivalent to t = 0. The value that it
    then represents depends on how often the name is present:

    * A name in at least half of the examples is usually present. c and s are the mean and the deviation of its values,
      so that a missing value counts as the mean.
    * Others, such as words and the values of strings, are usually absent, which is 0: c = 0, and s is the deviation
      with absences as zeros, at least 0.6 m/p^¼ where a share p of the examples has values of mean size m. So the
      indicator of a string's value is scaled to at most p^¼/0.6: a string as a whole has about as much influence as a
      number, and a rare value less than a frequent one. Zeros among the values of a name that is usually present have
      the same effect, with 0.6 (1 - p) m/p^¼.

    Inputs that share a unit (:mod:`streamkernel.features.shared_unit`) are usually present; for these t(v) is times
    s/u, where u² is the mean of s².

    Moments describe the whole stream, and from 16,384 examples on mostly of the last 8,192 to 16,384. The scales in
    use change only when :meth:`use_moments` is called, on the schedule of `learners.schedule`: during the first 256
    examples to the scales of the moments, later only if they scale the values to less than half or more than twice the
    deviation that they should, or if the name becomes or ceases to be usually present. So stationary inputs keep their
    scaled values bit for bit. A shift of the mean alone is not followed until it compresses the values to less than
    half: kernels do not depend on the centre, but a change of scale makes what was learned stale.

    A value more than 6 s from c is an outlier, which the moments exclude while at most a tenth of its name's values are
    outliers, so that corrupt values and heavy tails do not hide the others. If there are more, the input has moved:
    they are included, at a distance of at most 10 s, or √n s for n examples. They are also included if most values
    equal the previous one, because then outliers are the only variation.

    A name that has been constant has t(v) = v/c. A name without a scale, because it is new, has been 0, or because
    65,536 others have one, has t(v) = q(v)/max(1, 0.6 n^¼), where n is the number of examples when the scales were
    taken: the scale of a name in a single example.

    References
    ----------
    Welford, "Note on a Method for Calculating Corrected Sums of Squares and Products", Technometrics 1962.
    Samuelson, "How Deviant Can You Be?", Journal of the American Statistical Association 1968.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features.directions import Directions
    >>> from streamkernel.kernels.program import KernelProgram
    >>> directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    >>> scales = Scales()
    >>> for i in range(4):
    ...     scales.observe(directions.row({"second": 1.7e9 + i, "share": 0.01 * i}))
    >>> scales.use_moments()
    True
    >>> a, b = (scales(directions.row({"second": 1.7e9 + i, "share": 0.01 * i})) for i in (1, 2))
    >>> (b.values - a.values).round(3).tolist()
    [0.894, 0.894]
    """

    def __init__(self, state: ScalesState | None = None) -> None:
        self.state = ScalesState(np.zeros(1, COUNTS), np.zeros(16, SCALE)) if state is None else state

    @property
    def n(self) -> int:
        """Examples observed."""
        return int(self.state.counts["n"][0])

    @property
    def n_names(self) -> int:
        """Names that have a scale."""
        return int(self.state.counts["names"][0])

    @property
    def names(self) -> U64:
        """The hashes of the names that have a row in the table, sorted."""
        keys = self.state.table["key"]
        return np.sort(keys[keys > 0])

    def in_use(self, names: U64) -> dict[str, F64]:
        """Return the scales in use of names with a row: t(v) = q((v - centre)/unit)/divisor - shift."""
        scales, counts = _by_key(self.state.table, names), self.state.counts[0]
        has_scale = (scales["spread"] > 0.0) | (scales["centre"] != 0.0)
        newness = max(1.0, LIGHT * float(counts["taken"]) ** 0.25)
        return {
            "centre": np.where(has_scale, scales["centre"], 0.0),
            "unit": np.where(has_scale, scales["unit"], 1.0),
            "divisor": np.where(has_scale, scales["divisor"], newness),
            "shift": np.where(has_scale, scales["shift"], 0.0),
        }

    def copy(self) -> Scales:
        """Return an independent copy."""
        return Scales(ScalesState(*(part.copy() for part in self.state)))

    def grow(self) -> None:
        """Enlarge the table for more names."""
        table = np.zeros(2 * len(self.state.table), SCALE)
        rehash(self.state.table, table)
        self.state = self.state._replace(table=table)

    def observe(self, rows: Rows) -> None:
        """Add examples to the moments, except values that are not finite or of usable size."""
        done, n = 0, len(rows.start) - 1
        while done < n:
            done = int(observe_rows(self.state, rows, done))
            if done < n:
                self.grow()

    def __call__(self, rows: Rows) -> Rows:
        """Return scaled examples; values that are not finite or of usable size do not change."""
        values = np.empty_like(rows.values)
        scale_rows(self.state, rows, values)
        return rows._replace(values=values)

    def of_first(self, rows: Rows) -> Scales:
        """Return the scales of the first examples, in use immediately; these scales have observed only them.

        Outliers are excluded.
        """
        scales, kept = self.copy(), without_outliers(rows)
        if kept is not rows:
            scales, done, n = Scales(), 0, len(rows.start) - 1
            while done < n:  # in order of arrival: taken at 2, 4, 8, ... examples
                last = min(max(2, 2 * done), n)
                scales.observe(kept.part(done, last))
                scales.use_moments()
                done = last
        scales.use_moments()
        return scales

    def in_shared_unit(self, rows: Rows, targets: F64) -> Scales:
        """Return these scales, with one unit for all inputs if that predicts the targets of the first examples better.

        Fewer first examples may have decided otherwise. `targets` has the shape (examples, columns), with an indicator
        of each class.
        """
        scales = self._in_unit(0.0)
        hashes, of = rows.names()
        keys = np.maximum(hashes, np.uint64(1))
        in_use = _by_key(self.state.table, keys)
        is_input = (in_use["key"] == keys) & (in_use["spread"] > 0.0) & (in_use["centre"] != 0.0)
        if np.count_nonzero(is_input) <= MOST_OWN:
            return scales
        spread, table = in_use["spread"][is_input], scales(rows).table(of, is_input)
        common = float(np.sqrt(np.square(spread).mean()))
        is_usable = LEAST_SPREAD <= common <= LARGEST_VALUE
        return self._in_unit(common) if is_usable and is_shared(table, spread / common, targets) else scales

    def _in_unit(self, common: float) -> Scales:
        """Return these scales with one unit for all inputs, or one for each if it is 0."""
        scales = self.copy()
        scales.state.counts["common"] = common
        rescale(scales.state.table, common)
        return scales

    def use_moments(self) -> bool:
        """Use the scales of the moments, and return whether one of them has changed."""
        return bool(use_moments(self.state))

    def tensors(self) -> tensor_file.Tensors:
        """Return the complete state as arrays, with names sorted by hashes."""
        counts, table = self.state.counts[0], self.state.table
        scales = np.sort(table[table["key"] > 0], order="key")
        common = {"scales.common": np.array([counts["common"]])} if counts["common"] > 0.0 else {}
        return common | {
            "scales.n": np.array([counts["n"]]),
            "scales.weights": np.array([counts["weight"], counts["taken"]]),
            "scales.names": scales["key"].view(np.int64),
            "scales.moments": np.stack([scales[name] for name in MOMENTS], axis=1),
            "scales.in_use": np.stack([scales[name] for name in ("centre", "spread")], axis=1),
        }

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`tensors` returned. Raise a ValueError if the tensors do not fit together."""
        (n,) = tensor_file.require_tensor(tensors, "scales.n", np.int64, (1,)).tolist()
        weights = tensor_file.require_tensor(tensors, "scales.weights", np.float64, (2,))
        names = tensor_file.require_tensor(tensors, "scales.names", np.int64, (None,))
        moments = tensor_file.require_tensor(tensors, "scales.moments", np.float64, (len(names), len(MOMENTS)))
        in_use = tensor_file.require_tensor(tensors, "scales.in_use", np.float64, (len(names), 2))
        unit: Any = np.zeros(1)
        if "scales.common" in tensors:
            unit = tensor_file.require_tensor(tensors, "scales.common", np.float64, (1,))
        hashes = np.ascontiguousarray(names).view(np.uint64)
        if len(hashes) > MOST_NAMES or (hashes == 0).any() or (hashes[1:] <= hashes[:-1]).any():
            raise ValueError(f"expected up to {MOST_NAMES} sorted hashes as scales.names, got {len(hashes)} others")
        usable = (
            n >= weights.max()
            and weights.min() >= 0.0
            and (moments[:, [0, *range(3, moments.shape[1] - 1)]] <= weights[0]).all()
            and (moments[:, [0, *range(2, moments.shape[1] - 1)]] >= 0.0).all()
            and (moments <= LARGEST_VALUE**2 * HORIZON).all()
            and (np.abs(np.c_[moments[:, [1, *range(6, moments.shape[1])]], in_use]) <= 2.0 * LARGEST_VALUE).all()
            and ((in_use[:, 1] == 0.0) | (in_use[:, 1] >= LEAST_SPREAD)).all()
            and (unit[0] == 0.0 or LEAST_SPREAD <= unit[0] <= LARGEST_VALUE)
        )
        if not usable:
            raise ValueError("expected moments and scales of examples as scales.*, got other numbers")
        scales = np.zeros(len(hashes), SCALE)
        scales["key"] = hashes
        for name, column in zip(MOMENTS, moments.T, strict=True):
            scales[name] = column
        scales["centre"], scales["spread"] = in_use.T
        rescale(scales, unit[0])
        counts, table = np.zeros(1, COUNTS), np.zeros(max(16, 2 << (len(hashes) - 1).bit_length()), SCALE)
        counts[0] = n, len(hashes), *weights.tolist(), unit[0]
        rehash(scales, table)
        self.state = ScalesState(counts, table)
