"""Models lose nothing under threads that predict and learn, real signals, and too little memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from streams import FIXED, content, examples, frame, learn, targets
from waiting import LIMIT

from streamkernel import KernelClassifier, KernelRegressor, learners
from streamkernel.estimators.internals import prediction_copy

XS, YS = examples(400)
ASKED = [{**XS[0], "late": 0.5}, *XS[1:4]]
MODELS = {
    "first order": lambda: KernelRegressor(FIXED, learner=learners.DSG(features_per_seed=4), max_features=64),
    "first order, averaged": lambda: KernelRegressor(
        FIXED, learner=learners.DSG(features_per_seed=4, averaging=True, batch_size=3), max_features=64
    ),
    "second order": lambda: KernelRegressor(learner=learners.Newton(features_per_seed=4), max_features=64),
}


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(n, work):
    """Do the same in several threads, and raise what one of them raises."""
    errors = []

    def run(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("names", [1, 40])
def test_each_thread_gets_its_own_prediction(name, names):
    """The threads predict examples with names of their own, and examples with the same names."""
    model = learn(MODELS[name](), XS, targets(XS))
    asked = [{f"{key}{i % names or ''}": value for key, value in x.items()} for i, x in enumerate(XS[:120])]
    for one in (model, prediction_copy(model)):
        said = [prediction_copy(model).predict_one(x) for x in asked]

        def ask(first, one=one, said=said):
            for i in [*range(first * 30, 120), *range(first * 30)]:
                assert one.predict_one(dict(asked[i])) == said[i]

        in_threads(4, ask)


@pytest.mark.parametrize("name", MODELS)
def test_predictions_during_learning_are_consistent(name):
    ys, twin, model = targets(XS), MODELS[name](), MODELS[name]()
    possible = [{twin.predict_one(x)} for x in ASKED]
    for x, y in zip(XS, ys, strict=True):
        twin.learn_one(x, y)
        for said, asked in zip(possible, ASKED, strict=True):
            said.add(twin.predict_one(asked))
    over = threading.Event()

    def work(i):
        if i == 0:
            learn(model, XS, ys)
            over.set()
            return
        while not over.is_set():
            said = model.predict_one(ASKED[i])
            if name == "second order":  # a Newton step is taken some examples after it is due
                assert min(possible[i]) - 0.5 <= said <= max(possible[i]) + 0.5
                continue
            assert said in possible[i]
            rows = model.predict_many(frame(ASKED[1:]))
            assert all(round(p, 9) in {round(q, 9) for q in said} for p, said in zip(rows, possible[1:], strict=True))

    in_threads(3, work)
    assert content(model) == content(learn(MODELS[name](), XS, ys))


@pytest.mark.parametrize("learner", [learners.Newton(features_per_seed=4), learners.DSG(features_per_seed=4)], ids=repr)
def test_threads_learn_one_at_a_time(learner):
    model = KernelClassifier(learner=learner, max_features=64)

    def work(i):
        learn(model, XS[i::3], [f"label {i}"] * len(XS[i::3]))

    in_threads(3, work)
    assert model.n_steps == len(XS)
    assert {*model.labels} == {"label 0", "label 1", "label 2"}
    assert sum(model.predict_proba_one(XS[0]).values()) == pytest.approx(1.0)


def run(script, *arguments):
    """Run a script in a process of its own, which ends with exit code 0."""
    found = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        timeout=LIMIT,
    )
    assert found.returncode == 0, found.stderr.decode()[-3000:]
    return found.stdout.decode()


SIGNALS = """
import random, signal
from streamkernel import KernelRegressor, kernels, learners
def new(kind):
    kernel = kernels.Gaussian(1.0) if kind is learners.DSG else None
    return KernelRegressor(kernel, learner=kind(features_per_seed=32), max_features=512)
