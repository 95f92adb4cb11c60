"""The groups of a mixture with all their arrays, and their construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from streamkernel.features.directions import Directions
from streamkernel.features.rows import F32, I64
from streamkernel.features.scale_table import ScalesState
from streamkernel.kernels import Kernel, MultiScale
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners.span import ENTRIES
from streamkernel.learners.state import MEAN
from streamkernel.second_order import growth, metric, newton, pairs, slots
from streamkernel.second_order.evaluation import coefficients_of_groups, copy_for_prediction
from streamkernel.second_order.last_row import no_row
from streamkernel.second_order.linear.state import SATURATION, new_linear, with_more_room
from streamkernel.second_order.mixture_state import (
    BORN,
    COUNT,
    FIRST,
    OWNER,
    Group,
    Groups,
    MixtureState,
)
from streamkernel.second_order.neighbours.state import neighbour_functions, new_neighbours, with_places
from streamkernel.second_order.small_functions import FIRST_NUMBERS, FUNCTIONS
from streamkernel.second_order.tiles import EIGHT

BEGINNING = 0.4
"""The initial weight of the linear function; the functions of groups share the rest."""


class Arrangement(NamedTuple):
    """The state of a mixture that compiled code does not change in place; it is replaced in one assignment.

    Attributes
    ----------
    state
        The arrays.
    groups
        The groups, which share them.
    directions
        The directions, with the bandwidths of all blocks.
    table
        Blocks, bandwidth and first example of each group; of one that forgets, at the end, the block that it shares
        instead of the bandwidth.
    """

    state: MixtureState
    groups: Groups
    directions: Directions
    table: I64

    def prior(self, g: int) -> float:
        """Return λ of a group, in the units of its factor."""
        numbers = self.state.numbers[0]
        unit = numbers["k_xx"] or numbers["mean_square"] or 1.0
        return float(self.state.priors[g] * unit * self.table[g, 0])

    def squared_norm(self) -> float:
        """Return ‖w‖² of the mixed function."""
        sums: dict[int, Any] = {}
        for owner, w in zip(self.state.layout[:, OWNER].tolist(), coefficients_of_groups(self.state), strict=True):
            sums[owner] = sums.get(owner, 0.0) + w
        return float(sum(np.square(w).sum() for w in sums.values()))

    @property
    def since(self) -> int:
        """Examples since the model was last reset."""
        numbers = self.state.numbers[0]
        return int(numbers["examples"] - numbers["restarted"])

    def with_more_places(self) -> Arrangement:
        """Return the arrangement with a larger capacity for names in the linear function."""
        linear = with_more_room(self.state.linear)
        near = with_places(self.state.neighbours, linear)
        return self._replace(state=self.state._replace(linear=linear, neighbours=near))

    def with_more_pairs(self) -> Arrangement:
        """Return the arrangement with sums over pairs of all known inputs."""
        inputs = int(self.state.metric.counts[metric.NAMES])
        more = pairs.with_room(self.state.pairs, inputs)
        return self if more is self.state.pairs else self._replace(state=self.state._replace(pairs=more))

    def to_predict_apart(self, scales: ScalesState) -> Arrangement:
        """Return a copy that shares no changing state and lacks the factors, most of a large model."""
        nothing: F32 = np.zeros(0, np.float32)
        copy, _ = copy_for_prediction(self.state, scales)
        copy = copy._replace(rows=nothing, factor=nothing, panels=nothing, sketch=nothing)
        groups = self.groups.with_flat(
            newton=copy.newton, steady=copy.steady, rows=nothing, factor=nothing, panels=nothing, sketch=nothing
        )
        directions = self.directions.apart()
        copy = copy._replace(metric=metric.with_places(copy.metric, directions))
        return Arrangement(copy, groups, directions, self.table)


@dataclass(frozen=True)
class Arranger:
    """The common part of all arrangements of one model.

    Parameters
    ----------
    alone
        Blocks of each group that begins at once.
    stages
        Sizes that a larger group can have, 0 if there is none.
    outputs
        Outputs of a block.
    batch_size
        Examples in a Newton step at least.
    most_blocks
        Cap on the blocks.
    seed
        Seed of the features.
    has_metric
        Whether new groups may be in a metric.
    is_linear, linear_prior, linear_forgetting
        Whether there is a linear function, its λ, and its forgetting factor per example.
    is_saturated
        Whether its scores are saturated, as scores of classes are.
    window
        The number of examples stored for the nearest neighbours, 0 without those functions.
    forgetting
        The forgetting factor per example of the group that shares the features of a block, 0 without that group.
    """

    alone: tuple[int, ...]
    stages: int
    outputs: int
    batch_size: int
    most_blocks: int
    seed: int
    has_metric: bool
    is_linear: bool
    linear_prior: float
    linear_forgetting: float
    is_saturated: bool
    window: int
    forgetting: float

    @property
    def ordinary(self) -> int:
        """Number of groups with features of their own."""
        return len(self.alone) + 2 * (self.stages > 0)

    def first(self, kernel: Kernel, directions: Directions, numbers: Any) -> Arrangement:
        """Return the arrangement before the first example; `numbers` are its records."""
        alone, columns, targets = len(self.alone), int(numbers[0]["columns"]), len(numbers)
        count = self.ordinary + (self.forgetting > 0)
        table: I64 = np.zeros((count, 3), np.int64)  # blocks, bandwidth and first example of each group
        table[:alone, 0] = self.alone
        table[:alone, 1] = np.arange(alone)
        table[self.ordinary :] = 1, max(alone // 2 - 1, 0), 0
        first_slots = self._slots(count)
        functions, linear = first_slots[slots.ALL], BEGINNING * self.is_linear
        single = np.zeros(functions)
        single[first_slots[slots.NEWTON] :][:alone] = single[first_slots[slots.STEADY] :][:alone] = (
            0.5 * (1.0 - linear) / alone
        )
        single[first_slots[slots.LINEAR] :][:1] = linear
        weights = np.tile(single, targets)
        arrays: dict[str, Any] = {
            "small": np.zeros((columns, FIRST_NUMBERS[-1])),
            "weights": weights,
            "signed": weights.copy(),
            "positive": weights.copy(),
            "lead": np.zeros(targets),
            "mixer": np.zeros((targets * functions, functions)),
            "bounds": np.zeros(targets * (functions + 2)),
            "losses": np.zeros(functions),
            "priors": np.full(count, growth.UNKNOWN_PRIOR),
            "metric": metric.empty(count),
            "pairs": pairs.empty(),
            "linear": new_linear(
                columns if self.is_linear else 0,
                self.linear_prior,
                targets=targets,
                bound=SATURATION if self.is_saturated else 0,
            ),
            "neighbours": new_neighbours(self.window, targets),
            "span": np.zeros(ENTRIES * targets),
            "recent": np.zeros(count),
            "evidence": np.zeros(count),
            "sampled": np.zeros((count, 4)),
        }
        return self.arrange(kernel, directions, numbers, table, {}, arrays)

    def _slots(self, groups: int) -> I64:
        """Return the slots of a mixture of a number of groups."""
        return slots.slots_of(groups, len(FUNCTIONS), int(self.is_linear), neighbour_functions(self.window))

    def arrange(
        self,
        kernel: Kernel,
        directions: Directions,
        numbers: Any,
        table: I64,
        groups: Mapping[int, Group],
        arrays: Mapping[str, Any],
    ) -> Arrangement:
        """Return a mixture of the given groups and empty ones, with the sizes in the table, and their features."""
        alone, ordinary = len(self.alone), self.ordinary
        shared = table[ordinary:, 1].tolist()
        own_blocks = [*range(alone), *(growth.first_block(slot, self.stages) for slot in range(ordinary - alone))]
        firsts, blocks, owners = np.array(own_blocks + shared), table[:, 0], [*range(ordinary), *shared]
        sizes, columns = (blocks * self.outputs).tolist(), int(numbers[0]["columns"])
        waiting, working = numbers[0][["buffered", "working"]].tolist()
        longest = max(self.batch_size, newton.longest(np.array(sizes)), waiting + 1, working)
        capacity = -(-longest // EIGHT) * EIGHT
        places = (firsts * self.outputs).tolist()
        centred = 2 * (1 + columns) if numbers[0]["intercept"] == MEAN else 0
        arranged = Groups(sizes, places, owners, columns=columns, centred=centred, capacity=capacity, groups=groups)
        are_changed = blocks[alone:ordinary].any() or (table[:alone, 1] != np.arange(alone)).any()
        if isinstance(kernel, MultiScale) and are_changed:
            repeated = np.resize(kernel.multiples, alone)
            multiples = np.resize(kernel.multiples, self.most_blocks)
            for first, (n, rung, _) in zip(own_blocks, table[:ordinary], strict=True):
                multiples[first : first + n] = 1.0 if rung >= growth.IN_PAIRS * alone else repeated[rung % alone]
            kernel = replace(kernel, multiples=tuple(multiples[: growth.MOST].tolist()))
        arranged.layout[:, BORN] = table[:, 2]
        used = int((firsts + blocks)[blocks > 0].max(initial=sum(self.alone)))
        numbers = numbers.copy()
        numbers["blocks"] = used if blocks[alone:ordinary].any() else min(int(numbers[0]["blocks"]), used)
        directions = directions.with_plan(KernelProgram(kernel, self.seed))
        directions.reserve(used)
        kept = np.full(len(table), self.forgetting)
        kept[:ordinary] = numbers[0]["forgetting"]
        flat: dict[str, Any] = arranged.flat._asdict() | dict(arrays)
        outputs, first_slots = int(arranged.layout[:, [FIRST, COUNT]].sum(axis=1).max()), self._slots(len(table))
        last = no_row(outputs, int(first_slots[slots.ALL]), columns, len(flat["neighbours"].weights))
        function = MixtureState(numbers, arranged.layout, first_slots, **flat, kept=kept, last=last)
        return Arrangement(function, arranged, directions, table)
