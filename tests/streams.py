"""Small streams, and comparisons of the models that learned them."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import sys
import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pandas as pd

from streamkernel import KernelClassifier, KernelRegressor, learners, load, rules, tensor_file
from streamkernel.estimators import model_file
from streamkernel.kernels import ArcCosine, Gaussian, Matern, Polynomial

SMALL = {"features_per_seed": 8, "max_features": 36}
FIXED = Gaussian(1.5)


def examples(n, labels=("no", "yes"), seed=0, width=3):
    """Return inputs, and labels of a curved boundary; later labels appear later."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, width))
    kinds = np.digitize(X[:, 0] * X[:, 1] + 0.2 * generator.normal(size=n), np.linspace(-0.6, 0.6, len(labels) - 1))
    seen = 2 + np.arange(n) * len(labels) // n  # labels that may have appeared
    names = [f"x{i}" for i in range(width)]
    xs = [dict(zip(names, map(float, row), strict=True)) for row in X]
    return xs, [labels[kind % min(most, len(labels))] for kind, most in zip(kinds, seen, strict=True)]


def as_dicts(X, first=0):
    """Return the rows of X as inputs named x0, x1, ..., or from another number on."""
    return [{f"x{first + j}": value for j, value in enumerate(row)} for row in X.tolist()]


def weights(n, seed=8):
    """Return weights of examples, most of which are not 1."""
    return np.random.default_rng(seed).choice([0.3, 1.0, 2.0, 6.5], size=n)


def names_in_order(f, n):
    """Return n names in the order of their hashes, in which the rows of a learner have them."""
    return sorted((f"x{i}" for i in range(n)), key=lambda name: int(f.row({name: 1.0}).hashes[0]))


def targets(xs):
    return [x["x0"] * x["x1"] + 2.0 for x in xs]


def learn(model, xs, ys):
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    return model


def frame(xs):
    return pd.DataFrame(xs)


def in_calls(model, xs, ys, sizes):
    """Learn in calls of so many rows each, in turns."""
    first, turn = 0, 0
    while first < len(xs):
        last = first + sizes[turn % len(sizes)]
        model.learn_many(frame(xs[first:last]), pd.Series(ys[first:last]))
        first, turn = last, turn + 1
    return model


def predictions(model, xs):
    """Return everything that a model says about some inputs."""
    if isinstance(model, KernelRegressor):
        return [model.predict_one(x) for x in xs]
    return [(model.predict_one(x), model.predict_proba_one(x)) for x in xs]


def write_parts(folder, parts, change=None):
    """Write what `model_file.describe` returned to a file, with a change of its tensors if there is one; return it."""
    description, tensors = copy.deepcopy(parts)
    if change is not None:
        change(tensors)
    tensor_file.write(folder / "model", "model", description, tensors)
    return folder / "model"


def go_on_alike(model, twin, xs, ys):
    """Compare a model with a copy, bit by bit, before each example, and after the last one."""
    assert content(twin) == content(model)
    for x, y in zip(xs, ys, strict=True):
        assert twin.predict_one(x) == model.predict_one(x)
        twin.learn_one(x, y)
        model.learn_one(x, y)
    assert content(twin) == content(model)


def content(model):
    """Return all that a model is, as bytes and hashable: parameters, counters, coefficients, examples that wait."""
    description, tensors = model_file.describe(model)
    tensors |= {name: targets.astype(float) for name, targets in tensors.items() if name.endswith(".targets")}
    arrays = {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in tensors.items()}
    return repr(description), tuple(sorted(arrays.items()))


def least_growth(event, examples, parts=3):
    """Return the smallest growth of Python's memory in bytes over equal parts of some examples.

    A leak is in every part; code that is loaded late is in one. What threads of earlier tests allocate does not count.
    """
    below = tracemalloc.Filter(True, __file__, all_frames=True)
    found, n = [], len(examples) // parts
    for part in range(parts):
        gc.collect()
        tracemalloc.start(15)
        for example in examples[part * n : (part + 1) * n]:
            event(*example)
        gc.collect()
        sys._clear_type_cache()  # Python's own, such as attributes' names
        kept = tracemalloc.take_snapshot()
        tracemalloc.stop()
        found.append(sum(trace.size for trace in kept.filter_traces([below]).traces))
    return min(found)


LEARNERS = {
    "newton": learners.Newton(),
    "joint": learners.Newton(joint=True),
    "dsg": learners.DSG(),
    "novelty": learners.DSG(rule=rules.DSG()),
}
"""The learners by their names in the parameters of tests."""


def nested(learner="newton", **options):
    """Return parameters of an estimator: of those given, the learner's own are put into it."""
    chosen = LEARNERS.get(learner, learner)
    own = {field.name: options.pop(field.name) for field in fields(chosen) if field.name in options}
    return {**options, "learner": replace(chosen, **own)}


def classifier(**options):
    return KernelClassifier(**nested(**{"kernel": FIXED, "learner": "dsg", **SMALL, **options}))


def regressor(**options):
    return KernelRegressor(**nested(**{"kernel": FIXED, "learner": "dsg", **SMALL, **options}))


def saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model")
    return load(tmp_path / "model")


WAYS = {
    "file": saved_and_loaded,
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, _: copy.deepcopy(model),
}
"""Ways to copy a model."""

CLASSIFIERS = {
    "default": {"kernel": None, "learner": "newton", "features_per_seed": "auto", "max_features": 64},
    "batches": {"batch_size": 7, "averaging": True, "l2": 0.01},
    "batches, median": {"batch_size": 4, "kernel": Gaussian("median")},
    "hinge, UDSG": {"loss": "hinge", "rule": rules.UDSG(1, 2)},
    "squared hinge, DSG, regenerated": {"loss": "squared_hinge", "rule": rules.DSG(), "cache_bytes": 0},
    "kernels, preconditioned batches": {
        "kernel": Gaussian("median") * ArcCosine(1) + 0.5 * Matern(1.5, 2.0).on("x0"),
        "batch_size": 5,
        "preconditioner": 0.1,
        "averaging": True,
    },
    "a real kernel": {"kernel": Polynomial(2), "rule": rules.CDSG(math.inf)},
    "softmax": {"loss": "softmax", "rule": rules.CDSG(math.inf), "max_features": None},
}
"""Parameters of classifiers that differ in everything that matters to what is learned."""
