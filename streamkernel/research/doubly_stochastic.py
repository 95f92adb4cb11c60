"""DSG, UDSG and CDSG as their papers print them, in the papers' notation."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from streamkernel import losses, step_sizes
from streamkernel.documentation import documented
from streamkernel.estimators.parameters import require_at_least
from streamkernel.features.counter_rng import counter_bits, domain_key
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, Rows
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import as_step, check_step_size
from streamkernel.learners.embedding import embed_rows
from streamkernel.learners.state import NUMBERS

__all__ = ["CDSG", "DSG", "UDSG"]

_CACHE_BYTES = 1 << 26

_SHARED = """
Parameters
----------
kernel : Kernel
    The kernel k, with the features of :class:`~streamkernel.KernelRegressor` for the same seed.
loss : Loss or None, default None
    The loss ℓ of one column; by default ``Square()``, ½(f - y)².
step_size : float or step_sizes.Step
    The step γ_t; ``step_sizes.InverseTime(theta)`` is the theorems' θ/t, with θλ in (1, 2) or a positive integer.
l2 : float
    The regularisation λ.
features_per_seed : int, default 1
    The number F of directions that a seed makes.
batch_size : int, default 1
    The number B of examples in a step.
seed : int, default 0
    The seed of the model.

Attributes
----------
alpha : array of shape (seeds, outputs)
    The coefficients α of the features of each seed: of F cosines, then of F sines.
history : list of tuple
    The seed and the length η of each step.

Raises
------
ValueError
    If a parameter is invalid.

References
----------
Li and Póczos, "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods", UAI 2016.
"""


@documented(_SHARED, {})
class DSG:
    """Doubly stochastic gradients: each step adds the features of a new seed (Dai et al. 2014, Algorithms 1 and 2).

    With the example (x_t, y_t) and the directions ω_t of the seed t, step t is

        f(x_t) = Σ_{i<t} α_i φ_{ω_i}(x_t)
        α_t    = -γ_t ℓ'(f(x_t), y_t) φ_{ω_t}(x_t)
        α_i    = (1 - γ_t λ) α_i                      for i < t

    It minimises (λ/2)‖f‖² + E[ℓ(f(x), y)]. There is no cap on features, no intercept, and no scaling of inputs. A batch
    of B examples has the mean (1/B) Σ_i ℓ'(f(x_i), y_i) φ(x_i) in the place of ℓ'φ. The papers' φ of a cosine and a
    sine has a factor √2, which would estimate 2k; here it has none.

    Attributes
    ----------
    alpha
    history

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel import kernels, research, step_sizes
    >>> X = np.random.default_rng(0).uniform(-2, 2, (2000, 1))
    >>> f = research.DSG(kernels.Gaussian(1.0), step_size=step_sizes.InverseTime(15.0), l2=0.1, features_per_seed=16)
    >>> f = f.partial_fit(X, np.sin(2 * X[:, 0]))
    >>> f.n_seeds, f.predict([[0.8], [-0.8]]).round(1).tolist()
    (2000, [0.4, -0.5])
    """

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss | None = None,
        *,
        step_size: float | step_sizes.Step,
        l2: float,
        features_per_seed: int = 1,
        batch_size: int = 1,
        seed: int = 0,
    ) -> None:
        require_at_least(1, features_per_seed=features_per_seed, batch_size=batch_size)
        check_step_size(step_size)
        step = as_step(step_size)
        if step is None:
            raise ValueError("Expected step_size as a number > 0 or one of streamkernel.step_sizes, got 'auto'")
        self.loss = losses.Square() if loss is None else loss
        self.l2, self.batch_size, self.seed = l2, batch_size, seed
        self._step = step
        self._directions = Directions(KernelProgram(kernel, seed), features_per_seed, _CACHE_BYTES)
        plan = self._directions.plan
        self._numbers = np.zeros(1, NUMBERS)[0]
        self._numbers["block_size"], self._numbers["components"] = features_per_seed, plan.outputs
        self.alpha: F64 = np.zeros((0, plan.outputs * features_per_seed))
        self.history: list[tuple[int, float]] = []

    @property
    def n_seeds(self) -> int:
        """The number of seeds in use."""
        return len(self.alpha)

    @property
    def n_reused(self) -> int:
        """The number of steps that moved old coefficients instead of adding a seed."""
        return len(self.history) - self.n_seeds

    def predict(self, X: npt.ArrayLike) -> F64:
        """Return f(x) = Σ_i α_i φ_{ω_i}(x) for each row, which is a score for classes (Algorithm 2).

        Parameters
        ----------
        X : array of shape (rows, inputs)
            The inputs.
        """
        return self._function(self._features(self._rows(X), self.n_seeds))

    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Take a step for each `batch_size` rows in order; the last batch has the rest.

        Parameters
        ----------
        X : array of shape (rows, inputs)
            The inputs.
        y : array of shape (rows,)
            The targets: numbers, or classes -1 and 1.
        """
        rows, targets = self._rows(X), np.asarray(y, np.float64)
        for first in range(0, len(targets), self.batch_size):
            last = min(first + self.batch_size, len(targets))
            self._learn(rows.part(first, last), targets[first:last])
        return self

    def _learn(self, rows: Rows, y: F64) -> None:
        """Take one step on a batch."""
        m, gamma = self.n_seeds, float(self._step(len(self.history) + 1))
        phi = self._features(rows, m + 1)
        scores = self._function(phi[:, :m])
        g = np.array([self.loss.derivative(f, t)[0] for f, t in zip(scores, y, strict=True)])
        k, eta = self._choose(float(g.mean()), gamma, len(y))
        if k == m:
            self.alpha = np.vstack([self.alpha, np.zeros_like(phi[0, :1])])
        self.alpha *= 1.0 - eta * self.l2
        self.alpha[k] -= eta * (g @ phi[:, k]) / len(y)
        self._note(k, eta, float(g.mean()))

    def _choose(self, gradient: float, gamma: float, batch: int) -> tuple[int, float]:
        """Return the seed and the length of a step, for the mean of ℓ' over a batch: a new seed, and γ_t."""
        return self.n_seeds, gamma

    def _note(self, k: int, eta: float, gradient: float) -> None:
        """Note a step of the length η along the seed k."""
        self.history.append((k, eta))

    def _rows(self, X: npt.ArrayLike) -> Rows:
        """Return a table as rows with the names "0", "1", ..."""
        values = np.asarray(X, np.float64)
        rows = self._directions.rows([str(i) for i in range(values.shape[1])], values)
        if not self._directions.plan.usable(rows):
            raise self._directions.plan.unusable(rows)
        return rows

    def _features(self, rows: Rows, seeds: int) -> F64:
        """Return φ of the first `seeds` seeds at each row, shape (rows, seeds, outputs)."""
        self._directions.reserve(seeds)
        phi = embed_rows(self._numbers, self._directions, rows, seeds)
        return phi.astype(np.float64).reshape(len(phi), seeds, self.alpha.shape[1])

    def _function(self, phi: F64) -> F64:
        """Return Σ_i α_i φ_i for each row."""
        return np.asarray(np.einsum("isp,sp->i", phi, self.alpha))


