"""A model answers as before another thread learns an example, or as after it, whenever that thread learns it.

A tracing function lets another thread learn before a line of the package that the answering thread runs, the first and
the last time that it runs the line, at a sample of these moments. A thread that holds a lock there is left alone.
"""

from __future__ import annotations

import copy
import functools
import gc
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streams import FIXED, examples, frame, nested
from waiting import LIMIT

import streamkernel
from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    GaussianProcessRegressor,
    InputError,
    KernelClassifier,
    KernelDensityRatio,
    KernelDriftDetector,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    Lags,
    LastTarget,
    RandomFeatures,
    StandardScaler,
    kernels,
    upkeep,
)
from streamkernel.estimators.base import class_probabilities, class_scores
from streamkernel.estimators.internals import predict_deferred, prediction_copy, read_probabilities, take_texts
from streamkernel.research import StochasticGaussianProcessRegressor
from streamkernel.second_order import growth
from streamkernel.upkeep import scheduler

PACKAGE = str(Path(streamkernel.__file__).parent)
LOCKING = str(Path(PACKAGE, "locking.py"))
SOME, MORE = (4, 31), (1, 5)
"""`make test` asks every fourth question while the other thread learns at every 31st line, and `make test-all` also all
of them at every fifth line; each with other first ones for each number of examples."""

SMALL = {"max_features": 16, "features_per_seed": 4}
FIRST = {"learner": "dsg", "kernel": FIXED, **SMALL}
XS, YS = examples(700, ("b", "a"))
NEW = {"x0": 0.3, "x1": -0.2, "new": 1.5}
TABLES = [frame(XS[600:602]), frame([NEW, *XS[600:620]])]


class Asked:
    """Call a function, and let another thread do something before one of the lines of the package that the call runs.

    Attributes
    ----------
    lines : list
        The lines.
    answer : object
        What the function returned, or the error of this library that it raised.
    is_done : bool
        Whether the other thread came to do it.
    """

    def __init__(self, call, stop=-1, other=None) -> None:
        self.lines, self.is_done, self._stop, self._other = [], False, stop, other
        before = sys.gettrace()
        gc.disable()  # the garbage collector runs lines that do not belong to the call
        sys.settrace(self._enter)
        try:
            self.answer = bits(call())
        except (InputError, AttributeError) as error:
            self.answer = repr(error)
        finally:
            sys.settrace(before)
            gc.enable()

    def _enter(self, where, event, _):
        return self._line if where.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, where, event, _):
        if event == "line":
            self.lines.append((where.f_code.co_filename, where.f_lineno))
            if len(self.lines) == self._stop + 1 and not holds_a_lock(where):
                self.is_done = True
                in_another_thread(self._other)
        return self._line


def holds_a_lock(where):
    """Return whether a frame is within a method that takes turns with others."""
    while where is not None and where.f_code.co_filename != LOCKING:
        where = where.f_back
    return where is not None


def in_another_thread(call):
    errors = []

    def run():
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the other thread waits for a lock"
    if errors:
        raise errors[0]


def bits(answer):
    """Return an answer as a text that has all of its bits."""
    if isinstance(answer, (pd.DataFrame, pd.Series)):
        return repr(pd.DataFrame(answer).to_dict("list"))
    return repr(answer.tolist() if isinstance(answer, np.ndarray) else answer)


def target(model, i):
    product = XS[i]["x0"] * XS[i]["x1"]
    if isinstance(model, (KernelClassifier, ConformalClassifier)):
        return YS[i]
    if isinstance(model, KernelMultiTargetRegressor):
        return {"product": product, "sum": 100.0 * (XS[i]["x0"] + XS[i]["x1"])}
    if isinstance(model, KernelMultiLabelClassifier):
        return {"up": product > 0.0, "right": XS[i]["x0"] > 0.0}
    return product


def feed(model, x, y):
    """Let a model learn an example with the method of its class."""
    if isinstance(model, KernelDriftDetector):
        model.update(x)
    elif isinstance(model, (KernelNoveltyDetector, RandomFeatures, StandardScaler, Lags)):
        model.learn_one(x)
    elif isinstance(model, KernelDensityRatio):
        model.learn_one(x, y > 0.0)
    else:
        model.learn_one(x, y)


