"""AsyDSSKL as its paper prints it, in the paper's notation."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkernel import losses
from streamkernel.estimators.parameters import require_at_least
from streamkernel.features.rows import F32, F64, I64
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.solvers import sparse_loops
from streamkernel.solvers.rounds import PER_BLOCK, ChosenFeatures
from streamkernel.solvers.sparse_loops import GroupSteps, Snapshot
from streamkernel.solvers.sparse_problem import SparseProblem, check_problem, pool_of

__all__ = ["AsyDSSKL"]


class AsyDSSKL:
    """Asynchronous doubly stochastic sparse kernel learning (Gu et al. 2018, Algorithms 1 and 2).

    It minimises P(w) = (1/l) Σ_i L(f(x_i), y_i) + λ‖w‖₁ for f(x) = Σ_{h∈A} w(h) φ_h(x), without an intercept. Each of M
    rounds adds R random features to the set A, solves this problem from the coefficients so far, and drops each h with
    w(h) = 0. To solve it, each of S outer iterations takes a snapshot w̃ with ∇F(w̃) = (1/l) Σ_i ∇f_i(w̃). Then threads,
    which share w without locks, take m steps of a random mini-batch B and a random coordinate j:

        v_j = (1/|B|) Σ_{i∈B} (∇_j f_i(w) - ∇_j f_i(w̃)) + ∇_j F(w̃)
        w_j ← prox_{(γ/L_max) λ|·|} (w_j - (γ/L_max) v_j)

    γ is constant, and no step is undone. L_max is the largest change of a derivative of one f_i along a coordinate. The
    cosine and the sine of a direction are two features. ``Square()`` and ``Correntropy()`` have a factor ½, so that λ
    is half of the paper's. The printed sigmoid loss rewards errors; ``Sigmoid()`` has the other sign.

    Parameters
    ----------
    kernel : Kernel
        The kernel, with the features of :class:`~streamkernel.solvers.AsyDSSKL` for the same seed. Inputs are not
        scaled.
    loss : Loss or None, default None
        The loss L of one column; by default ``Logistic()``.
    l1 : float
        The penalty λ > 0.
    gamma : float, default 0.03
        The step γ. The paper chooses from 10², 10, ..., 10⁻⁵ by accuracy.
    rounds : int, default 5
        The number M of rounds.
    features_per_round : int, default 256
        The number R of directions that a round adds.
    outer : int, default 10
        The number S of outer iterations in a round.
    inner : int or None, default None
        The number m of steps in an outer iteration; by default the number of rows.
    batch_size : int, default 1
        The number of rows in B.
    threads : int, default 1
        The number of threads. One thread gives the same bits at every run, several do not.
    seed : int, default 0
        The seed of the features and of the draws.

    Attributes
    ----------
    w : array of shape (features,)
        The coefficients of the features that stayed.
    features : array of shape (features,)
        The number of each: the cosine of direction d is 2d, and its sine is 2d + 1.
    objectives : list of float
        P(w) before each outer iteration.

    Raises
    ------
    ValueError
        If a parameter or the data is invalid.

    References
    ----------
    Gu, Miao, Huo and Huang, "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel import kernels, research
    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    >>> y = np.sign(X[:, 0] * X[:, 1])
    >>> f = research.AsyDSSKL(kernels.Gaussian(0.5), l1=0.003, rounds=2, features_per_round=64, outer=20).fit(X, y)
    >>> bool(np.mean(np.sign(f.predict(X)) == y) > 0.95), len(f.w) < 256
    (True, True)
    """

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss | None = None,
        *,
        l1: float,
        gamma: float = 0.03,
        rounds: int = 5,
        features_per_round: int = 256,
        outer: int = 10,
        inner: int | None = None,
        batch_size: int = 1,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        require_at_least(1, rounds=rounds, features_per_round=features_per_round, outer=outer, threads=threads)
        require_at_least(1, batch_size=batch_size, **({} if inner is None else {"inner": inner}))
        if not (0.0 < l1 < math.inf and 0.0 < gamma < math.inf):
            raise ValueError(f"Expected l1 > 0 and gamma > 0, got l1={l1!r} and gamma={gamma!r}")
        self.kernel, self.loss = kernel, losses.Logistic() if loss is None else loss
        self.l1, self.gamma, self.rounds, self.features_per_round = l1, gamma, rounds, features_per_round
        self.outer, self.inner, self.batch_size, self.threads, self.seed = outer, inner, batch_size, threads, seed
        self._plan = KernelProgram(kernel, seed)
        self.w, self.features = np.zeros(0), np.zeros(0, np.int64)
        self.objectives: list[float] = []

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Fit the model (Algorithm 1).

        Parameters
        ----------
        X : array of shape (rows, inputs)
            The inputs.
        y : array of shape (rows,)
            The targets: numbers, or classes -1 and 1.
        """
        inputs, new = np.asarray(X, np.float64), self.features_per_round * self._plan.outputs
        self.w, self.features, self.objectives = np.zeros(0), np.zeros(0, np.int64), []
        rng = np.random.default_rng(self.seed)
        for t in range(self.rounds):
            self.features = np.append(self.features, np.arange(t * new, (t + 1) * new))
            w = self.solve(self._matrix(inputs, self.features), y, np.append(self.w, np.zeros(new)), rng)
            self.w, self.features = w[w != 0.0], self.features[w != 0.0]
        return self

    def predict(self, X: npt.ArrayLike) -> F64:
        """Return f(x) for each row, which is a score for classes.

        Parameters
        ----------
        X : array of shape (rows, inputs)
            The inputs.
        """
        inputs = np.asarray(X, np.float64)
        return np.asarray(self._matrix(inputs, self.features) @ self.w) if len(self.w) else np.zeros(len(inputs))

    def solve(self, Z: npt.ArrayLike, y: npt.ArrayLike, w: F64, rng: np.random.Generator) -> F64:
        """Return the coefficients after S outer iterations that begin at `w` (Algorithm 2).

        Parameters
        ----------
        Z : array of shape (rows, features)
            The features φ_h(x_i).
        y : array of shape (rows,)
            The targets.
        w : array of shape (features,)
            The initial coefficients.
        rng : numpy.random.Generator
            The source of the draws: of all batches of an outer iteration, then of its coordinates.
        """
        problem = check_problem(Z, y, self.loss, self.l1, 1, 1, None)
        shared = np.array(w[None], np.float64)
        with pool_of(self.threads) as pool:
            problem = problem._replace(threads=self.threads, pool=pool)
            step = self.gamma / (sparse_loops.largest(problem.Z, problem.groups.bounds) * problem.curvature)
            for _ in range(self.outer):
                self._iterate(problem, step, shared, rng)
        return np.asarray(shared[0])

    def _iterate(self, problem: SparseProblem, step: F64, w: F64, rng: np.random.Generator) -> None:
        """Take the m steps of an outer iteration, which change `w`."""
        n, at = len(problem.y), problem.at(w)
        self.objectives.append(at.objective)
        inner = n if self.inner is None else self.inner
        samples, drawn = rng.integers(0, n, (inner, self.batch_size)), rng.integers(0, w.shape[1], inner)
        examples, groups = problem.examples, GroupSteps(problem.groups.bounds, problem.groups.weights, step)
        snapshot = Snapshot(at.gradient, at.slopes)

        def work(first: int, last: int) -> None:
            sparse_loops.paper_steps(examples, groups, snapshot, samples[first:last], drawn[first:last], w)

        problem.split(inner, self.batch_size * w.size, work)

    def _matrix(self, inputs: F64, chosen: I64) -> F32:
        """Return the chosen features of each row."""
        directions, place = np.unique(chosen // self._plan.outputs, return_inverse=True)
        places = np.stack([directions // PER_BLOCK, directions % PER_BLOCK], axis=1)
        names = [str(i) for i in range(inputs.shape[1])]
        Z = ChosenFeatures(self._plan, names, places)(inputs)
        return np.ascontiguousarray(Z[:, place * self._plan.outputs + chosen % self._plan.outputs])
