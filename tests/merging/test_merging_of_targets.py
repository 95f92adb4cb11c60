"""Merging of models of several targets: each target as in merged models of one target, order of targets, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from streams import as_dicts, content

from streamkernel import (
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
    MergeError,
    kernels,
    learners,
    load,
)
from streamkernel.estimators import model_merging

N, NAMES = 600, "abc"
GENERATOR = np.random.default_rng(7)
X = GENERATOR.normal(size=(N, 3))
F = np.stack([np.sin(2.0 * X[:, 0]), X[:, 1] * X[:, 2], X[:, 0] - X[:, 2]], axis=1)
F += 0.1 * GENERATOR.normal(size=(N, 3))
XS = as_dicts(X)
NUMBERS = [dict(zip(NAMES, row, strict=True)) for row in (F * [1.0, 1000.0, 0.01] + [5.0, 0.0, 3.0]).tolist()]
LABELS = [dict(zip(NAMES, row, strict=True)) for row in (F > [0.0, 0.5, 1.0]).tolist()]
FIXED = {
    "kernel": kernels.Gaussian(1.0),
    "learner": learners.Newton(joint=True, batch_size=16, forgetting=1.0),
    "max_features": 64,
}


def learned(model, ys, first, last):
    for x, y in zip(XS[first:last], ys[first:last], strict=True):
        model.learn_one(x, y)
    return model


def branches(model, ys):
    """Return two copies of a model that went on apart."""
    one, other = (pickle.loads(pickle.dumps(model)) for _ in range(2))
    return learned(one, ys, 300, 450), learned(other, ys, 450, N)


@pytest.mark.parametrize("has_base", [False, True])
def test_each_target_is_merged_as_in_models_of_one_target(has_base):
    """Up to rounding: where steps are of equal length, a target is learned as if it were alone."""

    def merged(make, ys):
        base = learned(make(**FIXED), ys, 0, 300)
        if has_base:
            one, other = branches(base, ys)
            return one.merge(other, base=base)
        return base.merge(learned(make(**FIXED), ys, 300, N))

    together = merged(KernelMultiTargetRegressor, NUMBERS)
    assert together.n_steps == N
    for name in NAMES:
        alone = merged(KernelRegressor, [y[name] for y in NUMBERS])
        size = np.std([y[name] for y in NUMBERS])
        for x in XS[:20]:
            assert together.predict_one(x)[name] == pytest.approx(alone.predict_one(x), abs=1e-6 * size)


@pytest.mark.parametrize(("make", "ys"), [(KernelMultiTargetRegressor, NUMBERS), (KernelMultiLabelClassifier, LABELS)])
def test_replicas_of_default_models_are_merged_and_continue(make, ys, tmp_path):
    """They forget no target: each is predicted almost as well as by one model that learned all."""
    base = learned(make(max_features=64), ys, 0, 300)
    one, other = branches(base, ys)
    parts = [model_merging.summarize(model) for model in (one, other)]
    assert 0.0 < model_merging.spread_of(parts) < 2.0
    merged, whole = one.merge(other, base=base), learned(base, ys, 300, N)
    scores = np.array([[[*model._scores_by_target(x).values()] for x in XS] for model in (merged, whole)])
    assert (np.abs(scores[0] - scores[1]).mean(axis=0) < 0.3 * scores[1].std(axis=0)).all()
    merged.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for model in (merged, again):
        learned(model, ys, 0, 40)
    assert content(again) == content(merged)


def test_targets_in_another_order_are_the_same():
    """To the bit in each target, up to the order in which derivatives are added up."""
    turned = [dict(reversed(y.items())) for y in NUMBERS]
    found = []
    for second in (NUMBERS, turned):
        one = learned(KernelMultiTargetRegressor(**FIXED), NUMBERS, 0, 300)
        found.append(one.merge(learned(KernelMultiTargetRegressor(**FIXED), second, 300, N)))
    assert found[1].targets == tuple(NAMES)
    for x in XS[:20]:
        assert found[1].predict_one(x) == pytest.approx(found[0].predict_one(x), rel=1e-6)


def test_other_targets_are_refused_and_a_new_model_adopts_them():
    model = learned(KernelMultiTargetRegressor(**FIXED), NUMBERS, 0, 256)
    other = learned(KernelMultiTargetRegressor(**FIXED), [{"a": y["a"], "d": y["b"]} for y in NUMBERS], 0, 256)
    before = content(model)
    with pytest.raises(MergeError, match=r"the same targets, got \['a', 'b', 'c'\] and \['a', 'd'\]"):
        model.merge(other)
    with pytest.raises(MergeError, match="the same class"):
        model.merge(learned(KernelMultiLabelClassifier(**FIXED), LABELS, 0, 256))
    assert content(model) == before
    new = KernelMultiTargetRegressor(**FIXED).merge(model)
    assert new.targets == tuple(NAMES)
    assert new.predict_one(XS[0]) == pytest.approx(model.predict_one(XS[0]), rel=1e-6)
