"""Metrics of several tasks, in which the nearest neighbours of an example are of its class: large-margin triplets."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from streamkernel import losses
from streamkernel.documentation import SOLVED, documented
from streamkernel.losses import Loss
from streamkernel.solvers.matrix_blocks import F64, Ints, MatrixProblem
from streamkernel.solvers.matrix_risk import dual_loss, positive, solve, within

_SHARE, _SEEDS = 20, 2**31 - 1


def neighbours(X: F64, y: Ints, k: int) -> tuple[Ints, Ints, Ints]:
    """Return u, v, w of the triplets of one task: v one of the k nearest of u's class, w the nearest of another.

    Where a class has fewer than k others, all of them are taken; a class of one example gives none, nor does a task
    of one class.

    Examples
    --------
    >>> u, v, w = neighbours(np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([0, 0, 1, 1]), k=1)
    >>> list(zip(u.tolist(), v.tolist(), w.tolist()))
    [(0, 1, 2), (1, 0, 2), (2, 3, 1), (3, 2, 1)]
    """
    squares, none = np.square(X).sum(axis=1), np.empty(0, np.intp)
    triplets = [(none, none, none)]
    for label in np.unique(y):
        of, others = np.flatnonzero(y == label), np.flatnonzero(y != label)
        count = min(k, len(of) - 1)
        if count == 0 or len(others) == 0:
            continue
        distances = squares[of] - 2.0 * X[of] @ X[of].T
        np.fill_diagonal(distances, np.inf)
        near = of[np.argsort(distances, axis=1, kind="stable")[:, :count]]
        far = others[np.argmin(squares[others] - 2.0 * X[of] @ X[others].T, axis=1)]
        triplets.append((np.repeat(of, count), near.ravel(), np.repeat(far, count)))
    u, v, w = (np.concatenate(parts) for parts in zip(*triplets, strict=True))
    order = np.argsort(u, kind="stable")
    return u[order], v[order], w[order]


@dataclass
class Triplets:
    """Data of rank 2: Z_i = f fᵀ - g gᵀ for the block 0 of all tasks, and the same for the block of its own task.

    `far` and `near` are f = z_u - z_w and g = z_u - z_v, shape (n, d), the tasks one after the other; `ends` says where
    each task ends.
    """

    far: F64
    near: F64
    ends: Ints

    def __post_init__(self) -> None:
        """Count the triplets of each task."""
        (self.n, self.d), self.p = self.far.shape, len(self.ends) + 1

    def forward(self, X: F64, blocks: Ints, rows: Ints) -> F64:
        """Return ⟨Z_i, X_0 + X_j⟩ for each of `rows` of task j, without the matrices that are not in `blocks`."""
        matrices = {int(j): X[k] for k, j in enumerate(blocks)}
        out = np.zeros(len(rows))
        for task, part in enumerate(self._parts(rows), start=1):
            if part.stop > part.start and (task in matrices or 0 in matrices):
                M = matrices.get(task, 0.0) + matrices.get(0, 0.0)
                f, g = self._of(rows, part)
                out[part] = np.einsum("ij,ij->i", f @ M, f) - np.einsum("ij,ij->i", g @ M, g)
        return out

    def backward(self, y: F64, rows: Ints, blocks: Ints) -> F64:
        """Return Σ_i y_i Z_i over `rows`, whose numbers are `y`, for each of `blocks`."""
        parts, every = list(self._parts(rows)), len(blocks) == self.p
        out = np.zeros((len(blocks), self.d, self.d))
        for k, j in enumerate(blocks):
            part = parts[j - 1] if j else slice(0, 0 if every else len(rows))
            if part.stop > part.start:
                f, g = self._of(rows, part)
                weights = y[part, None]
                out[k] = f.T @ (weights * f) - g.T @ (weights * g)
        if every:
            out[blocks == 0] = out.sum(axis=0)
        return out

    def pulls(self) -> F64:
        """Return C_j = Σ g gᵀ over the pairs of task j, and of all tasks for block 0, shape (p, d, d)."""
        of_tasks = [self.near[part].T @ self.near[part] for part in self._parts(np.arange(self.n))]
        return np.stack([sum(of_tasks), *of_tasks])

    def _parts(self, rows: Ints) -> list[slice]:
        """Return the range of each task in `rows`, which are in ascending order."""
        stops = np.searchsorted(rows, self.ends)
        return [slice(a, b) for a, b in zip([0, *stops[:-1]], stops, strict=True)]

    def _of(self, rows: Ints, part: slice) -> tuple[F64, F64]:
        """Return f and g of a part of `rows`."""
        at = rows[part]
        if at[-1] - at[0] + 1 == len(at):
            return self.far[at[0] : at[-1] + 1], self.near[at[0] : at[-1] + 1]
        return self.far[at], self.near[at]


def large_margin(data: Triplets, loss: Loss, l2_common: float, l2_task: float) -> tuple[MatrixProblem, float]:
    """Return problem (33) in the form of `matrix_blocks`, and the constant that its objective lacks.

    λ/2 ‖X - T‖² + ⟨C, X⟩/n is λ/2 ‖X - M‖² + λ/2 (‖T‖² - ‖M‖²) with M = T - C/nλ; T is I for X_0, and 0 for the others.
    """
    l2 = np.array([l2_common] + [l2_task] * (data.p - 1))
    targets = np.zeros((data.p, data.d, data.d))
    targets[0] = np.eye(data.d)
    centers = targets - data.pulls() / (data.n * l2[:, None, None])
    squares = (np.square(targets) - np.square(centers)).sum(axis=(1, 2))
    return MatrixProblem(data, loss, np.ones(data.n), l2, centers), float(0.5 * l2 @ squares)


@documented("", SOLVED)
class MultiTaskLMNN(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """Large margin nearest neighbours of several tasks: a metric for each task, with a common part.

    The squared distance in task j is (x - x')ᵀ(X_0 + X_j)(x - x'). X_0 and X_j are positive semi-definite; X_0 is
    regularised towards the identity and X_j towards zero. They are learned such that the nearest examples of the same
    class are close, and the nearest example of another class is further away by a margin of 1. Inputs are multiplied by
    one factor, so that the mean squared distance of such neighbours is 1. Put a ``StandardScaler`` in front of inputs
    on different scales.

    Parameters
    ----------
    n_neighbors : int, default 3
        The number of neighbours of the same class in learning, and of neighbours in `predict`. A class with fewer
        examples in a task uses the ones that it has.
    l2_common : float or None, default None
        The regularisation λ_0 > 0 of X_0 towards the identity; 2/d by default. The loss pulls each of the d directions
        to zero with a gradient of 1/d on average, so with a much smaller λ_0, X_0 vanishes where classes overlap.
    l2_task : float or None, default None
        The regularisation λ_j > 0 of each X_j towards zero; 6/d by default.
    loss : "smooth_hinge" or "logistic" or losses.Loss, default "smooth_hinge"
        The loss of the margin.
    tol : float, default 0.001
        The gap between the primal and the dual objective at which the solver stops.
    max_steps : int, default 100000
        The maximum number of steps.
    random_state : int or numpy.random.RandomState or None, default 0
        The seed or generator of random choices.
    verbose : bool, default False
        Whether to show a progress line.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes of all tasks, sorted.
    tasks_ : ndarray of shape (n_tasks,) or None
        The tasks, sorted; ``None`` if `fit` got none.
    metrics_ : ndarray of shape (n_tasks, d, d)
        The metric of each task, scale²·(X_0 + X_j), for unscaled inputs.
    common_ : ndarray of shape (d, d)
        X_0.
    objective_, gap_ : float
        The objective, and a bound on its distance to the minimum.
    n_iter_ : int
        The number of steps.

    Raises
    ------
    ValueError
        If an argument or an input is out of its range, a task is unknown, or no example has both a neighbour of its
        class and one of another class.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", section 5.3,
    Algorithm 3. Parameswaran and Weinberger, "Large Margin Multi-Task Metric Learning", NIPS 2010.

    Examples
    --------
    Two classes that differ in the first of ten inputs:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> X = rng.normal(size=(60, 10))
    >>> X[:, 0] += 3 * y
    >>> model = MultiTaskLMNN().fit(X, y)
    >>> int(np.argmax(np.diag(model.metrics_[0])))
    0
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        l2_common: float | None = None,
        l2_task: float | None = None,
        loss: str | losses.Loss = "smooth_hinge",
        tol: float = 1e-3,
        max_steps: int = 100_000,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.l2_common = l2_common
        self.l2_task = l2_task
        self.loss = loss
        self.tol = tol
        self.max_steps = max_steps
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, task: Any = None) -> Self:
        """Learn the metrics.

        Parameters
        ----------
        y : array_like of shape (n,)
            The classes. Tasks may have different classes.

        Examples
        --------
        >>> X, y, task = [[0.0], [1.0], [4.0], [5.0]] * 2, [0, 0, 1, 1] * 2, ["a"] * 4 + ["b"] * 4
        >>> MultiTaskLMNN(n_neighbors=1).fit(X, y, task).tasks_
        array(['a', 'b'], dtype='<U1')
        """
        k, phi = within("n_neighbors", self.n_neighbors, None), dual_loss(self.loss)
        if not phi.for_classes:
            raise ValueError(f"Expected a loss of smooth_hinge, logistic, got {self.loss!r}")
        tol, max_steps = positive("tol", self.tol), within("max_steps", self.max_steps, None)
        X, y = validate_data(self, X, y, dtype=np.float64)
        l2_common = 2.0 / X.shape[1] if self.l2_common is None else positive("l2_common", self.l2_common)
        l2_task = 6.0 / X.shape[1] if self.l2_task is None else positive("l2_task", self.l2_task)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Expected at least 2 classes in y, got 1 class")
        self.tasks_, rows = self._tasks(X, task)
        for j, of in enumerate(rows):
            if len(of) < k:
                where = "" if self.tasks_ is None else f" of task {self.tasks_.tolist()[j]!r}"
                raise ValueError(f"Expected n_neighbors of at most the {len(of)} examples{where}, got {k}")
        triplets, self._scale = self._triplets(X, labels, rows, k)
        problem, constant = large_margin(triplets, phi, l2_common, l2_task)
        seed = int(check_random_state(self.random_state).randint(_SEEDS))
        solution = solve(
            problem,
            triplets.n,
            math.ceil(triplets.p / _SHARE),
            tol=tol,
            max_steps=max_steps,
            seed=seed,
            verbose=self.verbose,
            what="Metrics",
        )
        if not solution.converged:
            warnings.warn(
                f"The gap is {solution.gap:.1e} after {solution.steps} steps, more than tol={tol:.1e}",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.common_, self.metrics_ = solution.X[0], self._scale**2 * (solution.X[0] + solution.X[1:])
        self.objective_, self.gap_, self.n_iter_ = solution.objective + constant, solution.gap, solution.steps
        values, vectors = np.linalg.eigh(self.metrics_)
        roots = np.sqrt(np.maximum(values, 0.0))[:, None, :]
        self._roots = (vectors * roots) @ vectors.swapaxes(1, 2)
        self._n_features_out = X.shape[1]
        self._nearest = [
            KNeighborsClassifier(k).fit(X[of] @ root, y[of]) for of, root in zip(rows, self._roots, strict=True)
        ]
        return self

    def transform(self, X: Any, task: Any = None) -> F64:
        """Return points of shape (n, d) whose Euclidean distance within a task is the learned distance."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        out: F64 = np.empty_like(X)
        for of, root in zip(self._rows(X, task), self._roots, strict=True):
            out[of] = X[of] @ root
        return out

    def fit_transform(self, X: Any, y: Any = None, task: Any = None) -> F64:
        """Learn the metrics and return the examples as `transform` does.

        Parameters
        ----------
        y : array_like of shape (n,), default None
            The classes.
        """
        points: F64 = self.fit(X, y, task).transform(X, task)
        return points

    def predict(self, X: Any, task: Any = None) -> npt.NDArray[Any]:
        """Return the majority class of the nearest examples of the task, shape (n,)."""
        points = self.transform(X, task)
        out = np.empty(len(points), self.classes_.dtype)
        for of, nearest in zip(self._rows(points, task), self._nearest, strict=True):
            if len(of):
                out[of] = nearest.predict(points[of])
        return out

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy."""
        return float(accuracy_score(y, self.predict(X, task), sample_weight=sample_weight))

    def _tasks(self, X: F64, task: Any) -> tuple[npt.NDArray[Any] | None, list[Ints]]:
        """Return the tasks and the rows of each."""
        if task is None:
            return None, [np.arange(len(X))]
        names, index = np.unique(_task_of_each(X, task), return_inverse=True)
        return names, [np.flatnonzero(index == j) for j in range(len(names))]

    def _rows(self, X: F64, task: Any) -> list[Ints]:
        """Return the rows of each known task."""
        if self.tasks_ is None:
            if task is not None:
                raise ValueError("Expected no task, as in fit, got some")
            return [np.arange(len(X))]
        if task is None:
            raise ValueError(
                f"Expected a task for each example, one of {', '.join(map(repr, self.tasks_.tolist()))}, got none"
            )
        tasks = _task_of_each(X, task)
        unknown = np.setdiff1d(tasks, self.tasks_)
        if len(unknown):
            raise ValueError(
                f"Expected a task of {', '.join(map(repr, self.tasks_.tolist()))}, got {unknown.tolist()[0]!r}"
            )
        return [np.flatnonzero(tasks == name) for name in self.tasks_]

    @staticmethod
    def _triplets(X: F64, labels: Ints, rows: list[Ints], k: int) -> tuple[Triplets, float]:
        """Return the triplets of all tasks, and the factor of the inputs."""
        triplets = [[of[part] for part in neighbours(X[of], labels[of], k)] for of in rows]
        u, v, w = (np.concatenate(parts) for parts in zip(*triplets, strict=True))
        if len(u) == 0:
            raise ValueError("Expected a task with 2 classes and 2 examples of a class, got none")
        near, far = X[u] - X[v], X[u] - X[w]
        mean = float(np.square(near).sum(axis=1).mean())
        scale = 1.0 / math.sqrt(mean) if mean > 0.0 else 1.0
        return Triplets(scale * far, scale * near, np.cumsum([len(part[0]) for part in triplets])), scale


def _task_of_each(X: F64, task: Any) -> npt.NDArray[Any]:
    """Return the tasks as an array with one entry per example."""
    tasks: npt.NDArray[Any] = check_array(task, ensure_2d=False, dtype=None, input_name="task")
    if tasks.shape != (len(X),):
        raise ValueError(f"Expected task of shape ({len(X)},), one for each example, got {tasks.shape}")
    return tasks
