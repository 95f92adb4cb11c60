"""A model that is pruned or refitted while it learns: the kept features, the resulting f, and unchanged bits."""

import copy
import dataclasses
import gc
import math
import threading

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from streams import nested
from waiting import wait_for

from streamkernel import (
    InputError,
    KernelClassifier,
    KernelRegressor,
    ModelFileError,
    kernels,
    learners,
    load,
    tensor_file,
    upkeep,
)
from streamkernel.estimators import model_file
from streamkernel.features.directions import Directions
from streamkernel.features.rows import Rows
from streamkernel.kernels.program import KernelProgram
from streamkernel.upkeep.work import distil

KERNELS = [
    kernels.Gaussian(1.0),
    kernels.Laplacian(1.0),
    kernels.Cauchy(1.0),
    kernels.Matern(1.5, 1.0),
    kernels.DotProduct(),
    kernels.ChiSquared(),
    kernels.ArcCosine(1),
    kernels.ExponentialSemigroup(1.0),
    kernels.MultiScale(kernels.Gaussian(1.0), (0.5, 1.0, 2.0)),
    kernels.Gaussian(0.7) * kernels.Laplacian(2.0) + 2.0 * kernels.DotProduct(),
]


def events(n, classes=0, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        x = rng.uniform(0.1, 1.0, 3)
        y = math.sin(6.0 * x[0]) + x[1] * x[2]
        yield dict(zip("abc", x.tolist(), strict=True)), (int(3.0 * abs(y)) % classes if classes else y)


def learnt(model, stream):
    for x, y in stream:
        model.learn_one(x, y)
    return model


def rows_of(function, stream):
    return Rows.stack([function.row(x) for x, _ in stream])


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_kept_features_are_those_that_were_drawn(kernel, cache_bytes):
    model = learnt(
        KernelRegressor(kernel, learner=learners.DSG(features_per_seed=8), max_features=48, cache_bytes=cache_bytes),
        events(60),
    )
    function, some = model._learner, [*events(9, seed=1)]
    outputs = function.directions.plan.outputs
    before = function.embed_rows(rows_of(function, some)).reshape(9, -1, outputs, 8)
    chosen = np.sort(np.random.default_rng(3).permutation(function.n_blocks * 8)[:16])
    twin = model._model.with_columns(1)
    kept = np.concatenate([function.features_at(chosen), [[function.next_number - 2, 6, 0]]])
    twin.restore(function.with_functions(np.zeros((16 * outputs, 2)), kept))
    after = twin.embed_rows(rows_of(twin, some)).reshape(9, -1, outputs, 8)
    for i, feature in enumerate(chosen):
        assert np.array_equal(after[:, i // 8, :, i % 8], before[:, feature // 8, :, feature % 8])
    again = twin.features_at(np.arange(16))  # of what was kept once, some is kept again
    assert np.array_equal(again, kept[:-1])


def test_blocks_after_the_kept_ones_are_new():
    plan = KernelProgram(kernels.Gaussian(1.0), seed=1)
    kept = np.array([[3, 2, 0], [0, 1, 0], [7, 0, 0], [7, 3, 0], [9, 4, 0]])
    packed, plain = Directions(plan, 4, 1 << 16, kept), Directions(plan, 4, 1 << 16)
    for directions in (packed, plain):
        directions.reserve(20)
        directions.row({"a": 1.0})
    assert packed.cache[0, 0, 0, :4].tolist() == [plain.cache[0, 0, 0, 4 * b + f] for b, f, _ in kept[:-1]]
    assert packed.cache[0, 0, 0, 4:8].tolist() == plain.cache[0, 0, 0, 40:44].tolist()  # block 1 + 9


@max_examples(20)
@given(st.integers(0, 1000))
def test_distilled_functions_are_ridge_regression(seed):
    rng = np.random.default_rng(seed)
    Z, H, weights = rng.normal(size=(150, 12)).astype(np.float32), rng.normal(size=(150, 2)), rng.uniform(0.1, 1, 150)
    found, factor = np.empty((2, 12)), np.empty((12, 12), np.float32)
    distil(Z, weights, H, 0.5, factor, found)
    A = (Z.T * weights) @ Z + 0.5 * np.eye(12)
    assert np.allclose(found, np.linalg.solve(A, (Z.T * weights) @ H).T, atol=1e-4)
    R = np.triu(factor).astype(float)
    assert np.allclose(R.T @ R, A, rtol=1e-4, atol=1e-3)


OPTIONS = [
    (KernelRegressor, 0, {"learner": "dsg", "max_features": 256}),
    (KernelRegressor, 0, {"max_features": 256}),
    (KernelClassifier, 2, {"learner": "newton", "joint": True, "max_features": 256, "features_per_seed": 64}),
    (KernelClassifier, 3, {"max_features": 256}),
    (KernelClassifier, 3, {"learner": "dsg", "max_features": 128, "averaging": True}),
    (KernelClassifier, 2, {"learner": "dsg", "max_features": 128, "batch_size": 5, "loss": "hinge"}),
]
SOON = upkeep.Pruning(every=400, window=300)


@pytest.mark.parametrize(("kind", "classes", "options"), OPTIONS)
def test_learning_depends_only_on_the_events(kind, classes, options, tmp_path):
    stream = [*events(1100, classes)]
    whole = learnt(kind(**nested(pruning=SOON, **options)), stream)
    assert whole.n_prunings >= 1
    asked = [x for x, _ in stream[:40]]
    want = [np.atleast_1d(whole._model.score(x)[0]).tolist() for x in asked]
    first, begin = kind(**nested(pruning=SOON, **options)), 0
    for cut in (300, 660, 700, 857, 900, 1099):  # before, at and after the beginning and the end of a job
        learnt(first, stream[begin:cut]).save(tmp_path / "model")
        begin = cut
        again = learnt(load(tmp_path / "model"), stream[cut:])
        assert [np.atleast_1d(again._model.score(x)[0]).tolist() for x in asked] == want, cut
        assert (again.n_features, again.n_prunings) == (whole.n_features, whole.n_prunings)
    import pandas as pd

    table, y = pd.DataFrame([x for x, _ in stream]), pd.Series([y for _, y in stream])
    many = kind(**nested(pruning=SOON, **options))
    for first in range(0, 1100, 257):
        many.learn_many(table[first : first + 257], y[first : first + 257])
    assert [np.atleast_1d(many._model.score(x)[0]).tolist() for x in asked] == want


@pytest.mark.parametrize(("kind", "classes", "options"), OPTIONS)
def test_the_result_replaces_the_model_after_learning_new_events(kind, classes, options):
    first, began, until = 256, 400, 600  # the first 256 events decide the bandwidth, and do not count
    stream = [*events(first + until, classes)]
    whole = learnt(kind(**nested(pruning=SOON, **options)), stream)
    plain = kind(**nested(pruning=SOON, **options))
    plain._model.state = dataclasses.replace(plain._state, upkeep=None)
    learnt(plain, stream[: first + began])
    upkeep.apply(SOON, plain, stream[first + began - SOON.window : first + began])
    learnt(plain, stream[first + began :])
    near = [
        np.abs(np.atleast_1d(whole._model.score(x)[0]) - np.atleast_1d(plain._model.score(x)[0])).max()
        for x, _ in stream[:50]
    ]
    if whole._state.scales is None:  # with scales, what was seen at other scales stays so in the window
        assert max(near) == 0.0
    assert max(near) < 0.5
    assert whole.n_features == plain.n_features


def test_a_class_that_appears_while_a_job_is_under_way(tmp_path):
    stream = [*events(1100, 2)]
    stream[700:] = [(x, 2 if x["a"] > 0.8 else y) for x, y in stream[700:]]
    options = {"learner": "dsg", "max_features": 128, "pruning": SOON}
    whole, asked = learnt(KernelClassifier(**nested(**options)), stream), [x for x, _ in stream[:40]]
    assert whole.n_prunings
    assert len(whole.labels) == 3
    again = learnt(copy.deepcopy(learnt(KernelClassifier(**nested(**options)), stream[:850])), stream[850:])
    assert [again.predict_proba_one(x) for x in asked] == [whole.predict_proba_one(x) for x in asked]


@pytest.mark.parametrize(("kind", "classes", "options"), OPTIONS)
def test_a_pruned_model_predicts_nearly_the_same(kind, classes, options):
    stream = [*events(1500, classes)]
    model = learnt(kind(**nested(**options)), stream)
    before = np.array([np.atleast_1d(model._model.score(x)[0]).copy() for x, _ in stream])
    many = model.n_features
    upkeep.apply(upkeep.Pruning(keep=0.5), model, stream)
    after = np.array([np.atleast_1d(model._model.score(x)[0]).copy() for x, _ in stream])
    assert model.n_features <= many / 2
    assert np.mean((after - before) ** 2) < 0.1 * before.var()


def test_a_pruned_model_stays_within_its_limit():
    model = KernelRegressor(learner=learners.DSG(features_per_seed=16), max_features=256, pruning=SOON)
    sizes = []
    for x, y in events(3000):
        model.learn_one(x, y)
        sizes.append(model.n_features)
    assert max(sizes[:800]) == 256
    assert max(sizes[900:]) == 64
    assert model.n_prunings > 2  # it has grown again and was pruned again


@pytest.mark.parametrize(
    ("kind", "classes", "reference"),
    [
        (KernelRegressor, 0, lambda n, l2: Ridge(alpha=n * l2, fit_intercept=False)),
        (KernelClassifier, 2, lambda n, l2: LogisticRegression(C=1 / (n * l2), fit_intercept=False, tol=1e-10)),
    ],
)
def test_refitted_coefficients_are_the_minimum(kind, classes, reference):
    stream = [*events(900, classes)]
    model = learnt(kind(learner="dsg", max_features=64), stream)
    offset = float(model._learner.numbers["offset"])
    gap = upkeep.apply(upkeep.Refit(window=500, tol=1e-10, l2=1e-3), model, stream)
    assert gap <= 1e-10
    function, last = model._learner, stream[-500:]
    Z = function.embed_rows(model._state.scales(rows_of(function, last))).astype(float)
    y = np.array([y if not classes else model.labels[y] for _, y in last]) - (0.0 if classes else offset)
    fitted = reference(500, 1e-3).fit(Z, y)
    assert np.allclose(function.functions()[:, 0], np.ravel(fitted.coef_), atol=5e-4)  # √(2 gap/λ)


def test_refitting_in_the_stream(tmp_path):
    task = upkeep.Refit(every=400, window=300, tol=1e-6)
    stream = [*events(1100, 2)]
    whole = learnt(KernelClassifier(learner="dsg", refit=task, max_features=64), stream)
    assert whole.gap <= 1e-6
    for cut in (700, 900):
        learnt(KernelClassifier(learner="dsg", refit=task, max_features=64), stream[:cut]).save(tmp_path / "model")
        again = learnt(load(tmp_path / "model"), stream[cut:])
        assert again.predict_proba_one(stream[0][0]) == whole.predict_proba_one(stream[0][0])
        assert again.gap == whole.gap


def test_pruning_and_refitting_at_different_times(tmp_path):
    tasks = {"pruning": upkeep.Pruning(every=300, window=200), "refit": upkeep.Refit(every=200, window=150)}
    stream = [*events(1300, 2)]
    whole = learnt(KernelClassifier(**nested(learner="dsg", features_per_seed=4, max_features=64, **tasks)), stream)
    assert whole.n_prunings
    assert whole.gap <= upkeep.Refit().tol
    for cut in (470, 560, 700, 860, 999, 1150):
        first = KernelClassifier(**nested(learner="dsg", features_per_seed=4, max_features=64, **tasks))
        learnt(first, stream[:cut]).save(tmp_path / "model")
        again = learnt(load(tmp_path / "model"), stream[cut:])
        assert again.predict_proba_one(stream[0][0]) == whole.predict_proba_one(stream[0][0]), cut
        assert (again.gap, again.n_prunings, again.n_features) == (whole.gap, whole.n_prunings, whole.n_features)


def test_softmax_models_are_not_refitted(caplog):
    task = upkeep.Refit(every=400, window=300)
    model = learnt(KernelClassifier(learner="dsg", refit=task, max_features=64), events(1000, 3))
    assert math.isnan(model.gap)
    assert "Expected two classes" in caplog.text


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: upkeep.Pruning(every=1), "every"),
        (lambda: upkeep.Pruning(window=True), "window"),
        (lambda: upkeep.Pruning(keep=0.7), "0 < keep <= 0.5"),
        (lambda: upkeep.Refit(tol=0.0), "tol > 0"),
        (lambda: upkeep.Refit(l2=float("inf")), "l2 > 0"),
        (lambda: KernelClassifier(pruning=upkeep.Refit()), "Expected pruning as a Pruning"),
        (lambda: KernelClassifier(learner="dsg", refit="yes"), "Expected refit as a Refit"),
    ],
)
def test_errors_name_the_expected_value(make, told):
    with pytest.raises(ValueError, match=told):
        make()


