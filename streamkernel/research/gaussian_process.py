"""The Gaussian process whose posterior is learned by doubly stochastic gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from streamkernel import step_sizes
from streamkernel.documentation import documented
from streamkernel.estimators.gaussian_process import GaussianProcessRegressor
from streamkernel.estimators.parameters import require_at_least
from streamkernel.features.counter_rng import domain_key
from streamkernel.kernels import Kernel
from streamkernel.learners import as_step, check_step_size
from streamkernel.posterior.posteriors import FeatureMap, Posterior
from streamkernel.posterior.stochastic_posterior import Stochastic, point_rows

__all__ = ["StochasticGaussianProcessRegressor"]


@documented()
class StochasticGaussianProcessRegressor(GaussianProcessRegressor):
    """A Gaussian process whose posterior is learned by doubly stochastic gradients, in the paper's two forms.

    :class:`~streamkernel.GaussianProcessRegressor` is more accurate; this one is for comparison with the paper.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel; by default a Gaussian of the median distance between the first 256 examples.
    noise : float, default 1.0
        Variance σ² > 0 of the noise in y = f(x) + e, for f of mean 0 and covariance k.
    n_features : int, default 256
        The largest number of random features; a new model has none.
    variance : {"operator", "points"}, default "operator"
        ``"operator"`` learns the variance at any x in O(n_features²) memory, ``"points"`` at the given `points`, in
        O(n_features) memory for each; ``predict_one(x, with_dist=True)`` then accepts only these points.
    points : sequence of dict or None, default None
        The points of ``variance="points"``: examples whose names are strings.
    features_per_seed : int or "auto", default "auto"
        Number of random features in a block. ``"auto"`` is a quarter of `n_features`.
    batch_size : int, default 64
        Number of examples in a step.
    step_size : float or step_sizes.Step or "auto", default "auto"
        The step γ; ``"auto"`` is 1.

    Attributes
    ----------
    kernel_
    noise_variance : float
        The variance of the noise, in units of the target squared.
    n_bounded_predictions, n_outlying_targets : int
        As for :class:`~streamkernel.GaussianProcessRegressor`.

    References
    ----------
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4 and appendix D.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.research import StochasticGaussianProcessRegressor
    >>> model = StochasticGaussianProcessRegressor(kernels.Gaussian(1.0), noise=0.1)
    >>> for i in range(5000):
    ...     model.learn_one({"x": i % 7}, float(i % 7 > 3))
    >>> round(model.predict_one({"x": 1.0}), 1), round(model.predict_one({"x": 5.0}), 1)
    (0.1, 1.1)
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise: float = 1.0,
        n_features: int = 256,
        variance: Literal["operator", "points"] = "operator",
        points: Sequence[Mapping[str, float]] | None = None,
        features_per_seed: int | str = "auto",
        batch_size: int = 64,
        step_size: float | str | step_sizes.Step = "auto",
        cache_bytes: int = 1 << 26,
        seed: int = 0,
    ) -> None:
        require_at_least(1, n_features=n_features, batch_size=batch_size)
        block_size = max(1, n_features // 4) if isinstance(features_per_seed, str) else features_per_seed
        require_at_least(1, features_per_seed=block_size)
        if noise is None:
            raise ValueError("Expected noise > 0, got None")
        if variance not in ("operator", "points"):
            raise ValueError(f'Expected variance to be "operator" or "points", got {variance!r}')
        if (points is not None) != (variance == "points"):
            raise ValueError(f'Expected points with variance="points" alone, got {variance!r} and points={points!r}')
        if n_features < block_size:
            raise ValueError(f"Expected n_features to hold one block of {block_size} features, got {n_features}")
        check_step_size(step_size)
        self.variance = variance
        self.points = points
        self.features_per_seed = features_per_seed
        self.batch_size = batch_size
        self.step_size = step_size
        self._blocks, self._block_size = n_features // block_size, block_size
        super().__init__(kernel, noise=noise, n_features=n_features, cache_bytes=cache_bytes, seed=seed)

    def _new_features(self) -> tuple[FeatureMap, ...]:
        features = self._blocks * self._block_size
        seeds = [self.seed, int(domain_key(self.seed, "second features"))][: 2 if self.variance == "operator" else 1]
        return tuple(FeatureMap(self._given, features, key, self.cache_bytes) for key in seeds)

    def _new_posterior(self, phis: Sequence[FeatureMap], ratio: float) -> Posterior:
        points = None if self.points is None else point_rows(phis[0], self.points)
        step = as_step(self.step_size) or step_sizes.Constant(1.0)
        noise = float(self.noise or 0.0)  # it is given
        return Stochastic(phis, self._blocks, self.batch_size, noise, step, points, self.seed)