def stop(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGPROF, stop)
# the timer counts processor time, so that a busy machine leaves as much time between two signals
pause, hits = random.Random(0), 0
for trial in range(120):
    kind = (learners.DSG, learners.Newton)[trial % 2]
    model, twin, values = new(kind), new(kind), random.Random(trial)
    stream = [({f"n{j}": values.gauss(0, 1) for j in range(1 + i // 3)}, values.gauss(0, 1)) for i in range(60)]
    for x, y in stream:
        twin.predict_one(x)
        twin.learn_one(x, y)
    learned = 0
    while learned < len(stream):
        try:
            signal.setitimer(signal.ITIMER_PROF, pause.uniform(1e-5, 0.004))
            for x, y in stream[learned:]:
                model.predict_one(x)
                before = model._learner.n_offered
                model.learn_one(x, y)
                learned += 1
            signal.setitimer(signal.ITIMER_PROF, 0)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_PROF, 0)
            hits += 1
            model._model.complete()
            learned = model._learner.n_offered
    asked = [{"n0": 0.3, "n5": -1.0}, stream[-1][0]]
    assert [model.predict_one(x) for x in asked] == [twin.predict_one(x) for x in asked], trial
print(hits)
"""

LOCKS = """
import random, signal, threading
from streamkernel.locking import OwnedLock, holding, locked
class Counter:
    def __init__(self):
        self._lock, self.n = OwnedLock(), 0
    @locked()
    def increment(self):
        self.n += 1
def stop(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)
counter, lock, pause, hits = Counter(), threading.RLock(), random.Random(0), 0
def look():
    for each in (counter._lock.turn, lock):
        are_free.append(each.acquire(blocking=False))
        are_free[-1] and each.release()
for trial in range(4000):
    try:
        signal.setitimer(signal.ITIMER_REAL, pause.uniform(1e-5, 2e-4))
        while True:
            counter.increment()
            holding(lock, len, ())
    except KeyboardInterrupt:
        hits += 1
    are_free = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert are_free == [True, True] and not counter._lock.is_busy, trial
print(hits)
"""

WHILE_COMPILING = """
import random, signal
from streamkernel.jit.cache import run_uninterrupted
def stop(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)
def run_five_times():
    for _ in range(5):
        assert run_uninterrupted(sum, [1, 2]) == 3
pause, hits = random.Random(0), 0
for trial in range(4000):
    try:
        signal.setitimer(signal.ITIMER_REAL, pause.uniform(1e-5, 2e-4))
        run_five_times()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        hits += 1
print(hits)
"""

SEVERAL_WHILE_COMPILING = """
import random, signal, time
from streamkernel.jit.cache import run_uninterrupted
running, signals = [], 0
def stop(number, frame):
    global signals
    signals += 1
    if running:
        raise KeyboardInterrupt
def work():
    running.append(True)
    time.sleep(2e-4)
    running.pop()
signal.signal(signal.SIGALRM, stop)
pause = random.Random(0)
for trial in range(2000):
    signal.setitimer(signal.ITIMER_REAL, pause.uniform(1e-5, 3e-4), 3e-5)
    run_uninterrupted(work)
    signal.setitimer(signal.ITIMER_REAL, 0)
print(signals)
"""

MEMORY = """
import resource
from streamkernel import KernelRegressor, kernels, learners
def new():
    return KernelRegressor(kernels.Gaussian(1.0), learner=learners.DSG(features_per_seed=4096), max_features=1 << 20)
stream = [({f"n{j}": (i * j % 7) / 7.0 for j in range(1 + i // 2)}, i % 5) for i in range(160)]
model, twin = new(), new()
for x, y in stream:
    twin.predict_one(x)
    twin.learn_one(x, y)
new().learn_one({"a": 1.0}, 1.0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
room, refused, learned = 0, 0, 0
while learned < len(stream):
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
    try:
        for x, y in stream[learned:]:
            model.predict_one(x)
            model.learn_one(x, y)
            learned += 1
    except MemoryError:
        refused += 1
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        model._model.complete()
        learned = model._learner.n_offered
        room += 1 << 20
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert [model.predict_one(x) for x, _ in stream] == [twin.predict_one(x) for x, _ in stream]
print(refused)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_signals_at_any_time_lose_nothing_learned():
    assert int(run(SIGNALS)) > 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_no_signal_leaves_a_lock_taken():
    assert int(run(LOCKS)) > 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_signals_while_code_is_compiled_are_raised_as_they_are():
    assert int(run(WHILE_COMPILING)) > 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_no_signal_ends_the_wait_for_code_that_is_compiled():
    """The first signal could end it between two lines, and the second one while the first was kept for later."""
    assert int(run(SEVERAL_WHILE_COMPILING)) > 20


def test_memory_errors_at_any_time_lose_nothing_learned():
    assert int(run(MEMORY)) > 2