def test_inapplicable_tasks_are_rejected():
    stream = [*events(400, 2)]
    model = learnt(KernelClassifier(max_features=64), stream)
    with pytest.raises(ValueError, match="Newton steps"):
        upkeep.apply(upkeep.Refit(), model, stream)
    with pytest.raises(InputError, match="two events"):
        upkeep.apply(upkeep.Pruning(), model, stream[:1])
    with pytest.raises(InputError, match="a label that the model has learned"):
        upkeep.apply(upkeep.Pruning(), model, [*stream, (stream[0][0], "other")])
    upkeep.apply(upkeep.Pruning(), model, stream)
    with pytest.raises(ValueError, match="has not been pruned"):
        upkeep.apply(upkeep.Pruning(), model, stream)


@pytest.mark.parametrize(
    ("options", "task", "told"),
    [
        ({"loss": "huber"}, upkeep.Refit(), "Expected a loss of square, logistic, smooth_hinge .* got Huber"),
        ({"max_features": None}, upkeep.Pruning(), "Expected a cap on the features .* got max_features=None"),
        ({"kernel": kernels.Polynomial(2, 1.0)}, upkeep.Pruning(), "drawn one by one, got Polynomial"),
        ({"learner": "newton"}, upkeep.Refit(), "Expected .*learner=.dsg."),
    ],
)
def test_invalid_examples_are_rejected_immediately_too(options, task, told):
    options, stream = {"learner": "dsg"} | options, [*events(40)]
    with pytest.raises(ValueError, match=told):
        KernelRegressor(**nested(**options, **{type(task).__name__.lower(): task}))
    model = learnt(KernelRegressor(**nested(**options)), stream)
    before = [model.predict_one(x) for x, _ in stream]
    with pytest.raises(ValueError, match=told):
        upkeep.apply(task, model, stream)
    assert [model.predict_one(x) for x, _ in stream] == before


