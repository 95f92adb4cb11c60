"""The growth of second-order learning: which groups of blocks begin, and which end, and their λ.

The first four blocks are groups by themselves. At each check (`learners.schedule`), from 1,024 examples on,

* the first larger group starts, of two blocks, if the second half of the best block's features reduces its loss by the
fraction `PAYS` more than fitted noise does (:func:`expected_gain`), and to less than the loss of the linear function;
* a group of twice as many blocks starts, if the loss of the largest group since the previous check is below the losses
of all smaller groups by the fraction `GAIN`: where more features have helped, even more are likely to help;
* the largest group ends, if it had `SETTLED` examples per output at the previous check and its loss since then is not
below the losses of all smaller groups by the fraction `WORTH`: its features are worth no more than the others. A larger
one starts again only once there are twice as many examples, because the stream may need it later;
* the larger groups end and the smallest of them starts again, if the loss of a single block is below the losses of both
larger groups by the same fraction and another bandwidth is preferable; or if the stream has changed: after `MATURE`
examples per output of the largest group, constant steps on a single block are better than all Newton steps by that
fraction;
* else a single block ends, if the loss would grow by less than the fraction `NEEDLESS` without it
(:func:`~streamkernel.second_order.weights.loss_without`), until the model is reset. Three stay: the best
one, the one that may be in a metric, and the one whose features the forgetting group shares.

There are at most two larger groups: a new one replaces the second largest, and learns beside the largest until the
mixture gives it the weight. Where no larger one is possible, the second largest ends once the largest has `MATURE`
examples per output and the lower loss by the same fraction.
"""

from __future__ import annotations

import math

import numpy as np

from streamkernel.features.rows import F32, F64, I64
from streamkernel.learners import schedule

IN_PAIRS = 2
"""The bandwidth of a block in pairs is an index of at least this many times the single blocks."""

ALONE = 4
"""Number of blocks that are groups by themselves."""

MOST = 64
"""Largest number of blocks, equal to the number of multiples of the default kernel."""

FROM = 1024
"""Number of examples before the first larger group."""

PAYS = 0.02
GAIN = 0.03
WORTH = 0.01
NEEDLESS = 0.0015
MATURE = 4
SETTLED = 2

PRIOR = 0.06
SMALLEST_PRIOR = 1e-3
"""λ is PRIOR times (1 - κ)², but at least SMALLEST_PRIOR, where κ is the mean of k(x, x') over pairs of examples, in
units of k(x, x): if features hardly differ between examples, a function needs larger coefficients to separate these."""

UNKNOWN_PRIOR = 0.5 * PRIOR
"""λ before there are examples."""

LEAST_UNEXPLAINED = 0.01
"""λ of a larger group is proportional to the loss, in units of the loss of f = 0, but at least this: λ should equal the
ratio of noise to signal, which the loss estimates by then."""


def stages(blocks: int, outputs: int, most_numbers: int) -> int:
    """Return the number of times that a group may be replaced by a larger one.

    Two larger groups must fit into the blocks at the same time, and all factors into `most_numbers` numbers.

    Examples
    --------
    >>> [stages(blocks, 2, 10**9) for blocks in (4, 6, 9, 10, 16)]
    [0, 1, 1, 2, 3]
    """
    stage = 0
    while True:
        last, before = 2 << stage, (2 << stage) // 2 if stage else 0
        squares = (ALONE + last**2 + before**2) * outputs**2
        if ALONE + last + before > min(blocks, MOST) or squares > most_numbers:
            return stage
        stage += 1


def slot(stage: int, last: int) -> int:
    """Return the index of the larger group that a stage belongs to, where `last` is the last stage.

    Examples
    --------
    >>> [slot(stage, last=3) for stage in (1, 2, 3)]
    [1, 0, 1]
    """
    return 1 - (last - stage) % 2


def first_block(slot: int, last: int) -> int:
    """Return the first block of a larger group: the second one starts after the largest possible size of the first.

    Examples
    --------
    >>> [first_block(slot, last=3) for slot in (0, 1)]
    [4, 8]
    """
    return ALONE + (1 << last - 1 if slot and last > 1 else 0)


def possible(table: I64, alone: list[int], last: int, seen: int, restarted: int = 0) -> bool:
    """Return whether a table of groups, as for :func:`due`, is possible after `seen` examples.

    `restarted` is the number of examples at the last reset of the model.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [0, 0, 0], [2, 1, 1024]])
    >>> [possible(table, [1, 1, 1, 1], last, seen=2000) for last in (1, 2)]
    [True, False]
    """
    single, larger = np.split(table, [len(alone)])
    sizes: list[set[int]] = [{0}, {0}]
    for stage in range(1, last + 1):
        sizes[slot(stage, last)].add(1 << stage)
    return (
        _are_possible(single.tolist(), alone, seen, restarted)
        and all(int(blocks) in allowed for blocks, allowed in zip(larger[:, 0], sizes, strict=False))
        and bool(((larger >= 0) & (larger <= [1 << last, 2 * len(alone) - 1, seen])).all())
    )


