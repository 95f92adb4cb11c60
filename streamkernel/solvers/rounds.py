"""Algorithm 1 of AsyDSSKL: candidates in rounds, elimination of zero coefficients, and the choice of the penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkernel.features.compiled_kernel import MULTI_SCALE, PHASE, SIGN_PRODUCTS, SKETCH, CompiledKernel
from streamkernel.features.directions import Directions
from streamkernel.features.distributions import draw_some
from streamkernel.features.feature_maps import form
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.jit import compiled
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners.scoring import transform_apart
from streamkernel.losses import Logistic, Loss, Sigmoid
from streamkernel.solvers.progress import Tell
from streamkernel.solvers.sparse import SparseSolution, largest_l1, minimise_sparse
from streamkernel.solvers.sparse_problem import check_problem, largest_curvature, refit

PER_BLOCK = 64
"""Features of a block."""
FRACTIONS = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Candidates for the penalty if none is given, as fractions of the largest one, from sparse to dense."""
RIDGES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Candidates for the ridge when features are refitted."""
_MOST, _LEAST = 20_000, 50
"""Maximum number of rows for a choice, a tenth of them held out; below the minimum, the middle candidate is taken."""
_FEW = 50
"""Number of passes over the rows in all rounds except the last, and to choose the penalty."""
_NO_PRICE = 1e-12
_RIDGE = 1e-5
"""The ridge in backward elimination."""


@compiled
def _fill(kernel, hashes, block_size, features_of):  # type: ignore[no-untyped-def]
    """Fill the cache, shape (1, names, parts, features), with the directions of features, rows of block and place.

    Directions of a `MultiScale` kernel are multiplied by its factors.
    """
    for p in range(len(kernel.parts)):
        part = kernel.parts[p]
        run = block_size if part.shift != 0.0 else 1
        for name in range(len(hashes)):
            entries = kernel.cache[0, name, p]
            draw_some(part.distribution, part.shape, part.key, features_of, hashes[name], entries)
            for f in range(len(features_of) if part.form == MULTI_SCALE else 0):
                position = features_of[f, 0] * block_size + features_of[f, 1]
                entries[f] *= np.float32(part.table[position // run % part.order])


class ChosenFeatures:
    """The features z_f(x) of chosen blocks and places, for tables with the same columns.

    `places` are block and place of each feature, shape (features, 2). Raise a ValueError if features of the kernel do
    not have directions of their own, such as those of `Polynomial` and of sketches.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> plan = KernelProgram(kernels.Gaussian(1.0), seed=1)
    >>> three = ChosenFeatures(plan, ["a", "b"], np.array([[0, 1], [0, 5], [7, 0]]))
    >>> one = ChosenFeatures(plan, ["b", "a"], np.array([[7, 0]]))
    >>> three(np.array([[0.5, 2.0]]))[0, 4:].tolist() == one(np.array([[2.0, 0.5]]))[0].tolist()
    True
    """

    def __init__(self, plan: KernelProgram, names: Sequence[Hashable], places: I64) -> None:
        kinds = set(plan.parts_compiled["form"].tolist())
        if plan.transforms or not kinds.isdisjoint({SIGN_PRODUCTS, SKETCH}):
            raise ValueError(f"Expected a kernel whose features have directions of their own, got {plan.kernel!r}")
        self._plan, self._names, self._places = plan, names, places
        columns = np.arange(float(len(names)))[None]
        self._row = Directions(plan, len(places), 0).rows(names, columns)  # its values are the positions of the columns
        for kind in set(plan.parts_compiled["distribution"].tolist()):
            draw_some.require(kind)
        cache = np.empty((1, len(names), len(plan.parts), len(places)), np.float32)
        kernel = CompiledKernel(*plan.arrays, cache, np.zeros((1, 3), np.int64))
        _fill(kernel, self._row.hashes, PER_BLOCK, np.ascontiguousarray(places))
        parts = plan.parts_compiled.copy()
        parts["form"][parts["form"] == MULTI_SCALE] = PHASE
        form.require(PHASE)
        self._kernel = kernel._replace(parts=parts)

    def __reduce__(self) -> tuple[type[ChosenFeatures], tuple[KernelProgram, Sequence[Hashable], I64]]:
        """Return the constructor's arguments: a file needs no directions."""
        return ChosenFeatures, (self._plan, self._names, self._places)

    def __call__(self, X: F64) -> F32:
        """Return the features of rows of numbers, shape (rows, features × outputs).

        Raise an InputError if a row is outside of the kernel's domain.
        """
        n, d = X.shape
        out = np.empty((n, len(self._places) * self._plan.outputs), np.float32)
        values = np.ascontiguousarray(X[:, self._row.values.astype(np.int64)])
        repeated: Any = (np.tile(column, n) for column in (np.arange(d), self._row.hashes, self._row.readers))
        slots, hashes, readers = repeated
        rows = Rows(np.arange(0, n * d + 1, d), slots, hashes, readers, values.ravel(), np.ones(n))
        bad = transform_apart(self._kernel, rows, len(self._places), 1.0, out)
        if bad >= 0:
            self._plan.check(dict(zip(self._names, X[bad].tolist(), strict=True)))
            raise self._plan.unusable(self._row._replace(values=values[bad]))
        return out


