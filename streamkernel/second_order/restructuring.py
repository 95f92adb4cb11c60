"""A mixture in which a larger group begins: what the mixture has learned is kept, and the group starts from nothing."""

from __future__ import annotations

import numpy as np

from streamkernel.kernels import Kernel, Ladder
from streamkernel.learners import state
from streamkernel.second_order import growth, newton_step, priors
from streamkernel.second_order.arrangement import Arrangement, Arranger


def with_larger_group(now: Arrangement, arranger: Arranger, kernel: Kernel) -> Arrangement | None:
    """Return the mixture with a larger group, ``None`` if it is not time for one."""
    function, table, alone = now.state, now.table, len(arranger.alone)
    numbers, lambdas = function.numbers[0].copy(), function.priors.copy()
    seen = int(numbers["examples"])
    losses_of, nothing = np.split(function.losses, [2 * len(table)])
    losses_of = losses_of.reshape(2, -1)
    multiples = np.resize(kernel.multiples if isinstance(kernel, Ladder) else 1.0, alone)
    rung = growth.bandwidth(losses_of[0, :alone], multiples.tolist())
    stage = growth.due(seen, now.groups.counts, table, losses_of, arranger.stages, rung)
    if not stage:
        return None
    g = alone + growth.slot(stage, arranger.stages)
    lambdas[g] = priors.of_larger_group(lambdas[rung], losses_of[0, table[:, 0] > 0].min(), nothing[0])
    ended = [k for k in (alone, alone + 1) if k == g or stage == 1]
    kept = {k: now.groups[k] for k in range(len(now.groups)) if k not in ended}
    table = table.copy()
    table[ended] = 0
    table[g] = 1 << stage, rung, seen
    size = numbers["error_scale"] if numbers["intercept"] == state.MEAN else 1.0
    functions = np.array([*ended, *(len(now.groups) + k for k in ended)])
    bounds, running, mixer, weights = (
        getattr(function, name).copy() for name in ("bounds", "losses", "mixer", "weights")
    )
    bounds[functions] = running[functions] = 0.0
    if mixer.any():  # the targets have differed
        mixer, weights = newton_step.without(mixer, weights, functions, newton_step.PULL * size)
    numbers["looked_at"] = seen
    arrays = {"level": function.level, "weights": weights, "mixer": mixer, "bounds": bounds, "losses": running}
    arrays["linear"] = function.linear
    new = arranger.arrange(kernel, now.directions, numbers, table, kept, arrays | {"priors": lambdas})
    np.fill_diagonal(new.groups[g].factor, np.sqrt(new.prior(g)))
    return new
