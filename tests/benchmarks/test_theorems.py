"""The papers' algorithms have the rates of their theorems, with fewer steps than `benchmarks.theorems` takes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import theorems


@pytest.mark.parametrize("product", [1.0, 1.5])
@pytest.mark.parametrize("name", theorems.CLASSES)
def test_the_error_falls_as_one_over_t(name: str, product: float) -> None:
    curve, reused = theorems.doubly_stochastic(name, product, steps=1500, seeds=4)
    assert -1.35 < curve.slope < -0.75
    assert curve.error[-1] < 6e-4  # the mean square of f* is 4.6e-3
    assert reused == {"DSG": 0, "UDSG": 750}.get(name, reused)
    assert name != "CDSG" or 0 < reused < 50


def test_f_star_minimises_the_risk() -> None:
    """In its own terms: each coefficient of the kernel is the mean derivative there over -λ."""
    X, target, best = theorems.kernel_ridge()
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=-1) / (2 * theorems.SIGMA**2))
    np.testing.assert_allclose(K @ (target - best) / (theorems.L2 * len(X)), best, atol=1e-12)
    assert (best**2).mean() > 4e-3


def test_the_printed_check_diverges_more_often_than_the_derived_one() -> None:
    (printed, old), (derived, fewer) = (theorems.diverging(1.0, 8, check, 30) for check in ("printed", "derived"))
    assert printed > 0.2 > derived
    assert old > fewer


@pytest.mark.parametrize(("m", "q"), [(10, 2), (1, 10)])
def test_dspdc_contracts_as_theorem_1_says(m: int, q: int) -> None:
    curve, share = theorems.primal_dual(m, q, 6, 4)
    assert -1.6 < curve.rate < -1.0
    assert 0.3 < share < 1.0


def test_asy_dsskl_contracts_as_theorem_1_says() -> None:
    curve, gamma, promised = theorems.sparse(0.0, 500, 2)
    assert 0.001 < gamma < 0.01
    assert 5.0 * promised < curve.rate < 2.0 * promised < 0.0