MODELS = {
    "first order": lambda: KernelRegressor(**nested(**FIRST)),
    "first order, quantile": lambda: KernelRegressor(loss="quantile", **nested(averaging=True, **FIRST)),
    "first order, labels": lambda: KernelClassifier(**nested(**FIRST)),
    "first order, hinge": lambda: KernelClassifier(loss="hinge", **nested(**FIRST)),
    "first order, bandwidth": lambda: KernelClassifier(**nested(learner="dsg", **SMALL)),
    "second order": lambda: KernelRegressor(**nested(**SMALL)),
    "second order, labels": lambda: KernelClassifier(**nested(**SMALL)),
    "second order, softmax": lambda: KernelClassifier(loss="softmax", class_weight="balanced", **nested(**SMALL)),
    "second order, targets": lambda: KernelMultiTargetRegressor(max_features=32),
    "second order, true or false": lambda: KernelMultiLabelClassifier(max_features=32),
    "second order, kernel": lambda: KernelRegressor(
        **nested(kernel=kernels.Matern(2.5), learner="newton", joint=True, **SMALL)
    ),
    "pruning": lambda: KernelRegressor(
        **nested(pruning=upkeep.Pruning(every=32, window=24), **{**FIRST, "kernel": kernels.Gaussian(1.5)})
    ),
    "process": lambda: GaussianProcessRegressor(n_features=8),
    "process, operator": lambda: StochasticGaussianProcessRegressor(
        FIXED, noise=0.1, n_features=8, variance="operator", batch_size=3
    ),
    "novelty": lambda: KernelNoveltyDetector(**nested(learner="novelty", **SMALL)),
    "ratio": lambda: KernelDensityRatio(**nested(learner="novelty", **SMALL)),
    "drift": lambda: KernelDriftDetector(window=20, max_features=16),
    "features": lambda: RandomFeatures(kernels.Gaussian(), n_features=4),
    "intervals": lambda: ConformalRegressor(KernelRegressor(**nested(**FIRST)), window=20),
    "sets": lambda: ConformalClassifier(KernelClassifier(**nested(**FIRST)), window=20),
    "scaler": lambda: StandardScaler(),
    "scaler without deviations": lambda: StandardScaler(with_std=False),
    "last target": lambda: LastTarget(n_lags=2),
    "lags": lambda: Lags(["x0", "new"], n_lags=2),
}

MOMENTS = {
    "first order": [0, 3, 30],
    "first order, quantile": [3],
    "first order, labels": [0, 1, 30],
    "first order, hinge": [30],
    "first order, bandwidth": [3, 255],
    "second order": [0, 7, 255, 258, 511],
    "second order, labels": [0, 1, 7, 255, 258],
    "second order, softmax": [0, 7],
    "second order, targets": [0, 255, 258],
    "second order, true or false": [0, 7],
    "second order, kernel": [7, 255],
    "pruning": [31, 47, 63],
    "process": [0, 3, 255, 258],
    "process, operator": [2, 32],
    "novelty": [0, 255],
    "ratio": [3, 255],
    "drift": [0, 20, 41],
    "features": [1, 255],
    "intervals": [20, 31],
    "sets": [20, 31],
    "scaler": [0, 1, 3],
    "scaler without deviations": [0],
    "last target": [0, 3],
    "lags": [0, 3],
}
"""Examples with additional work: the first, new labels, bandwidths, a Newton step, a larger group, a background job."""

ATTRIBUTES = (
    "n_features", "n_seeds", "n_steps", "n_reused", "n_prunings", "gap", "objective", "n_bounded_predictions",
    "n_outlying_targets", "mixture_weights", "kernel_", "learner_", "labels", "targets", "threshold", "divergence_",
    "noise_variance", "statistic", "drift_detected", "feature_importances_",
)  # fmt: skip
METHODS = (
    "predict_one", "predict_proba_one", "predict_interval_one", "predict_set_one", "score_one", "explain_one",
    "transform_one",
)  # fmt: skip
OF_TABLES = ("predict_many", "predict_proba_many", "score_many", "transform_many")


