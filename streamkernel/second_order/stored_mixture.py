"""A mixture as arrays of a file, and restored from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features import example_tensors
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, I64
from streamkernel.kernels import Kernel
from streamkernel.learners import span, state
from streamkernel.second_order import growth, metric, newton, pairs, recency
from streamkernel.second_order.arrangement import Arrangement, Arranger
from streamkernel.second_order.linear import state as linear_state
from streamkernel.second_order.mixed_function import MixedFunction
from streamkernel.second_order.mixture_state import OWNER, RESTED, RESTS_FROM, SIGNS, SKETCHED_AT, Group, Groups
from streamkernel.second_order.neighbours import state as neighbours
from streamkernel.second_order.weights import LARGEST_LEAD

RECENCY, TARGETS, LEFT_OUT = "recency", "targets", "rested"

OF_TARGETS = ("offset", "predicted_offset", "error_scale", "gradient_bound")
"""The numbers that each of several targets has separately, in the order of files."""

_NAMES = {
    "level": "small", "weights": "weights", "mixer": "mixer", "bounds": "bounds", "standing": "losses", "priors":
    "priors", "span": "span", **{name: name for name in SIGNS},
}  # fmt: skip
"""The names that arrays of the state have in files."""

_SAMPLED = {"sketched_at": SKETCHED_AT, "rests_from": RESTS_FROM}
"""The names of the columns of `sampled` that only learning reads."""


class StoredMixture(MixedFunction):
    """A mixture as files hold it.

    Parameters are those of :class:`~streamkernel.second_order.mixed_function.MixedFunction`.
    """

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this function."""
        self.advance(is_all=True)
        numbers = self.numbers
        groups = self.groups.tensors(int(numbers["buffered"]), bool(numbers["working"]))
        return (
            self.to_predict()
            | groups
            | {name: self._live.state.sampled[:, column].copy() for name, column in _SAMPLED.items()}
            | pairs.tensors_to_learn(self._live.state.pairs)
        )

    def to_predict(self) -> dict[str, Any]:
        """Return the part of :meth:`tensors` needed for predictions, which is small."""
        return _tensors_to_predict(self._live, example_tensors.pack_kept(self.directions.kept))

    def with_groups(self, kept: I64, groups: Sequence[Group]) -> dict[str, Any]:
        """Return the tensors for :meth:`restore` with groups of the kept features instead of the present groups."""
        numbers = self.numbers.copy()
        numbers["buffered"] = 0
        learned = self.to_predict() | state.pack_learned(numbers)
        return learned | {"kept": kept} | Groups.of(groups).tensors(0)

    def restore(self, tensors: Mapping[str, Any], to_learn: bool = True) -> None:
        """Restore the state that :meth:`tensors` of a function with the same parameters returned.

        Without `to_learn`, the result of :meth:`to_predict` is enough. Raise a ValueError if a tensor is missing, does
        not fit, or has values that no function can learn.
        """
        learned = self._read_learned(tensors)
        self._arranger = replace(
            self._arranger,
            is_linear=linear_state.is_stored(tensors),
            is_saturated=linear_state.bound(tensors) > 0,
            window=neighbours.stored(tensors),
            forgetting=self._arranger.forgetting * (RECENCY in tensors),
        )
        features, directions = example_tensors.unpack_kept(tensors), self.directions
        if features is not None:
            self.block_size, rest = divmod(len(features) - 1, self.most_blocks)
            if rest or not self.block_size:
                raise ValueError(f"expected features of {self.most_blocks} blocks as kept, got {len(features) - 1}")
            self._arranger = replace(self._arranger, outputs=self.block_size * directions.plan.outputs)
            directions = Directions(directions.plan, self.block_size, directions.cache_bytes, features)
        self._live = _restored(
            tensors,
            learned,
            self._first(directions, self._live.state.numbers),
            self._arranger,
            self._kernel,
            to_learn=to_learn,
        )


