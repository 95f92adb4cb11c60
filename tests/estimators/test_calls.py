"""The grouping of events into calls changes no result: one by one or many, predicted first or not."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from streams import CLASSIFIERS, classifier, content, examples, frame, learn, predictions, regressor, targets

from streamkernel import InputError, KernelClassifier, RandomFeatures
from streamkernel.features.scaling import NOT_SCALED
from streamkernel.first_order import sgd_step, single_event
from streamkernel.kernels import DotProduct, Gaussian
from streamkernel.learners import scoring

LABELS = ("b", "a", "d", "c")


def learn_in_groups(model, xs, ys, sizes):
    """Learn in calls of the given sizes: 0 for `learn_one`, n for `learn_many` of n rows."""
    done = 0
    for size in sizes:
        if size == 0:
            learn(model, xs[done : done + 1], ys[done : done + 1])
        elif done < len(xs):
            model.learn_many(frame(xs[done : done + size]), pd.Series(ys[done : done + size]))
        done += max(1, size)
    return learn(model, xs[done:], ys[done:])


groups = st.lists(st.one_of(st.just(0), st.integers(1, 90)), max_size=30)


@max_examples(12)
@pytest.mark.parametrize("options", CLASSIFIERS.values(), ids=CLASSIFIERS)
@given(sizes=groups)
def test_a_classifier_learns_the_same_in_any_grouping(options, sizes):
    """The stream includes the examples that decide the bandwidth, and new labels in the middle of a frame."""
    xs, ys = examples(300, LABELS)
    model = learn_in_groups(classifier(**options), xs, ys, sizes)
    assert content(model) == content(learn(classifier(**options), xs, ys))


@max_examples(12)
@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 5, "kernel": None}, {"loss": "huber", "averaging": True}], ids=repr
)
@given(sizes=groups)
def test_a_regressor_learns_the_same_in_any_grouping(options, sizes):
    xs, _ = examples(300)
    model = learn_in_groups(regressor(**options), xs, targets(xs), sizes)
    assert content(model) == content(learn(regressor(**options), xs, targets(xs)))


@pytest.mark.parametrize("options", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_predicting_first_changes_nothing(options):
    """Events are also predicted twice, after another event, and again after learning."""
    xs, ys = examples(300, LABELS)
    model, twin = classifier(**options), learn(classifier(**options), xs, ys)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if i % 3:
            model.predict_one(x)
        if i % 5 == 1:
            model.predict_proba_one(xs[i - 1])
        if i % 7 == 1:
            model.predict_many(frame(xs[i : i + 2]))
        if i % 4 == 1:
            model.predict_proba_one(dict(reversed(x.items())))
        model.learn_one(x, y)
        if i % 11 == 0:
            model.predict_one(x)
    assert content(model) == content(twin)


class Own(dict):
    """A subclass of dict that a user defines."""


def with_a_hole(x):
    """Return the dictionary after a name in its middle was deleted and added again."""
    x = dict(x)
    x["x1"] = x.pop("x1")
    return x


FORMS = {
    "as it is": lambda x: x,
    "other objects": lambda x: {name: value + 0.0 for name, value in x.items()},
    "other names, alike": lambda x: {"".join(list(name)): value for name, value in x.items()},
    "another order": lambda x: dict(reversed(x.items())),
    "a hole": with_a_hole,
    "one more": lambda x: {**x, "more": 0.0},
    "none": lambda x: {"x0": x["x0"]},
    "NumPy's floats": lambda x: {name: np.float64(value) for name, value in x.items()},
    "an integer": lambda x: dict(zip(x, (x["x0"], -1, int(10.0 * x["x2"])), strict=True)),
    "a Boolean": lambda x: dict(zip(x, (x["x0"] > 0.0, x["x1"], x["x2"]), strict=True)),
    "a string": lambda x: {**x, "sign": str(x["x1"] > 0.0)},
    "its own class": Own,
    "an ordered one": OrderedDict,
}


READ = "as it is", "other objects", "other names, alike", "an integer", "a Boolean", "its own class", "an ordered one"


@max_examples(60)
@given(st.lists(st.tuples(st.sampled_from(list(FORMS)), st.sampled_from(list(FORMS)), st.booleans()), max_size=40))
def test_all_mappings_are_read_in_the_same_way(forms):
    """Compiled code reads dictionaries with the previous names; Python reads a view, and the model learns the same.

    Values that change between prediction and learning are learned as changed.
    """
    xs, ys = examples(40)
    model, twin = classifier(), classifier()
    for x, y, (first, second, change) in zip(xs, ys, forms, strict=False):
        predicted, learnt = FORMS[first](x), FORMS[second](x)
        assert model.predict_proba_one(predicted) == twin.predict_proba_one(MappingProxyType(predicted))
        if change:
            learnt["x0"] = 0.25
        model.learn_one(learnt, y)
        twin.learn_one(MappingProxyType(learnt), y)
    assert content(model) == content(twin)


def test_a_dictionary_like_the_one_before_is_read_by_compiled_code():
    model = learn(classifier(), *examples(3))
    f = model._learner
    for name, form in FORMS.items():
        x = examples(1)[0][0]
        model.predict_one(MappingProxyType(x))
        formed, record = form(x), f.directions.last.memory
        score = single_event.score_event.call(f._arena.memory, f.directions.cache, record, *NOT_SCALED, id(formed))
        assert (not np.isnan(score)) == (name in READ), name
    with pytest.raises(InputError, match="401 digits - at x"):
        model.predict_one(dict(zip(x, (0.0, 10**400, 1), strict=True)))


class Name(str):
    """A name whose comparison is code of its own, which compiled code must not run."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other)