def eliminate(H: F64, coef: F64, group: int, most: int) -> F64:
    """Return coefficients with at most a given number of non-zero groups.

    At the minimum of a function with the curvature H, setting w(h) = 0 increases it by ½ w(h)ᵀ [(H⁻¹)_hh]⁻¹ w(h), if
    all other coefficients are adjusted: w ← w - (H⁻¹)_·h [(H⁻¹)_hh]⁻¹ w(h). H, shape (outputs, outputs), is positive
    definite and the same for each column of `coef`, shape (outputs, columns), whose last output belongs to no group and
    always stays. A group is `group` consecutive outputs, and at most `most` groups are kept.

    References
    ----------
    Hassibi and Stork, "Second Order Derivatives for Network Pruning: Optimal Brain Surgeon", 1992.
    """
    C, w = np.linalg.inv(H), coef.copy()
    groups = np.arange(len(w) - 1).reshape(-1, group)
    while len(groups) > most:
        blocks = w[groups]
        costs = (blocks * np.linalg.solve(C[groups[:, :, None], groups[:, None, :]], blocks)).sum(axis=(1, 2))
        least = int(np.argmin(costs))
        out, groups = groups[least], np.delete(groups, least, axis=0)
        follow = np.linalg.solve(C[np.ix_(out, out)], C[out]).T
        w -= follow @ w[out]
        C -= follow @ C[out]
        w[out] = C[out] = C[:, out] = 0.0
    return w


class RoundOptions(NamedTuple):
    """The options of :class:`streamkernel.solvers.AsyDSSKL`."""

    rounds: int
    features_per_round: int
    max_features: int | None
    l1: float | None
    refit: bool
    threads: int
    max_epochs: int
    tol: float
    seed: int


class Sparse(NamedTuple):
    """Block and index of each remaining feature, coefficients of their outputs and of a constant, and the history."""

    places: I64
    coef: F64
    l1: float
    objective: float
    violation: float
    epochs: int


class _Task(NamedTuple):
    """Features with a column of ones, targets, and both in the solver's form."""

    Z: F32
    y: F64
    loss: Loss
    columns: int
    group: int

    @property
    def penalised(self) -> Any:
        """The columns of the features, without the constant."""
        return np.arange(self.Z.shape[1]) < self.Z.shape[1] - 1

    def largest_l1(self) -> float:
        """Return the smallest penalty that leaves no feature."""
        return largest_l1(self.Z, self.y, self.loss, columns=self.columns, group=self.group, penalised=self.penalised)

    def minimise(self, **options: Any) -> SparseSolution:
        """Return the solution by :func:`streamkernel.solvers.sparse.minimise_sparse`."""
        return minimise_sparse(*self[:3], columns=self.columns, group=self.group, penalised=self.penalised, **options)

    def at(self, rows: I64) -> _Task:
        """Return the task limited to some rows."""
        return self._replace(Z=self.Z[rows], y=self.y[rows])

    def losses(self, coef: F64) -> F64:
        """Return the loss of each row."""
        return np.array([self.loss.value(f, y) for f, y in zip(self.Z @ coef, self.y.tolist(), strict=True)])

    def refit_kept(self, coef: F64, l2: float) -> F64:
        """Return coefficients fitted without the penalty where `coef` is not 0."""
        kept = coef.any(axis=1) | ~self.penalised
        return refit(self.Z, self.y, self.loss, kept, l2=l2, columns=self.columns, penalised=self.penalised, start=coef)

    def prune(self, coef: F64, most: int, rows: I64) -> F64:
        """Return coefficients of at most a number of features; their importance is estimated on some of the rows."""
        stays = coef[:-1].reshape(-1, self.group * self.columns).any(axis=1)
        if stays.sum() <= most:
            return coef
        used, pruned = np.append(np.repeat(stays, self.group), True), coef.copy()
        part = self._replace(Z=self.Z[np.ix_(rows, used)], y=self.y[rows])
        problem = check_problem(part.Z, part.y, self.loss, 1.0, self.columns, self.group, part.penalised)
        pruned[used] = eliminate(largest_curvature(problem, _RIDGE), coef[used], self.group, most)
        return pruned