def test_a_prediction_copy_has_no_tasks():
    from streamkernel.estimators.internals import prediction_copy

    stream = [*events(800)]
    model = learnt(KernelRegressor(learner="dsg", max_features=128, pruning=SOON), stream)
    asked = prediction_copy(model)
    assert model._state.upkeep.job is not None  # it was begun after 656 events
    assert asked._state.upkeep is None
    assert asked.predict_one(stream[0][0]) == model.predict_one(stream[0][0])


def test_a_failed_task_does_not_change_the_model(monkeypatch, caplog):
    from streamkernel.upkeep import work

    def fail(*told):
        raise ZeroDivisionError

    stream = [*events(900)]
    plain = learnt(KernelRegressor(learner=learners.DSG(features_per_seed=8), max_features=128), stream)
    monkeypatch.setattr(work, "do_task", fail)
    model = KernelRegressor(learner=learners.DSG(features_per_seed=8), max_features=128, pruning=SOON)
    learnt(model, stream)
    assert "pruning has failed; the model is unchanged" in caplog.text
    assert model.predict_one(stream[0][0]) == plain.predict_one(stream[0][0])
    assert model.n_prunings == 0


def spoilt(tensors, name, change):
    changed = tensors[name].copy()
    change(changed)
    return tensors | {name: changed}