def test_names_of_other_kinds_are_read_by_python():
    xs, ys = examples(40)
    plain = learn(classifier(), xs, ys)
    named = learn(classifier(), [{Name(name): value for name, value in x.items()} for x in xs], ys)
    numbered = learn(classifier(), [{10**20 + i: value for i, value in enumerate(x.values())} for x in xs], ys)
    assert content(plain) == content(named)
    assert numbered.n_steps == 40


@pytest.mark.parametrize("options", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_predictions_of_tables_match_single_ones(options):
    xs, ys = examples(150, LABELS)
    model = classifier(**options)
    for i in range(0, 150, 25):
        one = [model.predict_one(x) for x in xs]
        table = model.predict_proba_many(frame(xs))
        assert list(model.predict_many(frame(xs))) == one
        assert np.allclose(table, [list(model.predict_proba_one(x).values()) for x in xs], rtol=1e-12)
        assert list(table.columns) == list(model.predict_proba_one(xs[0]))
        assert np.allclose(table.sum(axis=1), 1.0 if i else 0.0)
        learn(model, xs[i : i + 25], ys[i : i + 25])


def test_regressors_predictions_of_tables_match_single_ones():
    xs, _ = examples(100)
    for options in ({}, {"averaging": True}, {"kernel": None, "batch_size": 3}):
        model = learn(regressor(**options), xs, targets(xs))
        assert list(model.predict_many(frame(xs))) == [model.predict_one(x) for x in xs]


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "int64", "int8", "uint8", "bool", "Int64", "Float64", "object"]
)
def test_columns_of_every_kind_of_number_are_read_as_numbers(dtype):
    values = np.random.default_rng(0).integers(0, 2, (60, 3))
    X = pd.DataFrame(values, columns=["x0", "x1", "x2"]).astype(dtype)
    ys = pd.Series(values[:, 0] ^ values[:, 1])
    model = classifier()
    model.learn_many(X, ys)
    plain = learn(classifier(), pd.DataFrame(values.astype(float), columns=X.columns).to_dict("records"), ys.tolist())
    assert content(model) == content(plain)
    assert predictions(model, X.to_dict("records")) == predictions(plain, X.to_dict("records"))


def test_names_of_columns_are_the_names_of_features():
    xs, ys = examples(60)
    for names in ([0, 1, 2], [("a", 1), ("a", 2), ("b", 1)], ["x", 1, "z"]):
        named = [dict(zip(names, x.values(), strict=True)) for x in xs]
        X = pd.DataFrame([list(x.values()) for x in xs])
        X.columns = pd.Index(names, dtype=object, tupleize_cols=False)
        many = classifier()
        many.learn_many(X, pd.Series(ys))
        assert content(many) == content(learn(classifier(), named, ys))


