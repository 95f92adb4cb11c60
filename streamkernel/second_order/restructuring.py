"""Other arrangements of a mixture, in which learned state is kept: with groups that start from nothing, after a reset,
and with a column for a new class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel.features.compiled_kernel import SMALLEST
from streamkernel.features.rows import F64, I64
from streamkernel.kernels import Kernel, MultiScale
from streamkernel.learners import state
from streamkernel.learners.mixing import PULL
from streamkernel.second_order import bandwidths, growth, metric, pairs, recency, slots
from streamkernel.second_order.arrangement import Arrangement, Arranger
from streamkernel.second_order.growth import IN_PAIRS
from streamkernel.second_order.linear import state as linear_state
from streamkernel.second_order.mixture_state import OF_MIXTURE, Group
from streamkernel.second_order.neighbours.state import copied
from streamkernel.second_order.pairs import Pairs
from streamkernel.second_order.weights import (
    less_certain,
    loss_without,
    mixed_weights,
    positive_weights,
    remembered,
    without,
)


def with_column(live: Arrangement, arranger: Arranger, kernel: Kernel, numbers: Any, split: F64 | None) -> Arrangement:
    """Return a copy of a mixture with columns for one more class.

    Parameters
    ----------
    live, arranger, kernel
        The mixture.
    numbers
        The records of the new one.
    split
        The factors by which the single column of two classes becomes three columns; ``None`` if each class has
        a column.
    """

    def more(old: F64) -> F64:
        return np.concatenate([old, np.zeros_like(old[:1])]) if split is None else split[:, None] * old

    groups = {
        g: old._replace(newton=more(old.newton), steady=more(old.steady), sums=more(old.sums), change=more(old.change))
        for g, old in enumerate(live.groups)
    }
    function = live.state
    names = *OF_MIXTURE, "bounds", "losses", "priors", "span", "recent", "evidence", "sampled"
    arrays: dict[str, Any] = {name: getattr(function, name).copy() for name in names}
    arrays |= {"small": more(function.small), "metric": function.metric, "pairs": function.pairs}
    arrays["mixer"] = less_certain(function.mixer, int(function.numbers[0]["examples"]), PULL)
    arrays["linear"] = linear_state.with_column(function.linear, split)
    arrays["neighbours"] = copied(function.neighbours)
    return arranger.arrange(kernel, live.directions, numbers, live.table, groups, arrays)


def with_new_groups(now: Arrangement, arranger: Arranger, kernel: Kernel) -> Arrangement | None:
    """Return the mixture after groups have started or ended at this check, or ``None`` if none does."""
    if now.since < min(bandwidths.PROBED, growth.FROM):
        return None
    function, table, alone = now.state, now.table.copy(), len(arranger.alone)
    ordinary, lambdas = arranger.ordinary, function.priors.copy()
    seen, since = int(function.numbers[0]["examples"]), now.since
    losses_of, nothing = _losses(now), function.losses[function.slots[slots.SMALL]]
    singles, unexplained = losses_of[0, :alone], bandwidths.unexplained_share(losses_of[0].min(), nothing)
    isotropic = np.where(table[:alone, 1] < IN_PAIRS * alone, singles, np.inf)  # or in a metric
    multiples = np.resize(kernel.multiples if isinstance(kernel, MultiScale) else 1.0, alone).tolist()
    probe = bandwidths.probe(table[:alone], isotropic)
    root = metric.root_of(function.metric, unexplained, probe) if arranger.has_metric else None
    shifted: I64 = table[:ordinary] - np.array([0, 0, seen - since])
    rung = bandwidths.bandwidth_for_group(isotropic, multiples, shifted[:alone], since, unexplained)
    shared = [recency.block_for(block, isotropic, since) for block in table[ordinary:, 1].tolist()]
    outputs = now.groups.counts[:ordinary]
    stage = growth.due(since, outputs, shifted, losses_of[:, :ordinary], arranger.stages, rung)
    begun: list[int] = []
    ended: list[int] = []
    if stage and not outputs[alone:].any() and not _pays(now, int(singles.argmin())):
        stage = 0
    if stage:
        g = alone + growth.slot(stage, arranger.stages)
        begun, ended = [g], [k for k in (alone, alone + 1) if k == g or stage == 1]
        table[ended] = 0
        table[g] = 1 << stage, rung if root is not None else rung % alone, seen
    else:
        old = growth.worthless(since, outputs, shifted, losses_of[:, :ordinary], arranger.stages)
        stay = {probe, int(singles.argmin()), *shared}
        old = _needless(now, [g for g in range(alone) if g not in stay]) if old is None else old
        if old is not None:
            table[old, 0], table[old, 2], ended = 0, seen, [old]
            table[old, 1] = old if table[old, 1] >= IN_PAIRS * alone else table[old, 1]
    is_best = bool(singles[probe] == singles.min())
    may_probe = table[probe, 0] > 0 and since >= bandwidths.PROBED
    if root is not None and may_probe and metric.is_replaced(function.metric, probe, root, is_best):
        others = np.delete(np.arange(alone), probe)
        probed = int(others[bandwidths.bandwidth(isotropic[others], [multiples[k] for k in others])])
        table[probe] = 1, alone + probed, seen
        begun, ended = [*begun, probe], [*ended, probe]
    in_pairs = _in_pairs(now, arranger, [g for g in range(alone) if g not in {probe, int(singles.argmin()), *shared}])
    changed = {}
    if function.pairs.group[0] in ended:
        in_pairs = pairs.without_group(function.pairs)
    elif in_pairs is not function.pairs and in_pairs.group[0] == function.pairs.group[0]:
        g = int(in_pairs.group[0])
        changed[g] = _with_others(now.groups[g], pairs.changed_features(function.pairs, in_pairs), now.prior(g))
    elif in_pairs is not function.pairs:
        g = int(in_pairs.group[0])
        table[g] = 1, IN_PAIRS * alone + rung % alone, seen
        begun, ended = [*begun, g], [*(k for k in ended if k != g), g]
    for g in begun:
        lambdas[g] = growth.prior_of_new_group(lambdas[table[g, 1] % alone], unexplained)
    in_metric = [g for g in begun if alone <= table[g, 1] < IN_PAIRS * alone]
    for g, block in enumerate(shared, ordinary):
        if block != table[g, 1]:
            table[g], lambdas[g] = (1, block, seen), lambdas[block]
            begun, ended = [*begun, g], [*ended, g]
    if not ended and not changed:
        return None
    kept = {k: changed.get(k, now.groups[k]) for k in range(len(now.groups)) if k not in ended}
    new_metric = metric.with_groups(function.metric, in_metric, [g for g in ended if g < ordinary], root)
    changing = {"priors": lambdas, "metric": new_metric, "pairs": in_pairs}
    new = _rearrange(now, arranger, kernel, table, kept=kept, newton=ended, steady=ended, changing=changing)
    new.state.numbers["compared_at"] = new.state.numbers["looked_at"] = seen
    new.state.sampled[list(changed)] = 0.0
    _begin(new, begun)
    return new


def _with_others(old: Group, changed: Any, prior: float) -> Group:
    """Return a block in which some features are others from now on, which have learned nothing."""
    gone = np.tile(changed, old.factor.shape[1] // len(changed))
    factor, newton = without(np.asarray(old.factor, np.float64), old.newton, np.flatnonzero(gone), prior)
    np.fill_diagonal(factor, np.maximum(factor.diagonal(), SMALLEST))
    steady, sums = np.where(gone, 0.0, old.steady), np.where(gone, 0.0, old.sums)
    rows, centring = np.where(gone, np.float32(0.0), old.rows), np.where(gone, 0.0, old.centring)
    new = old._replace(newton=newton, steady=steady, sums=sums, rows=rows, centring=centring)
    return new._replace(factor=factor.astype(np.float32))


def _losses(now: Arrangement) -> F64:
    """Return the running losses by Newton and constant steps, shape (2, groups), infinite where there is no group."""
    losses = now.state.losses[: now.state.slots[slots.SMALL]].reshape(2, -1)
    return np.where(now.table[:, 0] > 0, losses, np.inf)


def _needless(now: Arrangement, groups: Sequence[int]) -> int | None:
    """Return the group without which the mixture would lose least, if that is below :data:`growth.NEEDLESS` of the
    loss, else ``None``. A group counts once it has :data:`growth.SETTLED` examples per output.
    """
    if now.since < growth.FROM:
        return None
    old, n = now.state.numbers[0]["examples"] - now.table[:, 2], now.groups.counts
    costs = _costs(now, [g for g in groups if old[g] >= growth.SETTLED * n[g] > 0])
    least = min(costs, key=costs.__getitem__, default=None)
    return least if least is not None and costs[least] < growth.NEEDLESS else None


def _costs(now: Arrangement, groups: Sequence[int]) -> dict[int, float]:
    """Return by how much the loss would grow without each of some groups, as a share of it."""
    function, numbers, seen = now.state, now.state.numbers, int(now.state.numbers[0]["examples"])
    targets, steady = len(numbers), int(function.slots[slots.STEADY])
    costs = dict.fromkeys(groups, 0.0)
    by_target = np.split(function.mixer, targets), np.split(function.signed, targets), _units(now)
    for mixer, u, size in zip(*by_target, strict=True):
        for g in groups if mixer.any() else ():
            n = remembered(seen - int(now.table[g, 2]))
            costs[g] += loss_without(mixer, u, [g, steady + g]) / (size * targets * n)
    loss = _loss(now)
    return {g: cost / loss if loss > 0.0 else 0.0 for g, cost in costs.items()}


def _loss(now: Arrangement) -> float:
    """Return the recent mean loss of an example of weight 1."""
    numbers = now.state.numbers[0]
    return float(numbers["running_loss"] * numbers["weight"] / numbers["examples"])


def _in_pairs(now: Arrangement, arranger: Arranger, groups: Sequence[int]) -> Pairs:
    """Return the pairs of inputs with a block in them that begins now, or the present ones themselves if none does.

    It begins in place of the one of `groups` without which the mixture loses least, if the pairs are expected to gain
    more by the share :data:`growth.PAYS` of the loss. Where new pairs gain as much, a block in pairs changes features.
    """
    before, names = now.state.pairs, now.state.metric
    is_wide = names.counts[metric.NAMES] == metric.MOST_NAMES
    if not arranger.has_metric or now.directions.is_packed or now.since < pairs.FROM or is_wide:
        return before
    gains, g = pairs.expected_gains(before), int(before.group[0])
    gain = pairs.new_gain(before, gains) / _loss(now) if gains.any() else 0.0
    if not gain > growth.PAYS:
        return before
    costs = _costs(now, groups) if g == pairs.NOWHERE else {g: 0.0}
    g = min(costs, key=costs.__getitem__)
    if not gain > growth.PAYS + costs[g]:
        return before
    return pairs.with_group(before, g, _with_squares(gains, now.state.linear, names), names, now.directions)


def _with_squares(gains: F64, linear: linear_state.Linear, names: metric.Metric) -> F64:
    """Return the gains, where inputs with a square count as pairs too, by the squares of its weights, at most as much
    as the pair that gains least: what a square explains is no longer seen in gains, but is seldom all.
    """
    shares = np.square(linear.w[:, linear.squares[:, 1]]).sum(axis=0)
    shares /= max(shares.max(initial=0.0), 1e-300)
    of_names = dict(zip(linear.names[linear.squares[:, 0]].tolist(), shares.tolist(), strict=True))
    least = gains[gains > 0.0].min()
    floor = [least * of_names.get(name, 0.0) for name in names.names[: len(gains)].tolist()]
    return np.asarray(np.maximum(gains, np.diag(floor)))


def _pays(now: Arrangement, g: int) -> bool:
    """Return whether twice the features are expected to reduce the loss by :data:`growth.PAYS`.

    The expected loss of the block that is group g also has to be below the loss of the linear function, which may be
    all there is.
    """
    function, loss = now.state, now.state.losses[g]
    linear = function.losses[function.slots[slots.LINEAR] : function.slots[slots.NEIGHBOURS]]
    expected = loss * (1.0 - function.numbers[0]["new_descent"])
    return bool(expected < (1.0 - growth.PAYS) * linear.min(initial=loss))


def _gain_of_half(now: Arrangement, g: int) -> tuple[float, float]:
    """Return the gain from the second half of the features of the block that is group g, and fitted noise in that gain,
    as shares of the block's loss (:func:`growth.expected_gain`).
    """
    function, numbers, block = now.state, now.state.numbers, now.groups[g]
    first, targets = numbers[0], len(numbers)
    n = _examples(now, g)
    sizes = np.repeat(_units(now), len(block.newton) // targets)
    unit = now.prior(g) / function.priors[g]
    gains, noise = growth.expected_gain(block.factor, block.newton, _ridge(now, g), unit, int(first["block_size"]))
    gain = float((gains[sizes > 0.0] / sizes[sizes > 0.0]).sum()) / targets
    total = n * float(first["weight"]) / float(first["examples"]) * float(function.losses[g])
    return gain / total if total > 0.0 else 0.0, _bound(now) * noise


def _examples(now: Arrangement, g: int) -> float:
    """Return the number of examples that the factor of a group has learned and not forgotten."""
    first = now.state.numbers[0]
    learned = first["examples"] - first["buffered"] - now.table[g, 2]
    return float(min(learned, 1.0 / max(1.0 - first["forgetting"], 1e-18)))


def _sizes(now: Arrangement) -> F64:
    """Return the mean squares of the targets, 1 for labels."""
    numbers = now.state.numbers
    return np.asarray(numbers["error_scale"] if numbers[0]["intercept"] == state.MEAN else np.ones(len(numbers)))


def _units(now: Arrangement) -> F64:
    """Return the units of the losses of several targets; the loss of a single one has none."""
    return _sizes(now) if len(now.state.numbers) > 1 else np.ones(1)


def _ridge(now: Arrangement, g: int) -> float:
    """Return the part of the diagonal of A that no example has added."""
    return now.prior(g) + _examples(now, g) * float(now.state.numbers[0]["l2"])


def _bound(now: Arrangement) -> float:
    """Return the bound on ℓ'' for noise that is fitted; the softmax has twice the bound of one column."""
    numbers, columns = now.state.numbers, len(now.state.small)
    return float(numbers[0]["curvature"] * min(columns // len(numbers), 2))


def expected_descent(now: Arrangement, arranger: Arranger) -> tuple[float, float]:
    """Return the shares of the loss that new features and old ones are expected to gain, at least 0.

    New features gain as much as the second half of the present ones: while single blocks are alone, ½w₂ᵀSw₂ less fitted
    noise; then what the loss of the largest group is below the losses of smaller ones, on examples before it learns
    them. Old features gain, with more examples, what is lost by fitted noise: the degrees of freedom over Σ ℓ''.

    Parameters
    ----------
    now, arranger
        The mixture, with no step in progress.
    """
    losses, alone = _losses(now)[0, : arranger.ordinary], len(arranger.alone)
    g = int(now.table[: arranger.ordinary, 0].argmax())
    if g < alone:
        g = int(losses.argmin())
        gain, noise = _gain_of_half(now, g)
        new = gain - noise
    else:
        smaller = np.delete(losses, g).min()
        new = float(1.0 - losses[g] / smaller) if smaller > 0.0 else 0.0
    noise = growth.fitted_noise(now.groups[g].factor, _ridge(now, g), now.prior(g) / now.state.priors[g])
    return float(np.clip(new, 0.0, 1.0)), float(np.clip(_bound(now) * noise, 0.0, 1.0))


def with_restart(now: Arrangement, arranger: Arranger, kernel: Kernel, groups: Sequence[int]) -> Arrangement:
    """Return the mixture in which these groups are reset: Newton steps of single blocks are, larger groups end.

    Constant steps follow the change, so that they are kept, except those of :func:`_blocks_of_the_past`. Single blocks
    that have ended start again. The weights are less certain. From then on, checks are made, and Newton steps are as
    short, as in a new model.
    """
    table, alone, seen = now.table.copy(), len(arranger.alone), int(now.state.numbers[0]["examples"])
    begun, larger = [g for g in groups if g < alone], [g for g in groups if alone <= g < arranger.ordinary]
    forgetting = [g for g in groups if g >= arranger.ordinary]
    past, new_metric, lambdas = _blocks_of_the_past(now, alone, begun), now.state.metric, now.state.priors.copy()
    in_pairs = pairs.without_sums(now.state.pairs)
    again = np.flatnonzero(table[:alone, 0] == 0).tolist()
    ended = [*larger, *past, *again]
    kept = {g: group for g, group in enumerate(now.groups) if g not in ended}
    for g in [*begun, *forgetting]:
        if g not in past:
            old = kept[g]
            kept[g] = old.emptied(len(old.factor))._replace(steady=old.steady)
    sharing = [g for g in range(arranger.ordinary, len(table)) if table[g, 1] in past]  # with the same constant steps
    for g in sharing:
        kept[g] = kept[g]._replace(steady=np.zeros_like(kept[g].steady))
    for g in past:
        if table[g, 1] >= alone:  # it had the λ of a block that began later
            own_bandwidth = [k for k in range(alone) if table[k, 1] == k]
            lambdas[g] = lambdas[min(own_bandwidth, key=lambda k: abs(k - g))]
            new_metric = metric.without_gradients(new_metric)
            in_pairs = pairs.without_group(in_pairs) if g == in_pairs.group[0] else in_pairs
        table[g, 1] = g
    begun += again
    table[larger] = 0
    table[begun, 0], table[[*begun, *forgetting], 2] = np.array(arranger.alone)[begun], seen
    new_metric, steady = metric.with_groups(new_metric, [], ended, None), [*ended, *sharing]
    newton, changing = [*groups, *again], {"priors": lambdas, "metric": new_metric, "pairs": in_pairs}
    new = _rearrange(now, arranger, kernel, table, kept=kept, newton=newton, steady=steady, changing=changing)
    new.state.numbers["restarted"] = new.state.numbers["compared_at"] = new.state.numbers["looked_at"] = seen
    for mixer, size in zip(np.split(new.state.mixer, len(new.state.numbers)), _sizes(now), strict=True):
        mixer[:] = less_certain(mixer, seen, PULL * size)
    _begin(new, [*begun, *forgetting])
    return new


def _blocks_of_the_past(now: Arrangement, alone: int, begun: Sequence[int]) -> list[int]:
    """Return the single blocks that start from nothing and in no metric at a restart, usually none.

    If f = 0 and another block are better than the constant steps of the block in a metric, f changes in other
    directions now. Then all blocks whose constant steps are worse than f = 0 start from nothing.
    """
    steady, nothing = _losses(now)[1], now.state.losses[now.state.slots[slots.SMALL]]
    useless, best = [g for g in begun if steady[g] >= nothing], int(steady[:alone].argmin())
    have_turned = any(now.table[g, 1] >= alone and g != best for g in useless)
    return useless if have_turned else []


def _rearrange(
    now: Arrangement,
    arranger: Arranger,
    kernel: Kernel,
    table: I64,
    *,
    kept: Mapping[int, Group],
    newton: Sequence[int],
    steady: Sequence[int],
    changing: Mapping[str, Any],
) -> Arrangement:
    """Return the mixture with the kept groups, and with the `changing` λ, metric and pairs; the losses and weights of
    some functions, by Newton steps and by constant ones, are reset.
    """
    function, numbers, targets, sizes = now.state, now.state.numbers, len(now.state.numbers), _sizes(now)
    functions = np.array([*newton, *(function.slots[slots.STEADY] + np.array(steady, int))], int)
    names = *OF_MIXTURE, "bounds", "losses", "sampled"
    arrays: dict[str, Any] = {name: getattr(function, name).copy() for name in names}
    arrays["sampled"][list(newton)] = 0.0
    arrays["bounds"].reshape(targets, -1)[:, functions] = arrays["losses"][functions] = 0.0
    signed, positive = (arrays[name].reshape(targets, -1) for name in ("signed", "positive"))
    for t, (mixer, size) in enumerate(zip(np.split(arrays["mixer"], targets), sizes, strict=True)):
        if mixer.any():  # the targets have differed
            mixer[:], signed[t] = without(mixer, signed[t], functions, PULL * size)
            positive[t] = positive_weights(mixer, signed[t])
    arrays["weights"] = mixed_weights(signed, positive, arrays["lead"]).ravel()
    arrays |= {name: getattr(function, name) for name in ("small", "linear", "neighbours", "span")}
    arrays |= {"recent": np.zeros(len(table)), "evidence": np.zeros(len(table)), **changing}
    return arranger.arrange(kernel, now.directions, numbers, table, kept, arrays)


def _begin(new: Arrangement, groups: Sequence[int]) -> None:
    """Set the factors of new groups to their values without examples."""
    for g in groups:
        np.fill_diagonal(new.groups[g].factor, np.sqrt(new.prior(g)))
