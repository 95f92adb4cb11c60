"""River's own checks of an estimator, on every estimator in many configurations."""

from __future__ import annotations

import math
from unittest import mock

import pytest
from river import compose, datasets, linear_model, preprocessing
from river.checks import yield_checks
from streams import nested

from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    GaussianProcessRegressor,
    KernelClassifier,
    KernelDensityRatio,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    RandomFeatures,
    StandardScaler,
    rules,
    step_sizes,
)
from streamkernel.kernels import ArcCosine, Gaussian, Matern, Polynomial
from streamkernel.research import StochasticGaussianProcessRegressor

SMALL = {"features_per_seed": 16, "max_features": 40}
FIXED = {"kernel": Gaussian(20.0)}
MODELS = {
    "classifier": KernelClassifier(),
    "DSG, softmax, regenerated": KernelClassifier(
        **nested(learner="dsg", rule=rules.DSG(), loss="softmax", cache_bytes=0, **SMALL, **FIXED)
    ),
    "UDSG, hinge, batches": KernelClassifier(
        **nested(learner="dsg", rule=rules.UDSG(2, 3), batch_size=7, loss="hinge", **SMALL)
    ),
    "CDSG, squared hinge, averaged": KernelClassifier(
        **nested(
            learner="dsg", rule=rules.CDSG(math.inf), averaging=True, loss="squared_hinge", l2=0.001, **SMALL, **FIXED
        )
    ),
    "smooth hinge": KernelClassifier(**nested(learner="dsg", loss="smooth_hinge", **SMALL)),
    "UDSG, sigmoid": KernelClassifier(**nested(learner="dsg", rule=rules.UDSG(), loss="sigmoid", **SMALL)),
    "regressor": KernelRegressor(),
    "quantile": KernelRegressor(learner="dsg", loss="quantile", tau=0.9),
    "absolute, averaged batches": KernelRegressor(
        **nested(learner="dsg", averaging=True, batch_size=7, loss="absolute", **SMALL)
    ),
    "epsilon-insensitive": KernelRegressor(
        **nested(learner="dsg", step_size=step_sizes.Constant(0.1), loss="epsilon_insensitive", **SMALL, **FIXED)
    ),
    "correntropy": KernelRegressor(**nested(learner="dsg", loss="correntropy", **SMALL, **FIXED)),
    "DSG, Huber, batches": KernelRegressor(
        **nested(learner="dsg", rule=rules.DSG(), batch_size=7, loss="huber", cache_bytes=0, **SMALL)
    ),
    "kernels, preconditioned": KernelRegressor(
        **nested(
            kernel=Gaussian("median") * ArcCosine(1) + 0.5 * Matern(1.5, 20.0),
            learner="dsg",
            preconditioner=0.1,
            batch_size=3,
            **SMALL,
        )
    ),
    "polynomial": KernelClassifier(**nested(kernel=Polynomial(2), learner="newton", **SMALL)),
    "UDSG, averaged": KernelRegressor(
        **nested(
            learner="dsg",
            rule=rules.UDSG(),
            averaging=True,
            step_size=step_sizes.InverseTime(100.0),
            l2=0.01,
            **SMALL,
            **FIXED,
        )
    ),
    "novelty detector": KernelNoveltyDetector(),
    "UDSG, novelty, batches": KernelNoveltyDetector(
        **nested(learner="novelty", rule=rules.UDSG(), batch_size=3, nu=0.2, **SMALL)
    ),
    "scaled novelty detector": preprocessing.StandardScaler()
    | KernelNoveltyDetector(**nested(learner="novelty", **SMALL, **FIXED)),
    "density ratio": KernelDensityRatio(divergence="novelty", rho=-1.0),
    "scaler": StandardScaler(),
    "random features": RandomFeatures(Gaussian(3.0), n_features=8),
    "random features, median": RandomFeatures(Gaussian("median"), n_features=8, seed=5),
    "Gaussian process": GaussianProcessRegressor(n_features=32),
    "Gaussian process, noise given": GaussianProcessRegressor(noise=0.5, n_features=16, cache_bytes=0, **FIXED),
    "Gaussian process, operator": StochasticGaussianProcessRegressor(
        noise=0.5, variance="operator", n_features=16, features_per_seed=5, batch_size=7
    ),
    "Gaussian process, points": StochasticGaussianProcessRegressor(
        noise=0.5, variance="points", points=[{"a": 1.0}], n_features=16, batch_size=7, **FIXED
    ),
    "several targets": KernelMultiTargetRegressor(),
    "several targets, Huber": KernelMultiTargetRegressor(kernel=Gaussian(20.0), loss="huber", max_features=64),
    "several labels": KernelMultiLabelClassifier(max_features=64),
    "intervals": ConformalRegressor(KernelRegressor(max_features=64)),
    "intervals around a pipeline": ConformalRegressor(
        preprocessing.StandardScaler() | linear_model.LinearRegression(), coverage=0.5
    ),
    "sets": ConformalClassifier(KernelClassifier(max_features=64)),
    "scaled classifier": preprocessing.StandardScaler() | KernelClassifier(**nested(**SMALL)),
    "scaled Gaussian process": preprocessing.StandardScaler() | GaussianProcessRegressor(n_features=16),
    "scaled regressor": preprocessing.StandardScaler() | KernelRegressor(**nested(**SMALL)),
}


MORE = {
    "smooth hinge",
    "UDSG, sigmoid",
    "quantile",
    "epsilon-insensitive",
    "correntropy",
    "DSG, Huber, batches",
    "UDSG, averaged",
}
"""Models that differ from others only in the loss, which no check uses, or in options that other models cover."""


def checks():
    """Yield every check of every model, except for one that no pipeline with a scaler passes.

    `make test` leaves out `MORE`, and the growth of memory on more than one data set.

    River's pipelines show a scaler the whole data frame before its first row is scaled, so what a model behind it
    learns from many rows differs from what it learns from one after the other.
    """
    for name, model in MODELS.items():
        before = ""
        for number, check in enumerate(yield_checks(model)):
            if isinstance(model, compose.Pipeline) and check.__name__ == "check_learn_many_matches_learn_one":
                continue
            is_more = name in MORE or (check.__name__ == "check_bounded_memory_growth" == before)
            marks = [pytest.mark.slow] if is_more else []
            yield pytest.param(model, check, id=f"{name}-{check.__name__}-{number}", marks=marks)
            before = check.__name__


class Flares(datasets.SolarFlare):
    """Solar flares as labels: whether each class of flares occurred."""

    def __iter__(self):
        return ((x, {name: n > 0 for name, n in y.items()}) for x, y in super().__iter__())


def offline():
    """Return all checks; River's data sets of anomalies and of several labels are downloads, others ship with it."""
    with mock.patch.object(datasets, "CreditCard", datasets.Shuttle), mock.patch.object(datasets, "Music", Flares):
        return list(checks())


@pytest.mark.parametrize(("model", "check"), offline())
def test_river_check(model, check):
    check(model.clone())


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_check_of_ours_is_skipped(model):
    for step in getattr(model, "steps", {"": model}).values():
        if type(step).__module__.startswith("streamkernel"):
            assert not step._unit_test_skips()
