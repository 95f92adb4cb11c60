"""A process that is forked while a thread learns continues with the model before that thread's example or after it."""

from __future__ import annotations

import os

import pytest
from test_threads_and_signals import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")

WHILE_LEARNING = """
import copy, os, pickle, queue, signal, sys, threading
sys.path.insert(0, "estimators")
from streams import content
from test_interruptions import PACKAGE, XS, at, feed
from streamkernel.locking import holding
def enter(where, event, _):
    if where.f_code is holding.__code__:  # a fork waits until these calls end, and this test would stop them
        return None
    return line if where.f_code.co_filename.startswith(PACKAGE) else None
def line(where, event, _):
    here = where.f_code.co_filename, where.f_lineno
    if event == "line" and here not in seen:
        seen.add(here)
        if len(seen) % 9 == 0:
            go = threading.Event()
            stopped.put(go)
            go.wait()
    return line
def work():
    sys.settrace(enter)
    feed(model, n)
    sys.settrace(None)
    stopped.put(None)
def child(out):
    signal.alarm(200)  # a child that hangs ends, and the test fails
    asked = [model.predict_one(XS[5])] if hasattr(model, "predict_one") else []
    before = content(model)
    feed(model, n + 2)
    with os.fdopen(out, "wb") as pipe:
        pickle.dump((before, content(model), asked), pipe)
for case in sys.argv[1:]:
    name, n = case.rsplit(" ", 1)
    n = int(n)
    model, states = at(name, n), {}
    for i in (n, n + 1):
        twin = at(name, i)
        more = copy.deepcopy(twin)
        feed(more, n + 2)
        states[content(twin)] = content(more), [twin.predict_one(XS[5])] if hasattr(twin, "predict_one") else []
    stopped, seen = queue.Queue(), set()
    thread, forks = threading.Thread(target=work, daemon=True), 0
    thread.start()
    while go := stopped.get():
        read, write = os.pipe()
        if not os.fork():
            try:
                child(write)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            given = pipe.read()
        os.wait()
        assert given, "a child has hung or failed"
        before, after, asked = pickle.loads(given)
        assert before in states, "not the model before the example, nor after it"
        assert (after, asked) == states[before]
        forks += 1
        go.set()
    thread.join()
    assert content(model) == list(states)[1]
    assert forks > 2
"""

WITH_A_JOB = """
import os, sys
from streams import content
from streamkernel import KernelRegressor, kernels, learners, upkeep
def new():
    return KernelRegressor(kernels.Gaussian(1.5), learner=learners.DSG(features_per_seed=4), max_features=16,
                           pruning=upkeep.Pruning(every=32, window=24))
def learn(model, first, last):
    for i in range(first, last):
        x = {"a": (i * 37 % 101) / 101, "b": (i * 53 % 97) / 97}
        model.learn_one(x, x["a"] * x["b"])
model, twin = new(), new()
learn(twin, 0, 120)
learn(model, 0, 40)  # a job runs from 32 to 48 examples
pid = os.fork()
learn(model, 40, 120)
assert model.n_prunings == twin.n_prunings > 0
assert content(model) == content(twin)
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""

UNDIVIDED = """
import os, threading, time
from numba.core.compiler_lock import global_compiler_lock
from streamkernel import locking
state, began = [], threading.Event()
def work(lock):
    with lock:
        began.set()
        time.sleep(0.2)
        state.append(1)
for n, lock in enumerate((locking.undivided(), global_compiler_lock), 1):
    began.clear()
    thread = threading.Thread(target=work, args=(lock,))
    thread.start()
    began.wait()
    pid = os.fork()
    with lock:
        assert len(state) == n
    if not pid:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
"""


@pytest.mark.parametrize(
    "cases",
    [
        ["first order, labels 30", "first order, bandwidth 255"],
        ["second order 30", "second order 263"],
        ["process 3", "drift 40", "pruning 47"],
    ],
    ids=["first order", "second order", "others"],
)
def test_children_continue_with_whole_models(cases):
    """The thread is stopped at one line after the other, and the process is forked there."""
    run(WHILE_LEARNING, *cases)


def test_a_job_starts_again_in_a_child():
    run(WITH_A_JOB)


def test_a_fork_waits_for_calls_without_the_interpreters_lock():
    run(UNDIVIDED)
