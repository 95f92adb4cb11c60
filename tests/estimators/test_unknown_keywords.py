"""An unknown keyword, a kernel that is not an instance and a changed parameter are refused with a text that helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from river import evaluate, metrics

from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    GaussianProcessRegressor,
    KernelClassifier,
    KernelDensityRatio,
    KernelDriftDetector,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    RandomFeatures,
    kernels,
)

PREDICTIONS: dict[str, Callable[[], Any]] = {
    "classifier": lambda: KernelClassifier().predict_one,
    "probabilities": lambda: KernelClassifier().predict_proba_one,
    "regressor": lambda: KernelRegressor().predict_one,
    "several targets": lambda: KernelMultiTargetRegressor().predict_one,
    "several labels": lambda: KernelMultiLabelClassifier().predict_one,
    "probabilities of several": lambda: KernelMultiLabelClassifier().predict_proba_one,
    "intervals": lambda: ConformalRegressor(KernelRegressor()).predict_one,
    "sets": lambda: ConformalClassifier(KernelClassifier()).predict_one,
    "probabilities of sets": lambda: ConformalClassifier(KernelClassifier()).predict_proba_one,
    "Gaussian process": lambda: GaussianProcessRegressor().predict_one,
    "ratio": lambda: KernelDensityRatio().predict_one,
    "novelty": lambda: KernelNoveltyDetector().score_one,
}


@pytest.mark.parametrize("make", PREDICTIONS.values(), ids=PREDICTIONS)
def test_a_prediction_refuses_unknown_keywords(make: Callable[[], Any]) -> None:
    for keyword in ("nonsense", "with_interval"):
        with pytest.raises(TypeError, match=f"'{keyword}'"):
            make()({"a": 1.0}, **{keyword: True})


def test_weights_of_a_stream_are_for_learning_alone() -> None:
    stream = [({"a": float(i % 7)}, i % 7 > 3, {"w": 2.0}) for i in range(100)]
    assert evaluate.progressive_val_score(stream, KernelClassifier(), metrics.Accuracy()).get() > 0.5


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (kernels.Gaussian, "Gaussian"),
        (kernels.Polynomial, "Polynomial"),
        ("rbf", "Gaussian"),
        ("gaussian", "Gaussian"),
        ("Laplacian", "Laplacian"),
    ],
)
@pytest.mark.parametrize("make", [KernelClassifier, GaussianProcessRegressor, KernelNoveltyDetector])
def test_a_kernel_that_is_no_instance_is_named(make: Any, kernel: Any, name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"an instance is expected, as kernels.{name}()")):
        make(kernel=kernel)


@pytest.mark.parametrize("kernel", [3, "nonsense", int, kernels.Kernel])
def test_other_values_have_no_hint(kernel: Any) -> None:
    with pytest.raises(ValueError, match=r"one of streamkernel.kernels or None, got [^;]*$"):
        KernelRegressor(kernel=kernel)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (KernelClassifier, "l2"),
        (KernelRegressor, "tau"),
        (KernelMultiTargetRegressor, "max_features"),
        (KernelMultiLabelClassifier, "loss"),
        (KernelDensityRatio, "learner"),
        (KernelNoveltyDetector, "nu"),
        (GaussianProcessRegressor, "noise"),
        (KernelDriftDetector, "window"),
        (lambda: RandomFeatures(kernels.Gaussian()), "n_features"),
    ],
)
def test_a_parameter_does_not_change_after_the_model_is_made(make: Callable[[], Any], name: str) -> None:
    model = make()
    before = getattr(model, name)
    with pytest.raises(
        AttributeError, match=rf"Expected {name} of {type(model).__name__} to stay .* got 7: model\.clone"
    ):
        setattr(model, name, 7)
    assert getattr(model, name) == before
    assert model._get_params()[name] == before
