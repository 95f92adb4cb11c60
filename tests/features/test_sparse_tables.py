"""A sparse matrix is learned like the equal dense array, and never becomes dense."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from streams import LEARNERS, content

from streamkernel import GaussianProcessRegressor, InputError, KernelClassifier, KernelNoveltyDetector, KernelRegressor
from streamkernel.features import frames
from streamkernel.features.frames import as_csr
from streamkernel.kernels import ArcCosine, Gaussian, Laplacian, Polynomial, SkewedChiSquared

SMALL: dict[str, Any] = {"max_features": 64}
generator = np.random.default_rng(7)
X = generator.normal(size=(400, 9)) * (generator.random((400, 9)) < [1.0, 0.9, 0.6, 0.5, 0.4, 0.2, 0.1, 0.01, 0.0])
X[generator.random(X.shape) < 0.02] = np.nan
X += 0.0  # no -0.0, which no sparse matrix has
Y = np.nan_to_num(X[:, 0] + X[:, 1] * X[:, 2]) > 0.0
KINDS = [sp.csr_matrix, sp.csc_array, sp.coo_array]

MODELS = {
    "default": lambda: KernelClassifier(**SMALL),
    "joint": lambda: KernelClassifier(learner=LEARNERS["joint"], **SMALL),
    "first order": lambda: KernelClassifier(learner="dsg", **SMALL),
    "a kernel": lambda: KernelClassifier(Gaussian(1.5) + 0.5 * Polynomial(2), **SMALL),
    "a kernel of names": lambda: KernelClassifier(Laplacian(2.0).on(0, 3) * ArcCosine(1), learner="dsg", **SMALL),
    "a transform": lambda: KernelClassifier(Gaussian(1.0).of("unit"), learner="dsg", **SMALL),
    "balanced": lambda: KernelClassifier(class_weight="balanced", **SMALL),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_sparse_and_dense_give_the_same_bits(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ENTRIES", 500)  # blocks of 55 rows
    dense = model()
    dense.learn_many(X, Y)
    for kind in KINDS:
        sparse = model()
        sparse.learn_many(kind(X[:130]), Y[:130])
        sparse.learn_many(kind(X[130:]), Y[130:])
        assert content(sparse) == content(dense)
        np.testing.assert_array_equal(sparse.predict_proba_many(kind(X)), dense.predict_proba_many(X))
        assert sparse.predict_many(kind(X)).tolist() == dense.predict_many(X).tolist()


def test_other_models_read_sparse_matrices_too() -> None:
    for make in (lambda: KernelRegressor(**SMALL), lambda: GaussianProcessRegressor(n_features=32)):
        dense, sparse = make(), make()
        dense.learn_many(X, Y * 1.0)
        sparse.learn_many(sp.csr_array(X), Y * 1.0)
        np.testing.assert_array_equal(sparse.predict_many(sp.csr_array(X)), dense.predict_many(X))
    dense, sparse = (KernelNoveltyDetector(**SMALL) for _ in range(2))
    dense.learn_many(X)
    sparse.learn_many(sp.csr_array(X))
    np.testing.assert_array_equal(sparse.score_many(sp.csr_array(X)), dense.score_many(X))


def test_a_wide_matrix_is_learned_as_dictionaries_of_stored_entries() -> None:
    wide = sp.random_array((300, 5000), density=0.004, format="csr", rng=generator)
    y = np.asarray(wide[:, :2500].sum(axis=1)).ravel() > np.asarray(wide[:, 2500:].sum(axis=1)).ravel()
    for options in ({}, {"learner": "dsg"}):
        one, many = KernelClassifier(**SMALL, **options), KernelClassifier(**SMALL, **options)
        for i in range(300):
            row = wide[[i]].tocoo()
            one.learn_one(dict(zip(row.coords[1].tolist(), row.data.tolist(), strict=True)), bool(y[i]))
        many.learn_many(wide[:7], y[:7])
        many.learn_many(wide[7:], y[7:])
        assert content(many) == content(one)


@pytest.mark.parametrize("options", [{}, {"learner": "dsg"}, {"kernel": Gaussian(1.0)}], ids=str)
def test_a_matrix_of_200_000_columns_does_not_become_dense(options: Any) -> None:
    wide = sp.random_array((500, 200_000), density=1e-4, format="csr", rng=generator)  # 800 MB as an array
    model = KernelClassifier(**SMALL, cache_bytes=1 << 20, **options)
    model.learn_many(wide[:50], np.arange(50) % 2 == 0)  # compiles
    tracemalloc.start()
    model.learn_many(wide, np.arange(500) % 2 == 0)
    model.predict_many(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6


def test_stored_zeros_and_duplicates_are_summed() -> None:
    given = sp.coo_array(([1.0, 2.0, 0.0, 5.0, -5.0], ([0, 0, 0, 1, 1], [2, 2, 0, 1, 1])), shape=(2, 3))
    found = as_csr(given)
    assert found.indices.tolist() == [2]
    assert found.data.tolist() == [3.0]
    stored = sp.csr_array(([0.0, 1.0], [0, 1], [0, 2]), shape=(1, 3))
    as_csr(stored)
    assert stored.nnz == 2  # what was given stays as it is


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sp.csr_array(np.array([[1.0, 0.0], [0.0, np.inf]])), r"X\[1\], row 1"),
        (sp.csr_array(np.array([[1.0, 0.0], [-9.0, 1.0]])), r"X\[0\], row 1"),
        (sp.csr_array(np.array([[1.0j, 0.0], [1.0, 0.0]])), "sparse matrix of numbers"),
        (sp.csr_array((2, 0)), "at least one feature"),
        (sp.csr_array(np.ones((3, 2))), "2 targets and 3 rows"),
    ],
    ids=["infinite", "outside of the domain", "complex", "no columns", "lengths"],
)
def test_unusable_matrices_are_rejected_and_nothing_is_learned(X: Any, message: str) -> None:
    for model in (KernelClassifier(SkewedChiSquared(1.0), **SMALL), KernelClassifier(**SMALL)):
        if "X" in message and X.dtype.kind == "f" and np.isfinite(X.data).all() and model.kernel is None:
            continue
        before = content(model)
        with pytest.raises((InputError, ValueError), match=message):
            model.learn_many(X, [True, False])
        assert content(model) == before


def test_rows_without_entries_are_learned() -> None:
    model = KernelRegressor(**SMALL)
    model.learn_many(sp.csr_array((3000, 2000)), np.ones(3000))
    assert model.predict_many(sp.csr_array((2, 2000))) == pytest.approx([1.0, 1.0])


def malformed(kind: Any, **arrays: Any) -> Any:
    """Return a sparse matrix of 3 rows with other arrays, as SciPy lets them be set."""
    found = kind(np.eye(3))
    for name, values in arrays.items():
        setattr(found, name, values if name == "data" else np.array(values, np.int32))
    return found


MALFORMED = {
    "a negative end": lambda: malformed(sp.csr_array, indptr=[0, -1, 2, 3]),
    "a negative last end": lambda: malformed(sp.csr_array, indptr=[0, 1, 2, -1]),
    "descending ends": lambda: malformed(sp.csc_array, indptr=[0, 3, 1, 3]),
    "a missing end": lambda: malformed(sp.csr_array, indptr=[0, 1, 3]),
    "an end beyond the entries": lambda: malformed(sp.csr_array, indptr=[0, 1, 2, 9]),
    "a first end that is not 0": lambda: malformed(sp.csr_array, indptr=[1, 1, 2, 3]),
    "a negative column": lambda: malformed(sp.csr_array, indices=[0, -1, 2]),
    "a large row": lambda: malformed(sp.csc_array, indices=[0, 1, 99]),
    "a large column of blocks": lambda: malformed(sp.bsr_array, indices=[0, 1, 99]),
    "too few columns": lambda: malformed(sp.csr_array, indices=[0, 1]),
    "too few values": lambda: malformed(sp.csr_array, data=np.ones(2)),
    "a negative row": lambda: malformed(sp.coo_matrix, row=[0, -5, 2]),
    "a large column": lambda: malformed(sp.coo_matrix, col=[0, 1, 1 << 30]),
}


@pytest.mark.parametrize("options", [{}, {"kernel": Gaussian(1.0).of("unit")}, {"learner": "dsg"}], ids=str)
@pytest.mark.parametrize("make", MALFORMED.values(), ids=MALFORMED)
def test_entries_outside_of_the_matrix_are_refused(make: Any, options: Any) -> None:
    model = KernelRegressor(**SMALL, **options)
    model.learn_many(np.eye(3), np.arange(3.0))
    before = content(model)
    for call in (model.predict_many, lambda X: model.learn_many(X, np.arange(3.0))):
        with pytest.raises(InputError, match="all entries inside"):
            call(make())
    assert content(model) == before


@pytest.mark.parametrize("kind", [sp.bsr_array, sp.dia_array, sp.dok_array, sp.lil_array])
def test_other_sparse_formats_are_read(kind: Any) -> None:
    model = KernelRegressor(**SMALL, learner="dsg")
    model.learn_many(kind(np.eye(3)), np.arange(3.0))
    assert model.predict_many(kind(np.eye(3))).tolist() == model.predict_many(np.eye(3)).tolist()