def _are_possible(single: list[list[int]], alone: list[int], seen: int, restarted: int) -> bool:
    """Return whether these can be the single blocks: the original ones, one at either end in a metric, one
    in pairs of inputs, and some that have ended.
    """
    count = len(alone)
    in_metric = [g for g, (_, rung, _) in enumerate(single) if rung != g and rung < IN_PAIRS * count]
    in_pairs = [g for g, (_, rung, _) in enumerate(single) if rung >= IN_PAIRS * count]
    latest = [restarted if blocks and rung == g else seen for g, (blocks, rung, _) in enumerate(single)]
    return (
        any(blocks for blocks, *_ in single)
        and all(blocks in (0, most) for (blocks, *_), most in zip(single, alone, strict=True))
        and all(0 <= born <= last for (*_, born), last in zip(single, latest, strict=True))
        and all(in_metric == [g] and g in (0, count - 1) and single[g][1] >= count for g in in_metric)
        and all(in_pairs == [g] and single[g][0] and single[g][1] < (IN_PAIRS + 1) * count for g in in_pairs)
    )


def due(seen: int, outputs: I64, table: I64, standing: F64, last: int, wanted: int) -> int:
    """Return the stage that begins now, or 0.

    Parameters
    ----------
    seen
        Examples so far.
    outputs
        Number of outputs of each group, the single blocks first; 0 for a group that has not started.
    table
        Blocks, bandwidth, and the examples before it, of each; of one that has ended, the examples before its end.
    standing
        Running losses of their functions, shape (2, groups), by Newton steps and by constant ones; infinite for a group
        that has not started or has ended.
    last
        The last stage that fits into the cap on features.
    wanted
        The bandwidth for a larger group.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [0, 0, 0], [2, 1, 1024]])
    >>> losses = np.array([[0.5, 0.4, 0.4, 0.5, np.inf, 0.3], [0.6, 0.6, 0.6, 0.6, np.inf, 0.6]])
    >>> due(2048, 8 * table[:, 0], table, losses, last=3, wanted=1)
    2
    """
    if not last or seen < FROM:
        return 0
    largest = int(outputs.argmax())
    blocks, rung, born = table[largest].tolist()
    stage = blocks.bit_length() - 1
    may_grow = seen >= 2 * table[ALONE:][outputs[ALONE:] == 0, 2].max(initial=0)
    if not stage:
        return int(may_grow)
    newton, steady = standing
    loss, best = newton[largest], np.delete(newton, largest).min()
    if loss < (1.0 - GAIN) * best:
        return stage + 1 if stage < last and may_grow else 0
    is_misplaced = rung != wanted and (1.0 - GAIN) * newton[ALONE:].min() > newton[:ALONE].min()
    has_moved = seen - born >= MATURE * outputs[largest] and (1.0 - GAIN) * min(loss, best) > steady[:ALONE].min()
    return int(is_misplaced or has_moved)


def expected_gain(factor: F32, newton: F64, ridge: float, unit: float, features: int) -> tuple[F64, float]:
    """Return the gain from the second half of a block's features on the examples learned, and the noise in that gain.

    With A in blocks of both halves, S = A₂₂ - A₂₁A₁₁⁻¹A₁₂ is what A holds of the second half given the first one, and
    the quadratic approximation of the loss has increased by ½w₂ᵀSw₂ where only the first half is fitted to the same
    examples. Of that, fitted noise is the added degrees of freedom times the mean of ½ℓ'² over the mean of ℓ'', where
    ½ℓ'² is at most the loss times the bound on ℓ''. What the noise costs at new examples is not subtracted too, because
    it vanishes as examples come; without the second half, the loss stays.

    Parameters
    ----------
    factor, newton
        R of the block, RᵀR = A, and w, shape (columns, n).
    ridge
        The part of the diagonal of A that no example has added.
    unit
        k(x, x).
    features
        The number of features of the block, F; outputs are in the order of components and features.

    Returns
    -------
    gains : ndarray
        The gain of each column, a sum over examples.
    noise : float
        The degrees of freedom that the second half adds, over Σ ℓ''; infinite without examples.

    Examples
    --------
    Of two features with 100 examples each, the second one has reduced ½(f - y)² by 18 in total:

    >>> gains, noise = expected_gain(np.eye(2, dtype=np.float32) * 10, np.array([[2.0, 0.6]]), 1.0, 1.0, 2)
    >>> gains.round(3), round(noise, 3)
    (array([18.]), 0.005)
    """
    root = factor.astype(np.float64)
    A, is_first = root.T @ root, np.arange(len(root)) % features < features // 2
    w, across = newton[:, ~is_first], A[is_first][:, ~is_first]
    by_first = np.linalg.solve(A[is_first][:, is_first], across)
    S = A[~is_first][:, ~is_first] - across.T @ by_first
    bound = ridge * np.trace(np.linalg.solve(S, np.eye(len(S)) + by_first.T @ by_first))
    bends = np.trace(A) - ridge * len(A)
    return 0.5 * ((w @ S) * w).sum(axis=1), float(unit * (len(S) - bound) / bends) if bends > 0.0 else math.inf