def learn_in_rounds(
    features: Callable[[I64], F32], y: F64, loss: Loss, columns: int, outputs: int, options: RoundOptions, tell: Tell
) -> Iterator[Sparse]:
    """Yield the model after each round, and then with the remaining features fitted without the penalty.

    `features` evaluates features for all rows, by blocks and places, shape (features, 2). `y`,
    `loss` and `columns` are as for :func:`streamkernel.solvers.sparse.minimise_sparse`.
    """
    per_round, l1, epochs = options.features_per_round, options.l1, 0
    some = np.random.default_rng(options.seed).permutation(len(y))[:_MOST]
    held, rest = (some[: len(some) // 10], some[len(some) // 10 :]) if len(some) >= _LEAST else (some[:0], some)
    places, kept = np.zeros((0, 2), np.int64), np.zeros((len(y), 0), np.float32)
    coef, ones = np.zeros((1, columns)), np.ones((len(y), 1), np.float32)
    for done in range(options.rounds):
        is_last = done == options.rounds - 1
        new = np.arange(done * per_round, (done + 1) * per_round)
        candidates = np.stack([new // PER_BLOCK, new % PER_BLOCK], axis=1)
        task = _Task(np.hstack([kept, features(candidates), ones]), y, loss, columns, outputs)
        start = np.insert(coef, [len(coef) - 1] * (per_round * outputs), 0.0, axis=0)
        if done == 0 and isinstance(loss, Sigmoid):
            start = _convex(task, options)
        if l1 is None:
            l1 = _price(task, start, held, rest, options)
        solution = task.minimise(
            l1=l1,
            threads=options.threads,
            max_epochs=options.max_epochs if is_last else min(options.max_epochs, _FEW),
            tol=options.tol,
            seed=options.seed + done,
            start=start,
            tell=lambda share, text, done=done: tell((done + share) / options.rounds, text),
        )
        coef = solution.coef
        if options.max_features is not None:
            coef = task.prune(coef, options.max_features, some)
        stays = coef[:-1].reshape(-1, outputs * columns).any(axis=1)
        stay = np.append(np.repeat(stays, outputs), True)
        places, coef = np.vstack([places, candidates])[stays], coef[stay]
        kept = task.Z[:, :-1][:, stay[:-1]]
        epochs += solution.history[-1].epochs
        yield Sparse(places, coef, l1, solution.objective, solution.violation, epochs)
        if solution.interrupted:
            raise KeyboardInterrupt
    if options.refit and l1 is not None:
        task = task._replace(Z=np.hstack([kept, ones]))
        l2 = _ridge(task, coef, held, rest)
        yield Sparse(places, task.refit_kept(coef, l2), l1, solution.objective, solution.violation, epochs)


def _convex(task: _Task, options: RoundOptions) -> F64:
    """Return initial coefficients from the logistic loss: from 0, the sigmoid loss assigns all rows to one class."""
    coef = np.zeros((task.Z.shape[1], task.columns))
    for c in range(task.columns):
        y = task.y if task.columns == 1 else (task.y == c).astype(np.float64)
        one = task._replace(y=y, loss=Logistic(), columns=1)
        l1 = max(FRACTIONS[1] * one.largest_l1(), _NO_PRICE)
        coef[:, c] = one.minimise(l1=l1, tol=options.tol, max_epochs=_FEW, threads=options.threads).coef[:, 0]
    return coef


def _price(task: _Task, coef: F64, held: I64, rest: I64, options: RoundOptions) -> float:
    """Return the largest penalty within a standard error of the best held-out loss, as a fraction of the largest one.

    If another option bounds the number of features, it is the penalty with the best held-out loss.
    """
    train, test = task.at(rest), task.at(held)
    largest = train.largest_l1()
    prices = [max(_NO_PRICE, share * largest) for share in FRACTIONS]
    if not len(held):
        return prices[len(prices) // 2]
    limits = {"tol": options.tol, "max_epochs": _FEW, "threads": options.threads, "seed": options.seed}
    means, errors = [], []
    for l1 in prices:
        solution = train.minimise(l1=l1, start=coef, **limits)
        if solution.interrupted:
            raise KeyboardInterrupt
        coef = solution.coef
        each = test.losses(train.refit_kept(coef, RIDGES[len(RIDGES) // 2]) if options.refit else coef)
        means.append(float(each.mean()))
        errors.append(float(each.std()) / math.sqrt(len(each)))
        if means[-1] > min(means) + errors[-1]:
            break
    best = int(np.argmin(means))
    slack = errors[best] if options.max_features is None else 0.0
    return next(l1 for l1, mean in zip(prices, means, strict=False) if mean <= means[best] + slack)


def _ridge(task: _Task, coef: F64, held: I64, rest: I64) -> float:
    """Return the ridge with the least held-out loss, rescaled so that its share of the loss of all rows is the same."""
    if not len(held):
        return RIDGES[0]
    train, test, means = task.at(rest), task.at(held), []
    for l2 in RIDGES:
        coef = train.refit_kept(coef, l2)
        means.append(float(test.losses(coef).mean()))
    return RIDGES[int(np.argmin(means))] * len(rest) / len(task.y)
