"""Many inputs in one unit: when it is chosen, what the scaled values are, and that it is kept in files and exports."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from streams import as_dicts, content, learn

from streamkernel import KernelClassifier, KernelRegressor, MergeError, load
from streamkernel.estimators.internals import scales_of
from streamkernel.features import scaling
from streamkernel.features.counter_rng import hash64
from streamkernel.features.rows import Rows
from streamkernel.interop import to_numpy
from streamkernel.interop.numpy_predictor import Predictor

WIDTH = 160
SMALL = {"max_features": 1024}


def embedded(n=700, seed=0, width=WIDTH, of_small=False):
    """Return inputs with deviations of 1, 1/2, 1/3, ..., and classes by the first ones, or by the last ones."""
    generator = np.random.default_rng(seed)
    X = 3.0 + generator.normal(size=(n, width)) / np.arange(1, width + 1)
    at = slice(-12, None) if of_small else slice(12)
    kinds = np.argmax(generator.normal(size=(n, 3)) * 0.2 + ((X - 3.0) * np.arange(1, width + 1))[:, at] @ WAYS, axis=1)
    return as_dicts(X), kinds.tolist()


WAYS = np.random.default_rng(7).normal(size=(12, 3))


def unit(model):
    """Return the common unit in use, 0 if each input has its own."""
    return float(scales_of(model).state.counts["common"][0])


def accuracy(model, xs, ys):
    hits = []
    for x, y in zip(xs, ys, strict=True):
        hits.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    return np.mean(hits[256:])


def test_one_unit_serves_inputs_whose_large_values_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    xs, ys = embedded()
    model = KernelClassifier(**SMALL)
    found = accuracy(model, xs, ys)
    assert unit(model) > 0.0
    monkeypatch.setattr(scaling, "is_shared", lambda *_: False)
    assert found > accuracy(KernelClassifier(**SMALL), xs, ys) + 0.1


@pytest.mark.parametrize("options", [{"of_small": True}, {"width": 127}])
def test_inputs_keep_their_units_if_small_ones_matter_or_they_are_few(options) -> None:
    xs, ys = embedded(300, **options)
    assert unit(learn(KernelClassifier(**SMALL), xs, ys)) == 0.0


def test_scaled_values_are_in_proportion_to_the_inputs() -> None:
    """The compression beyond √3 deviations is that of each input alone; rare names keep their scales."""
    xs, ys = embedded(300)
    xs = [x | ({"rare": 1.0} if i % 9 == 0 else {}) for i, x in enumerate(xs)]
    model = learn(KernelClassifier(**SMALL), xs, ys)
    scales, directions = scales_of(model), model._learner.directions
    one, other, with_rare = (dict.fromkeys(xs[1], 3.0 + v) for v in (0.0, 1e-3, 0.0))
    a, b = (scales(directions.row(x)).values for x in (one, other))
    assert (b - a) * unit(model) == pytest.approx(np.full(WIDTH, 1e-3))
    rare = scales(directions.row(with_rare | {"rare": 1.0})).values
    assert np.setdiff1d(rare, a) == pytest.approx([(1 / 9) ** 0.25 / 0.6], rel=0.2)


def test_files_and_exports_keep_the_unit(tmp_path: Path) -> None:
    xs, ys = embedded(400)
    model = learn(KernelClassifier(**SMALL), xs, ys)
    model.save(tmp_path / "model.safetensors")
    twin = load(tmp_path / "model.safetensors")
    assert unit(twin) == unit(model) > 0.0
    assert content(learn(twin, xs[:50], ys[:50])) == content(learn(model, xs[:50], ys[:50]))
    to_numpy(model, tmp_path / "model.npz")
    predictor = Predictor(tmp_path / "model.npz")
    for x in xs[:30]:
        assert predictor.predict_proba_one(x) == pytest.approx(model.predict_proba_one(x), abs=1e-4)


@pytest.mark.parametrize("unusable", [-1.0, 1e-300, np.nan, 1e300])
def test_a_crafted_unit_is_refused(unusable) -> None:
    xs, ys = embedded(300)
    scales = scales_of(learn(KernelClassifier(**SMALL), xs, ys))
    tensors = scales.tensors() | {"scales.common": np.array([unusable])}
    with pytest.raises(ValueError, match=r"expected .* scales\."):
        scaling.Scales().restore(tensors)


def test_models_in_one_unit_merge_if_they_continue_from_one() -> None:
    xs, ys = embedded()
    model = learn(KernelClassifier(**SMALL), xs[:300], ys[:300])
    one, other = (pickle.loads(pickle.dumps(model)) for _ in range(2))
    learn(one, xs[300:400], ys[300:400])
    learn(other, xs[400:500], ys[400:500])
    one.merge(other, base=model)
    assert unit(one) == unit(model) > 0.0
    own = pickle.loads(pickle.dumps(model))
    own._state.scales.state.counts["common"] = 0.0
    with pytest.raises(MergeError, match="equal scales of their inputs"):
        one.merge(own)


def test_targets_of_numbers_decide_as_well() -> None:
    xs, _ = embedded(300)
    large, small = ([scale * (x[name] - 3.0) for x in xs] for name, scale in (("x0", 1.0), (f"x{WIDTH - 1}", WIDTH)))
    assert unit(learn(KernelRegressor(**SMALL), xs, large)) > 0.0
    assert unit(learn(KernelRegressor(**SMALL), xs, small)) == 0.0


def test_derivatives_are_those_of_the_inputs_as_given() -> None:
    xs, _ = embedded(300)
    model = learn(KernelRegressor(**SMALL), xs, [x["x0"] - 3.0 for x in xs])
    learner, scales, step = model._learner, scales_of(model), 1e-3
    assert unit(model) > 0.0

    def f(x):
        row = learner.directions.row(x)
        return float((learner.scores(row, scales) - learner.others(row, scales)).item())

    x = xs[3]
    found = learner.derivatives(learner.directions.row(x), scales)[0]
    by_name = dict(zip(sorted(x, key=hash64), found, strict=True))
    for name in ("x0", "x1", "x5"):
        expected = (f(x | {name: x[name] + step}) - f(x | {name: x[name] - step})) / (2.0 * step)
        assert by_name[name] == pytest.approx(expected, rel=0.02, abs=2e-3)


def test_all_first_examples_decide_again() -> None:
    """What fewer of them have decided does not count."""
    xs, ys = embedded(300)
    model = learn(KernelClassifier(**SMALL), xs, ys)
    scales, rows = scales_of(model), Rows.stack([model._learner.directions.row(x) for x in xs[:128]])
    large, small = (np.array([[x[f"x{j}"] for j in at] for x in xs[:128]]) for at in (range(3), range(150, 160)))
    assert scales.in_shared_unit(rows, large).state.counts["common"] == pytest.approx(unit(model))
    own = scales.in_shared_unit(rows, small * 100.0)
    assert own.state.counts["common"] == 0.0
    assert own(rows).values.std() == pytest.approx(1.0, abs=0.1)