def test_an_empty_frame_changes_nothing():
    xs, ys = examples(10)
    model = learn(classifier(batch_size=4), xs, ys)
    before = content(model)
    model.learn_many(frame(xs)[:0], pd.Series([], dtype=object))
    assert content(model) == before
    assert len(model.predict_many(frame(xs)[:0])) == 0
    assert len(model.predict_proba_many(frame(xs)[:0])) == 0


def test_random_features_are_the_same_in_any_grouping():
    xs, _ = examples(300)
    one, many, fixed = (RandomFeatures(kernel, n_features=16) for kernel in (Gaussian(), Gaussian(), Gaussian(2.0)))
    for x in xs:
        one.learn_one(x)
    for first, last in [(0, 1), (1, 100), (100, 300)]:
        many.learn_many(frame(xs[first:last]))
    assert one.kernel_ == many.kernel_
    for model in (one, many, fixed):
        table = model.transform_many(frame(xs[:20])).to_dict("records")
        assert table == [model.transform_one(x) for x in xs[:20]]
    seeds = [RandomFeatures(Gaussian(2.0), n_features=16, seed=seed).transform_one(xs[0]) for seed in (0, 1)]
    assert fixed.transform_one(xs[0]) == seeds[0] != seeds[1]


@pytest.mark.parametrize("batch_size", [1, 6])
def test_the_bandwidth_is_that_of_the_first_256_examples(batch_size):
    """From then on the model has the bits of a model that got this bandwidth as a parameter."""
    xs, ys = examples(400)
    model = learn(classifier(kernel=Gaussian("median", median_factor=0.7), batch_size=batch_size), xs, ys)
    X = frame(xs[:256]).to_numpy()
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))[np.triu_indices(256, 1)]
    assert model.kernel_.sigma == pytest.approx(0.7 * np.median(distances))
    told = learn(classifier(kernel=model.kernel_, batch_size=batch_size), xs, ys)
    assert predictions(model, xs) == predictions(told, xs)
    assert (model.n_steps, model.n_features, model.objective) == (told.n_steps, told.n_features, told.objective)


def test_the_default_model_needs_only_examples():
    model = KernelClassifier()
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    model.learn_one({"a": 1.0}, "only")
    assert model.predict_one({"b": 1.0}) == "only"
    assert model.predict_proba_one({"b": 1.0}) == {"only": 1.0}


def test_one_compiled_version_serves_every_call():
    """A further type of argument would be compiled for twenty seconds in the middle of a stream."""
    xs, ys = examples(40)
    for options in ({}, {"batch_size": 3}):
        for labels in ([int(y == "yes") for y in ys], [bool(y == "yes") for y in ys], ys):
            learn(classifier(**options), xs, labels)
        for dtype in ("int32", "float32", "float64", "bool"):
            model = learn(regressor(**options), xs, [int(x["x0"]) for x in xs])
            model.learn_many(frame(xs).astype(dtype), pd.Series(targets(xs)))
            model.learn_many(frame(xs), pd.Series(targets(xs)).astype(dtype))
            model.predict_many(frame(xs).astype(dtype))
            RandomFeatures(Gaussian(1.0)).transform_many(frame(xs).astype(dtype))
    assert len(sgd_step.learn.signatures) == 1
    model.predict_many(frame(xs[:2]))
    assert len(scoring.evaluate.signatures) == 1
    assert len(scoring.transform.signatures) == 1


def test_rows_before_a_rejected_one_are_learned_or_buffered():
    """The value of the rejected row is in the kernel's domain, but its features exceed the usable size."""
    xs, _ = examples(12)
    xs[6]["x0"] = 1e12
    many, one = (regressor(kernel=DotProduct([0.0, 0.0, 1.0]), batch_size=4) for _ in range(2))
    with pytest.raises(InputError, match="usable size for DotProduct"):
        many.learn_many(frame(xs), pd.Series(range(12)))
    learn(one, xs[:6], range(6))
    many._state.numeric = one._state.numeric  # those of all rows of the table are known
    assert content(many) == content(one)
    many.learn_many(frame(xs[7:]), pd.Series(range(7, 12)))
    assert content(many) == content(learn(one, xs[7:], range(7, 12)))