@documented(_SHARED, {})
class UDSG(DSG):
    """DSG with steps on old seeds, which are drawn uniformly (Li and Póczos 2016, Algorithm 3).

    Of each G + U steps, the first G add a seed as DSG does. The other U draw an old seed k from the m that there are:

        α_j = (1 - γ_t λ) α_j                       for j = 1, ..., m
        α_k = α_k - γ_t ℓ'(f(x_t), y_t) φ_{ω_k}(x_t)

    The printed condition mod(t, G + U) < G would draw an old seed at t = 1 where G = 1, when there is none. This class
    has mod(t - 1, G + U) < G, as the proof does.

    Parameters
    ----------
    grow : int, default 1
        The number G of consecutive steps that add a seed.
    reuse : int, default 1
        The number U of steps on old seeds that follow.

    Attributes
    ----------
    alpha
    history

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel import kernels, research, step_sizes
    >>> X = np.random.default_rng(0).uniform(-2, 2, (2000, 1))
    >>> f = research.UDSG(kernels.Gaussian(1.0), step_size=step_sizes.InverseTime(15.0), l2=0.1, reuse=3)
    >>> f.partial_fit(X, np.sin(2 * X[:, 0])).n_seeds
    500
    """

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss | None = None,
        *,
        step_size: float | step_sizes.Step,
        l2: float,
        grow: int = 1,
        reuse: int = 1,
        features_per_seed: int = 1,
        batch_size: int = 1,
        seed: int = 0,
    ) -> None:
        require_at_least(1, grow=grow, reuse=reuse)
        super().__init__(
            kernel,
            loss,
            step_size=step_size,
            l2=l2,
            features_per_seed=features_per_seed,
            batch_size=batch_size,
            seed=seed,
        )
        self.grow, self.reuse = grow, reuse

    def _choose(self, gradient: float, gamma: float, batch: int) -> tuple[int, float]:
        """Return a new seed, or an old one drawn uniformly, and γ_t."""
        t = len(self.history)
        if t % (self.grow + self.reuse) < self.grow:
            return self.n_seeds, gamma
        bits = int(counter_bits(domain_key(self.seed, "rule"), np.uint64(t))) >> 11  # 53 of them
        return bits * self.n_seeds >> 53, gamma


