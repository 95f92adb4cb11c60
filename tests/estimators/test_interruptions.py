"""An exception at any line of Python leaves a model as it was before an example, or as it is after it.

A tracing function raises at lines of the package that a call runs, the first and the last time that it runs them: at
every sixth one, from another first line for each number of examples, and in `make test` at fewer. What follows must be
as if the call had been made in full, or not at all; of many rows, some of the first may be learned.
"""

from __future__ import annotations

import ast
import copy
import functools
import gc
import sys
from pathlib import Path

import pandas as pd
import pytest
from streams import FIXED, content, examples, frame, learn, nested

import streamkernel
from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelDensityRatio,
    KernelDriftDetector,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    RandomFeatures,
    kernels,
    locking,
    upkeep,
)
from streamkernel.estimators.internals import predict_and_learn, prediction_copy
from streamkernel.research import StochasticGaussianProcessRegressor
from streamkernel.second_order import growth
from streamkernel.upkeep import scheduler

PACKAGE = str(Path(streamkernel.__file__).parent)
SOME, MORE = 13, 6
"""`make test` interrupts every 13th line, and `make test-all` also every sixth, with another first line for each number
of examples: most lines are run at several of them, and by several models."""

SMALL = {"max_features": 16, "features_per_seed": 4}
FIRST = {"learner": "dsg", "kernel": FIXED, **SMALL}
XS, YS = examples(700, ("b", "a"))


RELEASES = {
    (locking.__file__, line)
    for node in ast.walk(ast.parse(Path(locking.__file__).read_text()))
    if isinstance(node, ast.Try)
    for end in node.finalbody
    for line in range(end.lineno, end.end_lineno + 1)
}
"""Lines that release a lock: Python runs them without a look at signals, so that no exception comes before them."""

WAITING = {
    (scheduler.__file__, line)
    for node in ast.walk(ast.parse(Path(scheduler.__file__).read_text()))
    if isinstance(node, ast.While) and any(isinstance(part, ast.Name) and part.id == "PAUSE" for part in ast.walk(node))
    for line in range(node.lineno, node.end_lineno + 1)
}
"""Lines that look again and again whether a background job has ended: how often depends on how busy the machine is."""


def is_busy(model):
    """Return whether a thread changes a model."""
    return getattr(model, "_model", model)._lock.is_busy


def causes(error):
    """Return the types of an error and of what caused it."""
    return [] if error is None else [type(error), *causes(error.__cause__)]


class Traced:
    """Make a call, record the lines of the package that it runs, and raise an exception at one of them."""

    def __init__(self, call, stop=-1, error=None) -> None:
        self.lines, self._stop, self._error = [], stop, error
        before = sys.gettrace()
        gc.disable()  # the garbage collector runs lines that do not belong to the call
        sys.settrace(self._enter)
        try:
            call()
        except BaseException as caught:
            if error not in causes(caught):  # too little memory for a file is a ModelFileError
                raise
        finally:
            sys.settrace(before)
            gc.enable()
        assert error is None or len(self.lines) == stop + 1, "the call ran other lines than before"

    def _enter(self, where, event, _):
        return self._line if where.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, where, event, _):
        line = where.f_code.co_filename, where.f_lineno
        if event == "line" and line not in RELEASES and line not in WAITING:
            self.lines.append(line)
            if len(self.lines) == self._stop + 1:
                raise self._error
        return self._line


def interrupted(make, call, some, shift=0, errors=(KeyboardInterrupt, MemoryError)):
    """Yield the object after its call was interrupted, for one line after the other."""
    call(make())  # imports the modules
    one = make()
    lines = Traced(lambda: call(one)).lines
    first = {line: i for i, line in reversed([*enumerate(lines)])}
    chosen = sorted({*first.values(), *{line: i for i, line in enumerate(lines)}.values()})
    step = SOME if some else MORE
    for i, stop in enumerate(chosen[shift % step :: step]):
        one = make()
        Traced(lambda one=one: call(one), stop, errors[i % len(errors)])
        yield f"{lines[stop][0]}:{lines[stop][1]}, {stop} of {len(lines)}", one


def target(model, i):
    if isinstance(model, KernelMultiTargetRegressor):
        return {"product": XS[i]["x0"] * XS[i]["x1"], "sum": 100.0 * (XS[i]["x0"] + XS[i]["x1"])}
    return YS[i] if isinstance(model, KernelClassifier) else XS[i]["x0"] * XS[i]["x1"]


def feed(model, i):
    """Let a model learn example i with the method of its class."""
    if isinstance(model, KernelDriftDetector):
        model.update(XS[i])
    elif isinstance(model, (KernelNoveltyDetector, RandomFeatures)):
        model.learn_one(XS[i])
    elif isinstance(model, KernelDensityRatio):
        model.learn_one(XS[i], i % 3 == 0)
    else:
        model.learn_one(XS[i], target(model, i))