@pytest.mark.parametrize("learner", ["dsg", "newton"])
@pytest.mark.parametrize(
    "change",
    [
        lambda t: spoilt(t, "kept", lambda kept: kept.__setitem__((0, 0), -1)),
        lambda t: spoilt(t, "kept", lambda kept: kept.__setitem__((0, 1), 1 << 62)),
        lambda t: spoilt(t, "kept", lambda kept: kept.__setitem__((-1, 2), 1)),
        lambda t: t | {"kept": t["kept"][:-2]},
        lambda t: t | {"kept": t["kept"][-1:]},
        lambda t: t | {"kept": t["kept"].astype(np.int32)},
        lambda t: spoilt(t, "upkeep.numbers", lambda numbers: numbers.__setitem__(0, -1)),
        lambda t: spoilt(t, "upkeep.job", lambda job: job.__setitem__(0, 0)),
        lambda t: spoilt(t, "upkeep.job", lambda job: job.__setitem__(1, 9)),
        lambda t: {name: tensor for name, tensor in t.items() if not name.startswith("upkeep.recent")},
        lambda t: spoilt(t, "upkeep.recent.targets", lambda y: y.__setitem__(0, 7.0)),
    ],
    ids=range(11),
)
def test_crafted_files_are_refused(learner, change, tmp_path):
    options = {"learner": learner, "max_features": 64, "pruning": upkeep.Pruning(every=60, window=50)}
    first = 0 if learner == "dsg" else 256
    for n, name in ((first + 75, "upkeep.job"), (first + 150, "kept")):  # while a job is under way, and after it
        model = learnt(KernelClassifier(**nested(kernel=kernels.Gaussian(1.0), **options)), events(n, 2))
        description, tensors = model_file.describe(model)
        assert name in tensors
        tensor_file.write(tmp_path / "model", "model", description, tensors)
        load(tmp_path / "model")
        try:
            changed = change(tensors)
        except KeyError:
            continue
        tensor_file.write(tmp_path / "model", "model", description, changed)
        with pytest.raises(ModelFileError):
            load(tmp_path / "model")


def test_the_thread_of_a_model_that_is_dropped_ends():
    before = set(threading.enumerate())
    options = nested(learner="dsg", max_features=128, pruning=SOON)
    model = learnt(KernelRegressor(**options), events(256 + SOON.every + 1))
    (thread,) = set(threading.enumerate()) - before
    assert thread.name == "streamkernel upkeep"
    del model

    def has_ended():
        gc.collect()  # the model refers to itself, and the thread to it until the tasks are done
        return not thread.is_alive()

    wait_for(has_ended)
