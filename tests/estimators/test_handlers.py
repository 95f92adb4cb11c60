"""What a handler of a signal or of a log, or a finalizer, calls in the middle of a call finds a whole model.

A tracing function calls a handler at lines of the package that a call runs, in the call's own thread, as Python does
with signals. What it reads is the model before the example or after it, a change is refused, and the call ends with the
bits that it has without a handler.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys

import pandas as pd
import pytest
import test_learning_between_lines as between
from river import compose, linear_model, preprocessing
from streams import content, frame, nested
from test_interruptions import CASES, FIRST, PACKAGE, SMALL, XS, at, early_growth, feed, is_busy, target
from test_threads_and_signals import run
from waiting import LIMIT

from streamkernel import (
    ConformalRegressor,
    KernelClassifier,
    KernelDriftDetector,
    KernelNoveltyDetector,
    KernelRegressor,
    Lags,
    LastTarget,
    RandomFeatures,
    StandardScaler,
    load,
)
from streamkernel.conformal.rolling_scores import ConformalWrapper
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import prediction_copy

__all__ = ["early_growth"]  # a fixture that all of these tests use

EVERY = int(os.environ.get("STREAMKERNEL_STRIDE", "11"))
"""Of the lines that a call runs for the first time, one in so many calls a handler; `make test-nightly` has 1."""


class Handled:
    """Make a call, with a handler at every so-manieth line of the package that it runs for the first time."""

    def __init__(self, call, handler, shift=0) -> None:
        self.errors, self.calls = [], 0
        self._handler, self._seen, self._events, self._shift = handler, set(), 0, shift
        before = sys.gettrace()
        gc.disable()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(before)
            gc.enable()
        assert not self.errors, self.errors[0]
        assert self.calls

    def _enter(self, where, event, _):
        return self._line if where.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, where, event, _):
        line = where.f_code.co_filename, where.f_lineno
        if event == "line":
            self._events += 1
            is_new = line not in self._seen
            self._seen.add(line)
            if (len(self._seen) if is_new else self._events) % (EVERY if is_new else 997) == self._shift % EVERY:
                self.calls += 1
                try:
                    self._handler()
                except BaseException as error:  # raised here, the call that is traced might catch it
                    self.errors.append((line, error))
        return self._line


def ask(model, x):
    """Return the prediction of a model for an example, or None if its class does not predict."""
    if isinstance(model, RandomFeatures):
        return model.transform_one(x)
    if isinstance(model, KernelDriftDetector):
        return model.statistic
    return model.score_one(x) if isinstance(model, KernelNoveltyDetector) else model.predict_one(x)


COPIES = [lambda model: model, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]


def reader(model, states, said):
    """Return a handler that copies a model in turns in all ways, and checks that each is in one of two states."""
    found = []

    def read():
        found.append(states.index(content(COPIES[len(found) % len(COPIES)](model))))
        assert found == sorted(found), "the state after the example came before the state before it"
        if isinstance(model, KernelModel):
            assert ask(prediction_copy(model), XS[5]) == said[found[-1]]
        ask(model, XS[5])

    return read


@pytest.mark.parametrize(("name", "n"), CASES)
def test_a_handler_reads_the_model_before_an_example_or_after_it(name, n):
    before, after = at(name, n), at(name, n + 1)
    states, said = [content(before), content(after)], [ask(before, XS[5]), ask(after, XS[5])]
    model = copy.deepcopy(before)
    Handled(lambda: feed(model, n), reader(model, states, said), n)
    assert content(model) == states[1]
    for i in range(n + 1, n + 4):
        feed(model, i)
        feed(after, i)
    assert content(model) == content(after)


def without_counts(model):
    """Return the content without the numbers of values by name, in which two calls at once may count as one."""
    description, arrays = content(model)
    return description, tuple(item for item in arrays if item[0] != "names")


@pytest.mark.parametrize(("name", "n"), CASES)
def test_a_handler_cannot_learn_in_the_middle_of_an_example(name, n):
    """Between two examples it can, as another thread can."""
    possible = [at(name, n), at(name, n)]
    for model, order in zip(possible, ((n, n + 1), (n + 1, n)), strict=True):
        for i in order:
            feed(model, i)
    possible, once = [without_counts(model) for model in possible], without_counts(at(name, n + 1))
    for is_inside in (True, False):
        model, learned = at(name, n), []

        def change(model=model, is_inside=is_inside, learned=learned):
            if is_busy(model) == is_inside and not learned:
                try:
                    feed(model, n + 1)
                except RuntimeError:
                    assert is_inside
                else:  # in the lock, a first-order model still learns what is one compiled call
                    learned.append(True)

        Handled(lambda model=model: feed(model, n), change, is_inside)
        assert without_counts(model) in (possible if learned else [once])


@pytest.mark.parametrize("name", ["first order, labels", "second order, labels", "pruning", "drift"])
def test_a_handler_reads_a_table_up_to_a_row(name):
    n, rows = 30, 12
    model, states = at(name, n), [content(at(name, n + i)) for i in range(rows + 1)]
    if name == "drift":
        states, call = states[: rows + 1], lambda: model.update_many(XS[n : n + rows])
    else:
        y = pd.Series([target(model, i) for i in range(n, n + rows)])
        call = lambda: model.learn_many(frame(XS[n : n + rows]), y)  # noqa: E731
    found = []

    def read():
        found.append(states.index(content(model)))
        assert found == sorted(found)

    Handled(call, read)
    assert content(model) == states[-1]


@pytest.mark.parametrize("name", ["first order, bandwidth", "second order", "process", "drift"])
def test_a_handler_cannot_change_a_model_that_is_saved(name, tmp_path):
    model = at(name, 30)
    state, refused = content(model), []

    def handle():
        assert content(model) == state
        if is_busy(model):
            with pytest.raises(RuntimeError, match="in the middle of"):
                feed(model, 31)
            refused.append(True)

    Handled(lambda: (model.save(tmp_path / "model"), copy.deepcopy(model)), handle)
    assert refused
    assert content(model) == state


def test_a_handler_cannot_merge_or_prune_in_the_middle_of_an_example():
    model, refused = at("second order", 30), []

    def change():
        if is_busy(model):
            for call in (lambda: model.merge(at("second order", 300)), lambda: at("second order", 300).merge(model)):
                with pytest.raises(RuntimeError, match="in the middle of learn_one"):
                    call()
            refused.append(True)

    Handled(lambda: feed(model, 30), change)
    assert refused


def test_the_error_names_both_calls():
    model, seen = at("second order", 300), []

    def change():
        if is_busy(model) and not seen:
            with pytest.raises(RuntimeError) as caught:
                model.learn_many(frame(XS[:2]), pd.Series([1.0, 2.0]))
            seen.append(str(caught.value))

    Handled(lambda: feed(model, 300), change)
    assert "change of a KernelRegressor in the middle of learn_one, got learn_many in the same thread" in seen[0]
    assert "call learn_many when learn_one has returned" in seen[0]


def test_a_handler_copies_whole_scores_of_a_conformal_model():
    """The wrapper and the model are two objects; each is before the example or after it."""

    def parts(model):
        scores = model._scores
        return [*scores._recent], scores._sorted, vars(scores._level)

    before = ConformalRegressor(linear_model.LinearRegression(), window=20)
    for x in XS[:30]:
        before.learn_one(x, x["x0"] * x["x1"])
    for shift in range(EVERY):
        model, copies = copy.deepcopy(before), []
        Handled(lambda model=model: model.learn_one(XS[30], 0.5), lambda: copies.append(copy.deepcopy(model)), shift)  # noqa: B023
        possible = list(zip(parts(before), parts(model), strict=True))
        for one in copies:
            assert all(part in states for part, states in zip(parts(one), possible, strict=True))
            assert sorted(parts(one)[0]) == parts(one)[1]


OTHERS = {
    "scaled": lambda: StandardScaler() | KernelRegressor(**nested(**SMALL)),
    "scaled by River": lambda: preprocessing.StandardScaler() | KernelClassifier(**nested(**FIRST)),
    "scaled, with intervals": lambda: ConformalRegressor(OTHERS["scaled"](), window=20),
    "scaled novelty": lambda: StandardScaler() | KernelNoveltyDetector(**nested(**{**SMALL, "learner": "novelty"})),
    "with history": lambda: LastTarget(n_lags=2) | Lags(["x0"]) | OTHERS["scaled"](),
}
OF_THE_OTHER_TABLE = [name for name in between.MODELS if name not in {case for case, _ in CASES}]


def last_of(model):
    """Return the last step of a pipeline, and what a wrapper wraps."""
    if isinstance(model, (compose.Pipeline, ConformalWrapper)):
        return last_of([*model.steps.values()][-1] if isinstance(model, compose.Pipeline) else model.model)
    return model


def learn_next(model, i):
    """Let a model of either table, or a pipeline that ends in one, learn example i."""
    last = last_of(model)
    if isinstance(last, (StandardScaler, Lags, KernelNoveltyDetector)):
        model.learn_one(XS[i])
    else:
        model.learn_one(XS[i], between.target(last, i))


def parts_of(model):
    """Return the state of each object of which a model consists."""
    if isinstance(model, compose.Pipeline):
        return [part for step in model.steps.values() for part in parts_of(step)]
    if isinstance(model, ConformalWrapper):
        scores = vars(model._scores)
        return [*parts_of(model.model), repr({**scores, "_level": vars(scores["_level"])})]
    return [content(model) if isinstance(model, KernelModel) else repr(vars(model))]


def answers(model):
    kind = last_of(model) if isinstance(model, compose.Pipeline) else model  # a pipeline has all models' methods
    names = [name for name in between.METHODS if hasattr(kind, name) and name != "explain_one"]
    return [getattr(model, name)(XS[5]) for name in names]


@pytest.mark.parametrize("n", [3, 30, 255])
@pytest.mark.parametrize("name", [*OF_THE_OTHER_TABLE, *OTHERS])
def test_a_handler_reads_each_object_of_a_model_before_an_example_or_after_it(name, n):
    before = (between.MODELS | OTHERS)[name]()
    for i in range(n):
        learn_next(before, i)
    after, model, found = copy.deepcopy(before), copy.deepcopy(before), []
    learn_next(after, n)
    possible = [*zip(parts_of(before), parts_of(after), strict=True)]

    def read():
        parts = parts_of(COPIES[len(found) % len(COPIES)](model))
        found.append([states.index(part) for states, part in zip(possible, parts, strict=True)])
        assert all(ours >= earlier for ours, earlier in zip(found[-1], found[max(0, len(found) - 2)], strict=True))
        answers(model)

    Handled(lambda: learn_next(model, n), read, n)
    assert parts_of(model) == parts_of(after)
    for i in range(n + 1, n + 4):
        learn_next(model, i)
        learn_next(after, i)
    assert parts_of(model) == parts_of(after)
    assert answers(model) == answers(after)


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "scaled by River"])
def test_a_handler_learns_with_a_pipeline_or_is_refused(name):
    """Its first step may learn before the last one refuses; nothing waits, and the call that is interrupted ends."""
    model, refused = OTHERS[name](), []
    for i in range(30):
        learn_next(model, i)

    def change():
        try:
            learn_next(model, 31)
        except RuntimeError as error:
            assert "in the middle of" in str(error)  # noqa: PT017
            refused.append(error)

    Handled(lambda: learn_next(model, 30), change)
    assert refused
    learn_next(model, 32)
    assert str(answers(model)).count("nan") == 0


SIGNALS = """
import copy, random, signal, sys
from streams import content
from streamkernel import GaussianProcessRegressor, KernelDriftDetector, KernelRegressor, kernels, learners, load, upkeep
def new(kind):
    if kind == "process":
        return GaussianProcessRegressor(n_features=8)
    if kind == "drift":
        return KernelDriftDetector(window=20, max_features=16)
    pruning = upkeep.Pruning(every=32, window=24)
    options = {} if kind == "newton" else {"kernel": kernels.Gaussian(1.0), "pruning": pruning}
    chosen = learners.Newton(features_per_seed=4) if kind == "newton" else learners.DSG(features_per_seed=4)
    return KernelRegressor(learner=chosen, max_features=16, **options)