def at(name, n):
    """Return a model after n examples."""
    near = max([m for m in KEPT if m <= n], default=0)
    model = copy.deepcopy(stored(name, near))
    for i in range(near, n):
        feed(model, i)
    return model


KEPT = (0, 30, 254, 510)


@functools.cache
def stored(name, n):
    model = MODELS[name]()
    for i in range(n):
        feed(model, i)
    return model


MODELS = {
    "first order": lambda: KernelRegressor(**nested(**FIRST)),
    "first order, labels": lambda: KernelClassifier(**nested(**FIRST)),
    "first order, batches": lambda: KernelClassifier(**nested(batch_size=3, averaging=True, **FIRST)),
    "first order, bandwidth": lambda: KernelClassifier(**nested(learner="dsg", **SMALL)),
    "second order": lambda: KernelRegressor(**nested(**SMALL)),
    "second order, labels": lambda: KernelClassifier(**nested(**SMALL)),
    "second order, targets": lambda: KernelMultiTargetRegressor(max_features=32),
    "second order, kernel": lambda: KernelRegressor(
        **nested(kernel=kernels.Matern(2.5), learner="newton", joint=True, **SMALL)
    ),
    "pruning": lambda: KernelRegressor(
        **nested(
            pruning=upkeep.Pruning(every=32, window=24),
            **{**FIRST, "kernel": kernels.Gaussian(1.5)},
        )
    ),
    "process": lambda: GaussianProcessRegressor(n_features=8),
    "process, operator": lambda: StochasticGaussianProcessRegressor(
        FIXED, noise=0.1, n_features=8, variance="operator", batch_size=3
    ),
    "novelty": lambda: KernelNoveltyDetector(**nested(learner="novelty", **SMALL)),
    "ratio": lambda: KernelDensityRatio(**nested(learner="novelty", **SMALL)),
    "drift": lambda: KernelDriftDetector(window=20, max_features=16),
    "features": lambda: RandomFeatures(kernels.Gaussian(), n_features=4),
}

MOMENTS = {
    "first order": [0, 1, 3, 30],
    "first order, labels": [0, 1, 30],
    "first order, batches": [0, 1, 2, 32],
    "first order, bandwidth": [0, 1, 3, 255],
    "second order": [0, 1, 7, 255, 258, 263, 511],
    "second order, labels": [0, 1, 7, 255, 258, 511],
    "second order, targets": [0, 1, 255, 258],
    "second order, kernel": [0, 7, 255, 258],
    "pruning": [31, 47, 63],
    "process": [0, 1, 3, 255],
    "process, operator": [0, 2, 32],
    "novelty": [0, 1, 255],
    "ratio": [0, 1, 255],
    "drift": [0, 20, 40],
    "features": [0, 1, 255],
}
"""Examples with additional work: the first, larger arrays, bandwidths, a Newton step, an evaluation, a background job;
and an example without."""

CASES = [(name, n) for name, moments in MOMENTS.items() for n in moments]


@pytest.fixture(autouse=True)
def early_growth(monkeypatch):
    """Begin larger groups of second-order models early, and log every wait for a background job, so that the same
    lines run on a busy machine."""
    monkeypatch.setattr(growth, "FROM", 256)
    monkeypatch.setattr(scheduler, "LONG", -1.0)


def interrupt(make, call, possible, some, shift=0):
    """Interrupt a call at one line after the other, and check that the model is in a possible state."""
    for where, model in interrupted(make, call, some, shift):
        assert not is_busy(model), where
        assert possible(model), where


WAYS = [pytest.param(True, id="some"), pytest.param(False, id="more", marks=pytest.mark.slow)]


@pytest.mark.parametrize("some", WAYS)
@pytest.mark.parametrize(("name", "n"), CASES)
def test_an_example_is_learned_or_not(name, n, some):
    """The model learns later examples like a model that was never interrupted."""
    before, after = at(name, n), at(name, n + 1)
    ends = {}
    for one in (before, after):
        key, more = content(one), copy.deepcopy(one)
        for i in range(n + 1, n + 4):
            feed(more, i)
        ends[key] = content(more)

    def is_possible(model):
        end = ends.get(content(model))
        for i in range(n + 1, n + 4):
            feed(model, i)
        return end is not None and content(model) == end

    interrupt(lambda: copy.deepcopy(before), lambda model: feed(model, n), is_possible, some, n)


NEW = {"x0": 0.3, "x1": -0.2, "new": 1.5, "other": "blue"}


