"""The checks of scikit-learn itself, of which those that fail are declared here with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from streamkernel.sklearn import KernelClassifier, KernelNoveltyDetector, KernelRegressor

IN_ORDER = (
    "an online learner depends on the order of rows, and a row of weight 2 is one step where two rows are two; "
    "tests/estimators/test_weights.py says how close they are"
)
EXPECTED_FAILED = {
    "check_sample_weight_equivalence_on_dense_data": IN_ORDER,
    "check_sample_weight_equivalence_on_sparse_data": IN_ORDER,
}
EXPECTED_FAILED_OF = {
    "detector": {},
}
"""Other ones than `EXPECTED_FAILED`, for some estimators."""

NOT_FOR_US = {"check_array_api_input"}
"""Checks that scikit-learn skips: they need arrays other than NumPy's, which are switched on before its import."""

ESTIMATORS = {
    "classifier": KernelClassifier(),
    "classifier, first order": KernelClassifier(learner="dsg", loss="smooth_hinge"),
    "regressor": KernelRegressor(),
    "regressor, first order": KernelRegressor(learner="dsg"),
    "detector": KernelNoveltyDetector(),
}


def name_of(check: Any) -> str:
    return str(getattr(check, "func", check).__name__)


def cases() -> Iterator[Any]:
    for name, estimator in ESTIMATORS.items():
        failing = EXPECTED_FAILED_OF.get(name, EXPECTED_FAILED)
        for one, check in estimator_checks_generator(estimator):
            reason = failing.get(name_of(check))
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            if name.endswith("first order"):  # the wrappers are those of the default learner
                marks.append(pytest.mark.slow)
            if name_of(check) not in NOT_FOR_US:
                yield pytest.param(one, check, marks=marks, id=f"{name}-{name_of(check)}")


@pytest.mark.parametrize(("estimator", "check"), [*cases()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_check_passes(estimator: Any, check: Any) -> None:
    check(estimator)
