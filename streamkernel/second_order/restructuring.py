"""A mixture in which groups begin: what the mixture has learned is kept, and a new group starts from nothing."""

from __future__ import annotations

import numpy as np

from streamkernel.kernels import Kernel, Ladder
from streamkernel.learners import state
from streamkernel.second_order import growth, metric, newton_step, priors
from streamkernel.second_order.arrangement import Arrangement, Arranger


def with_new_groups(now: Arrangement, arranger: Arranger, kernel: Kernel) -> Arrangement | None:
    """Return the mixture with the groups that begin now, ``None`` if it is not time for one."""
    function, table, alone = now.state, now.table.copy(), len(arranger.alone)
    numbers, lambdas = function.numbers[0].copy(), function.priors.copy()
    seen = int(numbers["examples"])
    of_groups, (nothing, *_) = np.split(function.losses, [2 * len(table)])
    losses_of = of_groups.reshape(2, -1)
    least = losses_of[0, table[:, 0] > 0].min()
    singles, unexplained = losses_of[0, :alone], priors.unexplained(least, nothing)
    multiples = np.resize(kernel.multiples if isinstance(kernel, Ladder) else 1.0, alone).tolist()
    root = metric.root_of(function.metric, unexplained) if arranger.has_metric else None
    probe = growth.probe(table[:alone], singles)
    rung = growth.wanted(singles, multiples, table[:alone], seen, unexplained)
    stage = growth.due(seen, now.groups.counts, table, losses_of, arranger.stages, rung)
    begun: list[int] = []
    ended: list[int] = []
    if stage:
        g = alone + growth.slot(stage, arranger.stages)
        begun, ended = [g], [k for k in (alone, alone + 1) if k == g or stage == 1]
        table[ended] = 0
        table[g] = 1 << stage, rung if root is not None else rung % alone, seen
    if root is not None and seen >= growth.PROBED and metric.differs(function.metric, probe, root):
        others = np.delete(np.arange(alone), probe)
        rung = int(others[growth.bandwidth(singles[others], [multiples[k] for k in others])])
        table[probe] = 1, alone + rung, seen
        begun, ended = [*begun, probe], [*ended, probe]
    if not begun:
        return None
    for g in begun:
        lambdas[g] = priors.of_new_group(lambdas[table[g, 1] % alone], unexplained)
    size = numbers["error_scale"] if numbers["intercept"] == state.MEAN else 1.0
    kept = {k: now.groups[k] for k in range(len(now.groups)) if k not in ended}
    functions = np.array([*ended, *(len(now.groups) + k for k in ended)])
    bounds, running, mixer, weights = (
        getattr(function, name).copy() for name in ("bounds", "losses", "mixer", "weights")
    )
    bounds[functions] = running[functions] = 0.0
    if mixer.any():  # the targets have differed
        mixer, weights = newton_step.without(mixer, weights, functions, newton_step.PULL * size)
    numbers["looked_at"] = seen
    in_metric = [g for g in begun if table[g, 1] >= alone]
    arrays = {"level": function.level, "weights": weights, "mixer": mixer, "bounds": bounds, "losses": running}
    arrays |= {"priors": lambdas, "metric": metric.with_groups(function.metric, in_metric, ended, root)}
    arrays |= {"linear": function.linear, "span": function.span}
    new = arranger.arrange(kernel, now.directions, numbers, table, kept, arrays)
    for g in begun:
        np.fill_diagonal(new.groups[g].factor, np.sqrt(new.prior(g)))
    return new