@pytest.mark.parametrize("some", WAYS)
@pytest.mark.parametrize("name", ["first order, labels", "second order, labels"])
def test_new_names_and_labels_are_learned_or_not(name, some):
    before = at(name, 40)
    twin = copy.deepcopy(before)
    twin.learn_one(NEW, "new label")
    states = [(content(before), before), (content(twin), twin)]

    def is_possible(model):
        model.predict_one(NEW)
        (same,) = (known for state, known in states if state == content(model))
        asked = [NEW, *XS[:3]]
        return [model.predict_proba_one(x) for x in asked] == [same.predict_proba_one(x) for x in asked]

    interrupt(lambda: copy.deepcopy(before), lambda model: model.learn_one(NEW, "new label"), is_possible, some)


@pytest.mark.parametrize("some", WAYS)
@pytest.mark.parametrize("name", ["first order, labels", "second order, labels", "pruning"])
def test_an_interrupted_table_is_learned_up_to_a_row(name, some):
    n, rows = 30, 12
    before, y = at(name, n), pd.Series([target(at(name, 0), i) for i in range(n, n + rows)])
    possible = {content(at(name, n + i)) for i in range(rows + 1)}
    interrupt(
        lambda: copy.deepcopy(before),
        lambda model: model.learn_many(frame(XS[n : n + rows]), y),
        lambda model: content(model) in possible,
        some,
    )


@pytest.mark.parametrize("some", WAYS)
def test_interrupted_events_of_a_drift_detector_are_processed_up_to_one(some):
    n, m = 40, 12
    before = KernelDriftDetector(kernels.Gaussian(1.0), window=20, max_features=16)
    before.update_many(XS[:n])
    more, possible = copy.deepcopy(before), {content(before)}
    for x in XS[n : n + m]:
        more.update(x)
        possible.add(content(more))
    interrupt(
        lambda: copy.deepcopy(before),
        lambda detector: detector.update_many(XS[n : n + m]),
        lambda detector: content(detector) in possible,
        some,
    )


@pytest.mark.parametrize("some", WAYS)
@pytest.mark.parametrize("name", ["first order, labels", "second order, labels"])
def test_interrupted_examples_that_are_learned_together_are_learned_up_to_one(name, some):
    n, m = 260, 20
    before = at(name, n)
    possible = {content(at(name, n + i)) for i in range(m + 1)}
    interrupt(
        lambda: copy.deepcopy(before),
        lambda model: predict_and_learn(model, XS[n : n + m], YS[n : n + m], 1e100),
        lambda model: content(model) in possible,
        some,
    )


@pytest.mark.parametrize("some", WAYS)
@pytest.mark.parametrize("name", ["first order", "second order"])
def test_interrupted_predictions_change_nothing(name, some, tmp_path):
    model = at(name, 50)
    before, said = content(model), [model.predict_one(x) for x in [NEW, *XS[:5]]]

    def look(model):
        model.predict_one(NEW)
        model.predict_many(frame(XS[:5]))
        model.save(tmp_path / "model")
        prediction_copy(model).predict_one(NEW)
        copy.deepcopy(model)

    def is_as_before(model):
        return content(model) == before and [model.predict_one(x) for x in [NEW, *XS[:5]]] == said

    interrupt(lambda: copy.deepcopy(model), look, is_as_before, some)


@pytest.mark.parametrize("some", WAYS)
@pytest.mark.parametrize("options", [FIRST, {"learner": "newton", "joint": True, "kernel": FIXED, **SMALL}])
def test_models_are_merged_or_not(options, some):
    """The other models only take the pending step of their buffered examples."""
    parts = [
        learn(KernelClassifier(**nested(batch_size=3, **options)), XS[i::2][:301], YS[i::2][:301]) for i in range(2)
    ]
    before, merged = parts[0], copy.deepcopy(parts[0]).merge(copy.deepcopy(parts[1]))
    settled = copy.deepcopy(before)
    settled._model.settle()
    possible = {content(one) for one in (before, settled, merged)}
    interrupt(
        lambda: copy.deepcopy(before),
        lambda model: model.merge(copy.deepcopy(parts[1])),
        lambda model: content(model) in possible,
        some,
    )


@pytest.mark.parametrize("kind", [KernelRegressor, KernelClassifier])
def test_an_interrupted_load_leaves_no_model(kind, tmp_path):
    model = learn(kind(**nested(**SMALL)), XS[:50], [target(kind(), i) for i in range(50)])
    model.save(tmp_path / "model")

    def load(found):
        found.append(streamkernel.load(tmp_path / "model"))

    for where, found in interrupted(list, load, True, errors=[KeyboardInterrupt]):  # too little memory is a bad file
        assert not found, where
    assert content(streamkernel.load(tmp_path / "model")) == content(model)