def _recency(mixture: Arrangement) -> dict[str, Any]:
    """Return the recent losses of groups if one of them forgets, else nothing."""
    numbers, owners = mixture.state.numbers[0], mixture.groups.layout[:, OWNER]
    if (owners == np.arange(len(owners))).all():
        return {}
    return recency_tensors(
        int(numbers["restarted"]), int(numbers["compared_at"]), mixture.state.recent, mixture.state.evidence
    )


def recency_tensors(restarted: int, compared: int, recent: F64, evidence: F64) -> dict[str, Any]:
    """Return as tensors the numbers of examples at the last reset of the model and the last comparison of groups, the
    sums of the groups' recent losses, and the evidence of a change.
    """
    return {RECENCY: np.array([restarted, compared]), "recent": recent.copy(), "evidence": evidence.copy()}


def _tensors_to_predict(mixture: Arrangement, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the arrays needed for predictions, and of all arrays of the linear function, which are small;
    `kept` are the features of a pruned function.
    """
    function = mixture.state
    arrays = {name: getattr(function, field).copy() for name, field in _NAMES.items()}
    return (
        state.pack_learned(function.numbers[0])
        | pack_targets(function.numbers)
        | arrays
        | linear_state.pack(function.linear)
        | neighbours.pack(function.neighbours, function.linear)
        | {"table": mixture.table.copy(), LEFT_OUT: function.sampled[:, RESTED].copy()}
        | _recency(mixture)
        | dict(kept)
        | mixture.groups.functions()
        | metric.tensors(function.metric)
        | pairs.tensors_to_predict(function.pairs)
    )


def pack_targets(numbers: Any) -> dict[str, Any]:
    """Return the state of each target, or nothing for a single target."""
    return {} if len(numbers) == 1 else {TARGETS: np.array([numbers[name] for name in OF_TARGETS])}


def _restored(
    tensors: Mapping[str, Any],
    learned: Any,
    empty: Arrangement,
    arranger: Arranger,
    kernel: Kernel,
    *,
    to_learn: bool,
) -> Arrangement:
    """Return the mixture in `tensors`, whose scalar state is `learned`, to learn, or only to predict.

    `empty` is the mixture before its first example, and `kernel` the kernel of single blocks. Raise a ValueError if a
    tensor is missing, does not fit, or has values that no function can learn.
    """
    shapes = {name: getattr(empty.state, own).shape for name, own in _NAMES.items()}
    arrays = {name: tensor_file.require_tensor(tensors, name, np.float64, shape) for name, shape in shapes.items()}
    examples, waiting = int(learned["examples"]), int(learned["buffered"])
    longest = max(arranger.batch_size, newton.LONGEST_OF_MANY)
    if not waiting < longest or not waiting <= examples == learned["steps"] < 1 << 62:
        raise ValueError(f"expected counters of examples as ints, got {state.pack_learned(learned)['ints'].tolist()}")
    if not ((arrays["priors"] > 0.0) & (arrays["priors"] <= 1.0)).all():
        raise ValueError(f"expected priors from 0 to 1, got {arrays['priors'].tolist()}")
    targets = len(empty.state.numbers)
    if not all((mixer.diagonal() > 0.0).all() or not mixer.any() for mixer in np.split(arrays["mixer"], targets)):
        raise ValueError("expected a mixer with a positive diagonal")
    if arrays["positive"].min() < 0.0 or not (np.abs(arrays["lead"]) <= LARGEST_LEAD).all():
        raise ValueError(f"expected weights of at least 0 as positive, leads of {-LARGEST_LEAD:g} to {LARGEST_LEAD:g}")
    if min(arrays["bounds"].min(), arrays["standing"].min(), learned["error_scale"]) < 0.0:
        raise ValueError("expected bounds, losses and a spread of at least 0")
    span.check(arrays["span"])
    table = tensor_file.require_tensor(tensors, "table", np.int64, empty.table.shape)
    ordinary, restarted, compared = arranger.ordinary, 0, 0
    arrays |= {"recent": empty.state.recent, "evidence": empty.state.evidence}
    if RECENCY in tensors:
        restarted, compared = tensor_file.require_tensor(tensors, RECENCY, np.int64, (2,)).tolist()
        for name in ("recent", *({"evidence"} & tensors.keys())):
            arrays[name] = tensor_file.require_tensor(tensors, name, np.float64, (len(table),))
    are_possible = (
        min(restarted, compared, arrays["evidence"].min()) >= 0
        and max(restarted, compared) <= examples
        and growth.possible(table[:ordinary], [*arranger.alone], arranger.stages, examples, restarted)
        and recency.possible(table, ordinary, examples)
    )
    if not are_possible:
        raise ValueError(f"expected groups of blocks as table, and evidence of at least 0, got {table.tolist()}")
    own_arrays: dict[str, Any] = {own: arrays[name].copy() for name, own in _NAMES.items()}
    own_arrays |= {name: arrays[name].copy() for name in ("recent", "evidence")}
    own_arrays["sampled"] = np.zeros((len(table), 4))
    own_arrays["metric"] = metric.restore(tensors, table, len(arranger.alone), empty.directions)
    in_pairs = np.flatnonzero(table[:, 1] >= growth.IN_PAIRS * len(arranger.alone)).tolist()
    g = in_pairs[0] if in_pairs and arranger.has_metric else pairs.NOWHERE
    own_arrays["pairs"] = pairs.restore(tensors, g, own_arrays["metric"], empty.directions)
    columns = int(empty.state.numbers["columns"][0])
    classes = None if empty.state.numbers["intercept"][0] == state.MEAN else max(columns // targets, 2)
    own_arrays["linear"] = linear = linear_state.unpack(tensors, columns, targets)
    own_arrays["neighbours"] = neighbours.unpack(tensors, linear, classes, targets)
    numbers = empty.state.numbers.copy()
    numbers["buffered"] = waiting
    restored = arranger.arrange(kernel, empty.directions, numbers, table.copy(), {}, own_arrays)
    used = max(int(restored.state.numbers["blocks"][0]), min(examples, sum(arranger.alone)))
    if learned["blocks"] != used:
        raise ValueError(f"expected {used} blocks, got {learned['blocks']}")
    restored.groups.restore(tensors, waiting, to_learn)
    for group in restored.groups:
        if to_learn and not ((group.factor.diagonal() > 0.0).all() if examples else not group.factor.any()):
            raise ValueError("expected factors with positive diagonals")
    sampled = {LEFT_OUT: RESTED} | (_SAMPLED if to_learn else {})
    for name, column in sampled.items():
        if name in tensors:  # without them all rows are added until the next sketch, and no group has rested
            counts = tensor_file.require_tensor(tensors, name, np.float64, (len(table),))
            if not ((counts >= 0.0) & (counts <= examples)).all():
                raise ValueError(f"expected numbers of examples as {name}, got {counts.tolist()}")
            restored.state.sampled[:, column] = counts
    numbers = restored.state.numbers
    for own in numbers:
        state.set_learned(own, learned)
    if targets > 1:
        of_targets = tensor_file.require_tensor(tensors, TARGETS, np.float64, (len(OF_TARGETS), targets))
        if of_targets[2:].min() < 0.0:
            raise ValueError(f"expected scales and bounds of at least 0 as {TARGETS}, got {of_targets[2:].min()}")
        span.check_offsets(numbers["intercept"][0], of_targets[:2])
        for name, values in zip(OF_TARGETS, of_targets, strict=True):
            numbers[name] = values
    numbers["looked_at"], numbers["compared_at"], numbers["restarted"] = examples, compared, restarted
    if to_learn and "change" in tensors:
        numbers["working"], numbers["unit"] = 1, newton.DONE
    return restored
