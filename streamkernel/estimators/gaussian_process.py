"""The Gaussian process regressor, whose first examples decide bandwidth and noise, and which learns in any threads."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from river import base

from streamkernel import tensor_file
from streamkernel.documentation import documented
from streamkernel.errors import InputError, is_real
from streamkernel.estimators import model_file
from streamkernel.estimators.parameters import check_shared, check_size
from streamkernel.estimators.targets import as_target, as_weight, weights_of
from streamkernel.features import example_tensors
from streamkernel.features.frames import native_series, targets_of
from streamkernel.features.rows import F64, Rows
from streamkernel.kernels import Gaussian, Kernel, bandwidth
from streamkernel.locking import OwnedLock, locked, on_copy
from streamkernel.posterior import posteriors
from streamkernel.posterior.bayesian_linear import LEAST_RATIO, Recursive, is_ratio
from streamkernel.posterior.posteriors import FeatureMap, Posterior

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame, IntoSeries

log = logging.getLogger(__name__)
Read = TypeVar("Read")
FirstExamples = tuple[tuple[Rows, float], ...]
"""Examples and their targets."""


class ProcessState(NamedTuple):
    """The state of a Gaussian process; everything that compiled code does not change is replaced in one assignment.

    `phis` are the features, for the paper's operator with a second set, ω'. `offset` is the origin of the targets, and
    `ratio` the noise in units of the prior variance of f. `first` are examples that still decide the bandwidth and the
    noise, with their targets; ``None`` once both are known. `journal` is an example that is being learned, its target,
    and how many examples the posterior had before.
    """

    phis: tuple[FeatureMap, ...]
    posterior: Posterior
    offset: float
    ratio: float
    first: FirstExamples | None
    journal: tuple[Rows, float, int] | None = None


def choose_by_first(
    seen: ProcessState, first: FirstExamples, wanted: Kernel, choice: Sequence[float], *, is_noise_given: bool
) -> tuple[tuple[FeatureMap, ...], float, float]:
    """Return the features, the origin of the targets and the noise ratio chosen from the first examples.

    A bandwidth of the kernel `wanted` that is pending is one of the multiples in `choice` of the median distance of the
    examples. With `is_noise_given` the noise is known, and with it the origin.
    """
    rows, y = Rows.stack([row for row, _ in first]), np.array([y for _, y in first])
    phi, offset, ratio, kernels = seen.phis[0], seen.offset, seen.ratio, [seen.phis[0].kernel]
    if wanted.is_pending:
        kernels = [bandwidth.with_medians(wanted, phi.directions.plan, rows, multiple) for multiple in choice]
    if not is_noise_given:
        offset = float(np.average(y, weights=rows.weights))
        candidates = [(*_likelihood(phi.with_kernel(kernel), rows, y - offset), kernel) for kernel in kernels]
        _, ratio, kernels[0] = max(candidates, key=lambda candidate: candidate[0])
    return tuple(phi.with_kernel(kernels[0]) for phi in seen.phis), offset, ratio


def _likelihood(phi: FeatureMap, rows: Rows, y: F64) -> tuple[float, float]:
    """Return how likely the targets are with some features at best, and the ratio of noise it is with.

    Targets of noise σ²/w are √w times as large with noise σ², and so is f.
    """
    root = np.sqrt(rows.weights)
    features = phi(rows) * root[:, None]
    return posteriors.most_likely(features @ features.T + np.outer(root, root), y * root)


@documented()
class GaussianProcessRegressor(model_file.Serializable, base.MiniBatchRegressor):
    """Gaussian process regression on a stream, with a predictive distribution, in bounded memory.

    The method is Bayesian linear regression on seeded random features, updated recursively. After every example it is
    the exact posterior of the process whose kernel the features have, in O(D²) memory and time for
    D = 2 `n_features` outputs. Away from the data the variance returns to k(x, x). After many more examples than
    features it is too small there, because the D weights are then known. The mean is limited to the range of the
    targets and of the prior mean, extended by a fifth of it, or by twice as much as targets have recently widened it.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel. The default is a Gaussian of the median distance between the first 256 examples; if `noise` is not
        given, of half or twice that distance if the marginal likelihood of these examples is larger.
    noise : float or None, default None
        Variance σ² > 0 of the noise in y = f(x) + e, in squared units of the target, for f of mean 0 and covariance k
        (equation (9) of the paper). By default the scale is estimated: f has covariance s²·k around an unknown
        constant, the first 256 examples determine σ²/s² by maximum marginal likelihood, and σ² is the maximum
        likelihood estimate over all examples.
    n_features : int, default 256
        Number of random features; each has a cosine and a sine.

    Attributes
    ----------
    kernel_
    noise_variance : float
        The variance of the noise in use, in units of the target squared.
    n_bounded_predictions, n_outlying_targets : int
        Numbers of learned examples whose prediction was limited to the range of targets and of the prior mean, and
        whose target did not extend that range in full because it was an outlier.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, chapters 2 and 5.
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4 and appendix D.

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> from river.datasets import synth
    >>> from streamkernel import GaussianProcessRegressor

    >>> model = GaussianProcessRegressor()
    >>> evaluate.progressive_val_score(synth.Friedman(seed=1).take(2000), model, metrics.R2())
    R2: 0.88...
    >>> x, y = next(iter(synth.Friedman(seed=2).take(1)))
    >>> model.predict_one(x, with_dist=True)
    𝒩(μ=13.2..., σ=1.4...)
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise: float | None = None,
        n_features: int = 256,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        check_shared(kernel, cache_bytes, seed)
        check_size(n_features)
        if noise is not None and not (is_real(noise) and is_ratio(noise)):
            raise ValueError(f"Expected noise from {LEAST_RATIO:g} to {1.0 / LEAST_RATIO:g}, or None, got {noise!r}")
        self.kernel = kernel
        self.noise = noise
        self.n_features = n_features
        self.cache_bytes = cache_bytes
        self.seed = seed
        self._given = kernel or Gaussian("median")
        phis = self._new_features()
        ratio = posteriors.USUAL if noise is None else float(noise)
        first = () if noise is None or self._given.is_pending else None
        self._lock = OwnedLock()
        self._seen = ProcessState(phis, self._new_posterior(phis, ratio), 0.0, ratio, first)

    def _new_features(self) -> tuple[FeatureMap, ...]:
        """Return the feature maps of the posterior."""
        return (FeatureMap(self._given, self.n_features, self.seed, self.cache_bytes),)

    def _new_posterior(self, phis: Sequence[FeatureMap], ratio: float) -> Posterior:
        """Return the posterior before the first example."""
        return Recursive(phis[0], self.noise, ratio)

    # The state changes in one compiled call, or in one assignment of `_seen`. While an example is learned that decides
    # bandwidth and noise, the state has a journal: the next call completes what follows from it.

    def _read(self, read: Callable[[ProcessState], Read]) -> Read:
        """Read the state by a function, again if it was replaced meanwhile."""
        while True:
            seen = self._complete()
            result = read(seen)
            if self._seen.posterior is seen.posterior:  # else it may have learned an example before it was replaced
                return result

    @locked()
    def _learn(self, rows: Rows, y: F64) -> None:
        """Learn `rows` in order, except rows of weight 0."""
        self._recover()
        if not rows.weights.all():
            rows, y = rows.where(chosen := rows.weights > 0.0), y[chosen]
        done = 0
        while self._seen.first is not None and done < len(y):
            self._learn_first(rows.part(done, done + 1), float(y[done]))
            done += 1
        self._seen.posterior.learn(rows.part(done, len(y)), y[done:] - self._seen.offset)

    def _learn_first(self, row: Rows, y: float) -> None:
        """Learn one of the first examples, which are all learned again each time they are used; requires the lock."""
        seen = self._seen
        self._seen = seen._replace(journal=(row, y, seen.posterior.examples))
        try:  # before it counts: one that is refused decides nothing
            seen.posterior.learn(row, np.array([y - seen.offset]))
        finally:
            self._recover()

    def _complete(self) -> ProcessState:
        """Return the state after completing an interrupted change; a thread that learns completes its own."""
        if self._seen.journal is not None and not self._lock.is_busy:
            self._recover_locked()
        return self._seen

    @locked()
    def _recover_locked(self) -> None:
        self._recover()

    def _recover(self) -> None:
        """Complete the changes that follow from the learned examples; requires the lock."""
        seen = self._seen
        if seen.journal is None:
            return
        row, y, examples = seen.journal
        after = seen._replace(journal=None)
        if seen.posterior.examples > examples:
            first = (*(seen.first or ()), (row, y))
            after = after._replace(first=first)
            if len(first) == 1 or bandwidth.is_due(len(first)) or bandwidth.is_enough([row for row, _ in first]):
                after = self._decide(after, first)
        self._seen = after

    def _decide(self, seen: ProcessState, first: FirstExamples) -> ProcessState:
        """Return the state with bandwidth, origin of the targets and noise from the first examples, learned again."""
        choice = (0.5, 1.0, 2.0) if self.kernel is None and self.noise is None else (1.0,)
        phis, offset, ratio = choose_by_first(seen, first, self._given, choice, is_noise_given=self.noise is not None)
        posterior = self._new_posterior(phis, ratio)
        for example, target in first:
            try:
                posterior.learn(example, np.array([target - offset]))
            except InputError as error:
                log.warning("cannot learn an example again: %s", error)
        is_last = bandwidth.is_enough([row for row, _ in first])
        if is_last:
            log.info("%r and noise ratio %.3g, from the first examples", phis[0].kernel, ratio)
        return ProcessState(phis, posterior, offset, ratio, None if is_last else tuple(first))

    def _completed_copy(self) -> Self:
        """Return a copy that shares nothing that learning changes, after the change in progress or before it."""
        seen = self._seen
        posterior = copy.deepcopy(seen.posterior, {id(phi): phi for phi in seen.phis})
        twin = self._twin(_lock=OwnedLock(), _seen=seen._replace(posterior=posterior))
        twin._recover()
        return twin

    @locked(inside=on_copy)
    def _mean_and_variance(self, x: Any) -> tuple[float, float]:
        """Return the mean and the variance from one state."""
        self._recover()
        seen = self._seen
        row = seen.phis[0].row(x)
        mean = seen.offset + float(seen.posterior.mean(row)[0])
        return mean, float(seen.posterior.variance(row)[0]) + seen.posterior.noise

    @property
    def kernel_(self) -> Kernel:
        """The kernel in use; bandwidths that are taken from the stream are provisional during the first examples."""
        return self._seen.phis[0].kernel

    @property
    def noise_variance(self) -> float:
        """The variance σ² of the noise in use."""
        return self._read(lambda seen: seen.posterior.noise)

    @property
    def n_bounded_predictions(self) -> int:
        """Learned examples whose prediction was limited to the range of the targets and of the prior mean."""
        return self._read(lambda seen: seen.posterior.of_targets[0])

    @property
    def n_outlying_targets(self) -> int:
        """Targets far outside of the range of those before that did not extend it in full; all are learned in full."""
        return self._read(lambda seen: seen.posterior.of_targets[1])

    @property
    def _events(self) -> int:
        """Examples learned."""
        return int(self._seen.posterior.examples)

    @property
    def _is_provisional(self) -> bool:
        """Whether bandwidths of the current kernel will still change."""
        return self._given.is_pending and self._seen.first is not None

    def learn_one(self, x: Mapping[Hashable, Any], y: float, w: float = 1.0) -> None:
        """Learn from one example.

        Parameters
        ----------
        x : dict
            The features by name: numbers, or strings as indicators. A name that is missing counts as 0.
        w : float, default 1.0
            The weight of the example: its noise has the variance σ²/w. With 0 it changes nothing.
        """
        row = self._seen.phis[0].row(x).with_weight(as_weight(w))
        self._learn(row, np.array([as_target(y)], np.float64))

    def learn_many(self, X: IntoDataFrame, y: IntoSeries, w: Any = None) -> None:
        """Learn from the rows of a data frame in order, as :meth:`learn_one` of each row does, and faster."""
        rows = self._seen.phis[0].table(X)
        n = len(rows.start) - 1
        targets = [as_target(target, f"y, row {i}") for i, target in enumerate(targets_of(y, n))]
        rows = rows._replace(weights=weights_of(w, n))
        self._learn(rows, np.array(targets, np.float64))

    def predict_one(self, x: Mapping[Hashable, Any], with_dist: bool = False) -> Any:
        """Return the prediction for one example.

        Parameters
        ----------
        with_dist : bool, default False
            Return the distribution of the target, a :class:`river.proba.Gaussian` whose variance is the sum of
            the variances of f(x) and of the noise, instead of the mean.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string, or the variance at `x` is unknown because `x` is not
            one of the given points.
        """
        if not with_dist:
            return self._read(lambda seen: seen.offset + float(seen.posterior.mean(seen.phis[0].row(x))[0]))
        from river import proba  # here, because it takes as long to import as all the rest

        mean, variance = self._mean_and_variance(x)
        return proba.Gaussian._from_state(n=1, m=mean, var=variance, ddof=0)

    def predict_many(self, X: IntoDataFrame) -> Any:
        """Return the prediction for each row of a data frame."""
        return native_series(self._read(lambda seen: seen.offset + seen.posterior.mean(seen.phis[0].table(X))), X)

    @locked(inside=on_copy)
    def _describe(self) -> tuple[dict[str, Any], tensor_file.Tensors]:
        self._recover()
        seen = self._seen
        tensors = seen.posterior.tensors()
        first = {} if seen.first is None else example_tensors.pack_examples("first", seen.first)
        return {"kernel": self.kernel_, "offset": seen.offset, "ratio": seen.ratio}, tensors | first

    def _restore(self, description: Mapping[str, Any], tensors: tensor_file.Tensors) -> None:
        kernel = model_file.kernel_in(description, self._given)
        phis = tuple(phi.with_kernel(kernel) for phi in self._seen.phis)
        offset, ratio = float(description["offset"]), float(description["ratio"])
        if not (math.isfinite(offset) and is_ratio(ratio)):
            raise ValueError(f"expected a finite offset and a ratio > 0, got {offset!r} and {ratio!r}")
        posterior = self._new_posterior(phis, ratio)
        posterior.restore(tensors)
        first = example_tensors.unpack_examples("first", tensors, phis[0].directions)
        if len(first or []) >= bandwidth.FIRST:
            raise ValueError(f"expected less than {bandwidth.FIRST} first examples")
        self._seen = ProcessState(phis, posterior, offset, ratio, None if first is None else tuple(first))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_features": 32}