def fitted_noise(factor: F32, ridge: float, unit: float) -> float:
    """Return the degrees of freedom of a group over Σ ℓ'', with the trace of A⁻¹ from eight vectors of random signs.

    The parameters are described at :func:`expected_gain`.

    Examples
    --------
    Of two features with 99 examples each:

    >>> round(fitted_noise(np.eye(2, dtype=np.float32) * 10, 1.0, 1.0), 3)
    0.01
    """
    from scipy.linalg import solve_triangular  # importing it takes long

    n = len(factor)
    signs = np.random.default_rng(n).choice(np.array([-1.0, 1.0], np.float32), (n, 8))
    inverse = np.square(solve_triangular(factor, signs, check_finite=False), dtype=np.float64).sum() / 8.0
    bends = (float(np.vdot(factor, factor)) - ridge * n) / unit
    return float((n - ridge * inverse) / bends) if bends > 0.0 else math.inf


def worthless(seen: int, outputs: I64, table: I64, standing: F64, last: int) -> int | None:
    """Return the group that ends because its features are worth no more than others, or ``None``.

    It is the largest group, if a smaller one is as good; or the second largest, if the largest possible one is better.
    The parameters are described at :func:`due`.

    Examples
    --------
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [2, 1, 1024], [4, 1, 2048]])
    >>> losses = np.array([[0.5, 0.4, 0.4, 0.5, 0.3, 0.2], [0.6, 0.6, 0.6, 0.6, 0.6, 0.6]])
    >>> [worthless(seen, 8 * table[:, 0], table, losses, last=2) for seen in (2112, 4096)]
    [None, 4]
    >>> losses[0, 5] = 0.3
    >>> [worthless(seen, 8 * table[:, 0], table, losses, last=2) for seen in (4096, 8192)]
    [None, 5]
    """
    largest = int(outputs.argmax())
    if not last or table[largest, 0] == 1:
        return None
    newton, (blocks, _, born) = standing[0], table[largest].tolist()
    has_settled = schedule.last_due(seen - 1) - born >= SETTLED * outputs[largest]
    if has_settled and (1.0 - WORTH) * np.delete(newton, largest).min() <= newton[largest]:
        return largest
    if blocks != 1 << last or seen - born < MATURE * outputs[largest]:
        return None
    return next((g for g in (ALONE, ALONE + 1) if newton[largest] < (1.0 - GAIN) * newton[g] < math.inf), None)


def priors_of_examples(by_group: F32) -> F64:
    """Return λ of groups from their features of some examples, shape (examples, groups, features).

    Examples
    --------
    >>> priors_of_examples(np.eye(2, dtype=np.float32)[:, None]).round(3).tolist()  # nothing in common
    [0.06]
    >>> priors_of_examples(np.ones((2, 1, 2), np.float32)).round(3).tolist()  # all in common
    [0.001]
    """
    n = len(by_group)
    squares = np.square(by_group, dtype=np.float64).sum(axis=2).mean(axis=0)
    mean = np.square(by_group.mean(axis=0, dtype=np.float64)).sum(axis=1)
    likeness = (n * mean / np.where(squares > 0.0, squares, 1.0) - 1.0) / (n - 1)
    return np.asarray(np.maximum(PRIOR * np.square(1.0 - np.clip(likeness, 0.0, 1.0)), SMALLEST_PRIOR))


def prior_of_new_group(prior: float, unexplained: float) -> float:
    """Return λ of a group that starts beside others.

    Parameters
    ----------
    prior
        λ of the single block of the same bandwidth.
    unexplained
        The unexplained share of the loss.

    Examples
    --------
    >>> prior_of_new_group(0.06, 0.2)
    0.012
    """
    return float(prior * max(unexplained, LEAST_UNEXPLAINED))