def questions(model):
    """Return functions that ask a model, by name: all methods and attributes of its class that learning changes."""
    found = {}
    for name in ATTRIBUTES:
        if hasattr(type(model), name):
            found[name] = lambda one, name=name: getattr(one, name)
    for name in METHODS:
        if hasattr(model, name):
            for i, x in enumerate((XS[600], NEW)):
                found[f"{name}, {i}"] = lambda one, name=name, x=x: getattr(one, name)(dict(x))
    for name in OF_TABLES:
        if hasattr(model, name) and not isinstance(model, (ConformalClassifier, ConformalRegressor)):
            for i, table in enumerate(TABLES):
                found[f"{name}, {i}"] = lambda one, name=name, table=table: getattr(one, name)(table)
    if hasattr(model, "explain_one"):
        found["explain_one, sampling"] = lambda one: one.explain_one(NEW, method="sampling", n_orders=2)
    if type(model)._repr_html_.__module__.startswith("streamkernel"):  # else it is River's
        found["the view in a notebook"] = lambda one: one._repr_html_()
    if isinstance(model, GaussianProcessRegressor):
        found["with_dist"] = lambda one: one.predict_one(XS[600], with_dist=True)
    if isinstance(model, KernelClassifier):
        found["label"] = lambda one: one.explain_one(XS[600], label="a")
        found["deferred"] = lambda one: deferred(one, XS[600])
        found["class_probabilities"] = lambda one: class_probabilities(one._model, TABLES[0], ["a", "b", "c"])
        if model.labels:
            found["class_scores"] = lambda one: class_scores(one._model, TABLES[0], ["a", "b", "c"])
    if hasattr(model, "save"):
        found["copy"] = lambda one: parts_of(prediction_copy(one))
    return found


def parts_of(model):
    return [getattr(model, name, None) for name in ("labels", "n_steps", "n_features")]


def deferred(model, x):
    label, later = predict_deferred(model, x)
    return label, read_probabilities(later)


@functools.cache
def stored(name, n):
    model = MODELS[name]()
    for i in range(n):
        feed(model, XS[i], target(model, i))
    return model


@pytest.fixture(autouse=True)
def early_growth(monkeypatch):
    """Begin larger groups of second-order models early, and log every wait for a background job."""
    monkeypatch.setattr(growth, "FROM", 256)
    monkeypatch.setattr(scheduler, "LONG", -1.0)


def chosen_lines(lines, step, shift):
    """Return the numbers of some lines: of the first and the last times that each was run."""
    first = {line: i for i, line in reversed([*enumerate(lines)])}
    chosen = sorted({*first.values(), *{line: i for i, line in enumerate(lines)}.values()})
    return chosen[shift % max(1, min(step, len(chosen))) :: step]


def check(before, learn, ask, step, shift):
    """Ask a model while another thread learns, at one line after the other; return how often it came to learn."""
    known, learned = copy.deepcopy(before), copy.deepcopy(before)
    learn(learned)
    after = Asked(lambda: ask(learned)).answer  # also imports the modules
    first = Asked(lambda: ask(known))
    times = 0
    for stop in chosen_lines(first.lines, step, shift):
        model = copy.deepcopy(before)
        asked = Asked(lambda model=model: ask(model), stop, lambda model=model: learn(model))
        where = f"{first.lines[stop][0]}:{first.lines[stop][1]}, {stop} of {len(first.lines)}"
        assert asked.answer in (first.answer, after), where
        times += asked.is_done
    return times


WAYS = [pytest.param(SOME, id="some"), pytest.param(MORE, id="more", marks=pytest.mark.slow)]
CASES = [(name, n, "next") for name, moments in MOMENTS.items() for n in moments]
CASES += [(name, 30, "new label") for name in MODELS if "labels" in name or "hinge" in name or "sets" in name]
CASES += [(name, 30, "new name") for name in MODELS if MOMENTS[name] != [0]]


@pytest.mark.parametrize("steps", WAYS)
@pytest.mark.parametrize(("name", "n", "learned"), CASES)
def test_an_answer_is_from_before_or_after_what_another_thread_learns(name, n, learned, steps):
    before = stored(name, n)
    y = "c" if learned == "new label" else target(before, n)
    x = XS[n] if learned == "next" else NEW
    shift = CASES.index((name, n, learned))
    asked, times = [*questions(before).items()], 0
    for i, (question, ask) in enumerate(asked[shift % min(steps[0], len(asked)) :: steps[0]]):
        try:
            times += check(before, lambda model: feed(model, x, y), ask, steps[1], shift + i)
        except AssertionError as error:
            raise AssertionError(f"{question}: {error}") from None
    assert times > 0


def test_texts_of_two_fields_are_taken_by_two_threads():
    before = KernelRegressor(max_features=32)
    for i in range(40):
        before.learn_one({"a": float(i % 5), "b": float(i % 7)}, 1.0)
    text = {"a": "one"}, {"b": "one"}
    first = copy.deepcopy(before)
    for stop in chosen_lines(Asked(lambda: take_texts(first, text[0])).lines, 1, 0):
        model = copy.deepcopy(before)
        taken = Asked(
            lambda model=model: take_texts(model, text[0]), stop, lambda model=model: take_texts(model, text[1])
        )
        for x in text[: 1 + taken.is_done]:
            model.predict_one(x)