@documented(_SHARED, {})
class CDSG(DSG):
    """DSG that moves an old seed where a check allows a longer step than γ_t (Li and Póczos 2016, Algorithm 4).

    β_j of a seed is the sum of -ηg over its steps, shrunk as α_j is, where g is the mean of ℓ' over the batch. For each
    old seed, η_j is the largest η that satisfies (9):

        2(β_j - ηg)² + 2(ηMσ)²/B² ≤ β_j² + γ_t²g²

    With k the seed of the longest η_k, a step is

        η_k ≤ γ_t:   a new seed, as in DSG, with β_{m+1} = -γ_t g
        η_k > γ_t:   α_j = (1 - η_k λ) α_j and β_j = (1 - η_k λ) β_j for all j,
                     α_k = α_k - η_k g φ_{ω_k}(x_t),   β_k = β_k - η_k g

    The paper writes η as a negative number, η_j for η_k in the condition, and the last line as β_k = α_k - η_k g. It
    prints B² in (9), where its derivation gives B: the variance of a mean of B is 1/B of one. `check` chooses.

    Nothing limits η_k. Where η_k λ > 2, the factor 1 - η_k λ makes all coefficients larger, and the algorithm may
    diverge, with the theorem's steps too. ``rules.CDSG(max_step_ratio=...)`` has a limit.

    Parameters
    ----------
    gradient_bound : float or None, default None
        M ≥ ``|ℓ'|``. By default the bound of the loss, if it has one; ``Square()`` has none.
    feature_variance : float or None, default None
        σ², the mean over ω of the variance of φ_ω(x)φ_ω(y) - k(x, y) over y. By default 1/(2F), of a cosine of random
        phase, which suits stationary kernels.
    check : {"printed", "derived"}, default "printed"
        Whether (9) has B², as printed, or B, as derived.

    Attributes
    ----------
    alpha
    beta : array of shape (seeds,)
        β of each seed.
    history

    Raises
    ------
    ValueError
        If a parameter is invalid, or the loss has no bound and `gradient_bound` is not given.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel import kernels, losses, research
    >>> X = np.random.default_rng(0).uniform(-2, 2, (6400, 1))
    >>> f = research.CDSG(kernels.Gaussian(1.0), losses.Logistic(), step_size=1.0, l2=1e-4, features_per_seed=16,
    ...     batch_size=64)
    >>> f = f.partial_fit(X, np.sign(X[:, 0]))
    >>> len(f.history), f.n_seeds < 50, bool(np.mean((f.predict(X) > 0) == (X[:, 0] > 0)) > 0.95)
    (100, True, True)
    """

    def __init__(
        self,
        kernel: Kernel,
        loss: losses.Loss | None = None,
        *,
        step_size: float | step_sizes.Step,
        l2: float,
        gradient_bound: float | None = None,
        feature_variance: float | None = None,
        check: Literal["printed", "derived"] = "printed",
        features_per_seed: int = 1,
        batch_size: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(
            kernel,
            loss,
            step_size=step_size,
            l2=l2,
            features_per_seed=features_per_seed,
            batch_size=batch_size,
            seed=seed,
        )
        bound = self.loss.bound(1) if gradient_bound is None else gradient_bound
        if not 0.0 < bound < math.inf:
            raise ValueError(f"Expected a finite gradient_bound > 0 for {self.loss!r}, got {gradient_bound!r}")
        if check not in ("printed", "derived"):
            raise ValueError(f'Expected check to be "printed" or "derived", got {check!r}')
        variance = 0.5 / features_per_seed if feature_variance is None else feature_variance
        self.check = check
        self._noise = bound * bound * variance  # M²σ²
        self.beta: F64 = np.zeros(0)

    def _choose(self, gradient: float, gamma: float, batch: int) -> tuple[int, float]:
        """Return the old seed of the longest η of (9) if that is above γ_t, else a new one and γ_t."""
        noise = self._noise / batch ** (2 if self.check == "printed" else 1)
        a, b = 2.0 * (gradient**2 + noise), -4.0 * self.beta * gradient  # (9) is aη² + bη + c ≤ 0
        c = self.beta**2 - (gamma * gradient) ** 2
        root = b**2 - 4.0 * a * c
        eta = np.where(root >= 0.0, (np.sqrt(np.maximum(root, 0.0)) - b) / (2.0 * a), 0.0)
        k = int(eta.argmax()) if len(eta) else 0
        return (k, float(eta[k])) if len(eta) and eta[k] > gamma else (self.n_seeds, gamma)

    def _note(self, k: int, eta: float, gradient: float) -> None:
        """Move β as α has moved."""
        super()._note(k, eta, gradient)
        if k == len(self.beta):
            self.beta = np.append(self.beta, 0.0)
        self.beta *= 1.0 - eta * self.l2
        self.beta[k] -= eta * gradient