def learn(model, i):
    x = {"a": (i * 37 % 101) / 101, "b": (i * 53 % 97) / 97}
    model.update(x) if hasattr(model, "update") else model.learn_one(x, x["a"] * x["b"])
pause, handled, path = random.Random(0), 0, sys.argv[1]
for trial in range(16):
    kind = ("newton", "dsg", "process", "drift")[trial % 4]
    model, twin = new(kind), new(kind)
    states = {1: content(twin)}
    def handle(number, frame):
        global handled
        handled += 1
        model.save(path)
        assert content(load(path)) == content(copy.deepcopy(model)) in states.values()
    signal.signal(signal.SIGPROF, handle)
    for i in range(280):
        states = {0: states[1]}
        learn(twin, i)
        states[1] = content(twin)
        signal.setitimer(signal.ITIMER_PROF, pause.uniform(1e-6, 3e-4))
        learn(model, i)
        signal.setitimer(signal.ITIMER_PROF, 0)
        assert content(model) == states[1], (trial, i)
print(handled)
"""

STOP = """
import signal, sys
from streamkernel import KernelRegressor, learners
model = KernelRegressor(learner=learners.{learner}, max_features=64)
def stop(number, frame):
    model.save(sys.argv[1])
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
i = 0
while True:
    model.learn_one({{"a": i % 7 / 7, "b": i % 11 / 11}}, float(i % 5))
    i += 1
    if i == 300:
        print("ready", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_the_handler_of_a_real_signal_saves_whole_models(tmp_path):
    assert int(run(SIGNALS, str(tmp_path / "model"))) > 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals of Unix")
@pytest.mark.parametrize("learner", ["Newton(features_per_seed=4)", 'DSG(step_size="auto")'])
def test_a_handler_saves_and_exits(learner, tmp_path):
    """At SIGTERM, as programs do that must not lose what they have learned."""
    path = tmp_path / "model"
    for _ in range(3):
        path.unlink(missing_ok=True)
        script = STOP.format(learner=learner)
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() == b"ready\n"
                process.terminate()
                assert process.wait(LIMIT) == 0
            finally:
                process.kill()
        assert load(path).n_steps >= 1
