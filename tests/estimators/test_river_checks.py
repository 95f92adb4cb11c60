"""River's own checks of an estimator, on every estimator in many configurations, as it yields them."""

from __future__ import annotations

from unittest import mock

import pytest
from river import compose, datasets, preprocessing
from river.checks import yield_checks

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelDensityRatio,
    KernelNoveltyDetector,
    KernelRegressor,
    RandomFeatures,
    rules,
    step_sizes,
)
from streamkernel.kernels import ArcCosine, Gaussian, Matern, Polynomial

SMALL = {"features_per_seed": 16, "max_features": 40}
FIXED = {"kernel": Gaussian(20.0)}
MODELS = {
    "classifier": KernelClassifier(),
    "DSG, softmax, regenerated": KernelClassifier(rule=rules.DSG(), loss="softmax", cache_bytes=0, **SMALL, **FIXED),
    "UDSG, hinge, batches": KernelClassifier(rule=rules.UDSG(2, 3), loss="hinge", batch_size=7, **SMALL),
    "CDSG, squared hinge, averaged": KernelClassifier(
        rule=rules.CDSG(), loss="squared_hinge", average=True, l2=1e-3, **SMALL, **FIXED
    ),
    "smooth hinge": KernelClassifier(loss="smooth_hinge", **SMALL),
    "UDSG, sigmoid": KernelClassifier(rule=rules.UDSG(), loss="sigmoid", **SMALL),
    "regressor": KernelRegressor(),
    "quantile": KernelRegressor(loss="quantile", tau=0.9),
    "absolute, averaged batches": KernelRegressor(loss="absolute", average=True, batch_size=7, **SMALL),
    "epsilon-insensitive": KernelRegressor(loss="epsilon_insensitive", step=step_sizes.Constant(0.1), **SMALL, **FIXED),
    "correntropy": KernelRegressor(loss="correntropy", **SMALL, **FIXED),
    "DSG, Huber, batches": KernelRegressor(rule=rules.DSG(), loss="huber", batch_size=7, cache_bytes=0, **SMALL),
    "kernels, preconditioned": KernelRegressor(
        kernel=Gaussian("median") * ArcCosine(1) + 0.5 * Matern(1.5, 20.0), preconditioning=0.1, batch_size=3, **SMALL
    ),
    "polynomial": KernelClassifier(kernel=Polynomial(2), **SMALL),
    "UDSG, averaged": KernelRegressor(
        rule=rules.UDSG(), average=True, l2=0.01, step=step_sizes.InverseTime(100.0), **SMALL, **FIXED
    ),
    "novelty detector": KernelNoveltyDetector(),
    "UDSG, novelty, batches": KernelNoveltyDetector(0.2, rule=rules.UDSG(), batch_size=3, **SMALL),
    "scaled novelty detector": preprocessing.StandardScaler() | KernelNoveltyDetector(**SMALL, **FIXED),
    "density ratio": KernelDensityRatio("novelty", -1.0),
    "random features": RandomFeatures(Gaussian(3.0), n_features=8),
    "random features, median": RandomFeatures(Gaussian("median"), n_features=8, seed=5),
    "Gaussian process": GaussianProcessRegressor(n_features=32),
    "Gaussian process, noise given": GaussianProcessRegressor(noise=0.5, n_features=16, cache_bytes=0, **FIXED),
    "Gaussian process, operator": GaussianProcessRegressor(
        noise=0.5, variance="operator", n_features=16, features_per_seed=5, batch_size=7
    ),
    "Gaussian process, points": GaussianProcessRegressor(
        noise=0.5, variance="points", points=[{"a": 1.0}], n_features=16, batch_size=7, **FIXED
    ),
    "scaled classifier": preprocessing.StandardScaler() | KernelClassifier(**SMALL),
    "scaled Gaussian process": preprocessing.StandardScaler() | GaussianProcessRegressor(n_features=16),
    "scaled regressor": preprocessing.StandardScaler() | KernelRegressor(**SMALL),
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
"""Models that differ from others in the loss, which no check looks at, or in a pair of options that others have too."""


def checks():
    """Yield every check of every model, but one that no scaler passes.

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


def offline():
    """Return all checks; River's data set of anomalies is a download, the Shuttle ships with it."""
    with mock.patch.object(datasets, "CreditCard", datasets.Shuttle):
        return list(checks())


@pytest.mark.parametrize(("model", "check"), offline())
def test_river_check(model, check):
    check(model.clone())


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_check_of_ours_is_skipped(model):
    for step in getattr(model, "steps", {"": model}).values():
        if type(step).__module__.startswith("streamkernel"):
            assert not step._unit_test_skips()
