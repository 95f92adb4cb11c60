"""Processes without stored compiled code log this once, work without a folder to store it, and can be warmed up."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamkernel import KernelClassifier, KernelMultiLabelClassifier, KernelMultiTargetRegressor, KernelRegressor
from streamkernel.jit.cache import check_own, checksum
from streamkernel.warm_up import warm_up

MESSAGE = "compiling for this machine, once"
TWO_FUNCTIONS = """
import numpy as np
from streamkernel.posterior.bayesian_linear import dots, spreads
dots(np.ones((1, 1)), np.ones(1))
spreads(np.ones((1, 1)), np.ones((1, 1)))
"""
OUT_OF_BOUNDS = """
import numpy as np
from streamkernel.jit import compiled
@compiled
def item(values, i):
    return values[i]
try:
    item(np.zeros(8)[:3], 5)
    print("read")
except IndexError:
    print("refused")
"""
FUNCTIONS = (
    "from streamkernel.jit import compiled\n"
    + "".join(f"@compiled\ndef plus_{i}(x):\n    return x + {i}\n" for i in range(1, 7))
    + "print("
    + " + ".join(f"plus_{i}(0.0)" for i in range(1, 7))
    + ")\n"
)
FEW_CALLS = """
import sys, threading
from streamkernel.jit import compiled
@compiled
def half(x):
    return x / 2
def after(calls):
    if calls:
        after(calls - 1)
    else:
        print(half(1.0))
sys.setrecursionlimit(60)
try:
    after(0)
except RecursionError as error:
    print("refused" if "recursion limit" in str(error) else error)
sys.setrecursionlimit(600)
thread = threading.Thread(target=after, args=(570,))
thread.start()
thread.join()
"""
MODELS = """
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.estimators.internals import predict_and_learn
for learner in ("newton", "dsg"):
    for make, y in ((KernelClassifier, str), (KernelRegressor, float)):
        model = make(learner=learner)
        for i in range(300):
            model.learn_one({"x": i % 7, "colour": "red"}, y(i % 3))
        model.predict_one({"x": 2.5, "z": True})
        model.explain_one({"x": 2.5, "z": True})
        numeric = make(learner=learner)
        for i in range(300):
            numeric.learn_one({"x": i % 7}, y(i % 2))
        scores, values = predict_and_learn(numeric, [{"x": i} for i in range(7)], [y(i % 2) for i in range(7)], 1e9)
        assert len(scores) == (7 if learner == "dsg" or y is str else 0), len(scores)
"""
RUN = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelClassifier"
learner = "LEARNER"
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state-LEARNER"
[drift]
[http]
port = 0
"""
NOTHING_CAN_BE_WRITTEN = """
from pathlib import Path
def refuse(*arguments, **options):
    raise PermissionError("read-only")
Path.mkdir = refuse
"""
DISASTERS = {
    "its folder is deleted": "import shutil\nfrom streamkernel.jit.cache import folder\nshutil.rmtree(folder())",
    "the disk is full": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))",
}
READ_ONLY = """
import tempfile
def refuse(*arguments, **options):
    raise PermissionError("read-only")
tempfile.TemporaryFile = tempfile.TemporaryDirectory = refuse
"""


def process(code: str, cache: Path | None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run code with compiled code in a folder, or in those that are looked for without one, and settings of numba."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | settings
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


def test_a_cold_process_logs_compilation_once(tmp_path: Path) -> None:
    assert process(TWO_FUNCTIONS, tmp_path).stderr.count(MESSAGE) == 1
    assert process(TWO_FUNCTIONS, tmp_path).stderr == ""


def test_damaged_code_is_compiled_again_and_replaced(tmp_path: Path) -> None:
    assert process(FUNCTIONS, tmp_path).stdout == "21.0\n"
    stored = sorted(tmp_path.rglob("*.numba"))
    bit, half, zeros, _, *last = contents = [path.read_bytes() for path in stored]
    assert len(last) == 2
    middle, gone = len(bit) // 2, b"cstreamkernel.errors\nGone\n."
    damaged = [
        bit[:middle] + bytes([bit[middle] ^ 4]) + bit[middle + 1 :],
        half[: len(half) // 2],
        bytes(len(zeros)),
        checksum(stored[3].name, gone) + gone,  # of another release
        *reversed(last),
    ]
    assert not any(map(operator.eq, contents, damaged))
    for path, content in zip(stored, damaged, strict=True):
        path.write_bytes(content)
    again = process(FUNCTIONS, tmp_path)
    assert (again.stdout, again.stderr.count(MESSAGE)) == ("21.0\n", 1)
    assert not any(map(operator.eq, damaged, [path.read_bytes() for path in stored]))
    assert process(FUNCTIONS, tmp_path).stderr == ""


def test_code_with_and_without_checked_bounds_is_stored_separately(tmp_path: Path) -> None:
    for checked, expected in (("0", "read\n"), ("1", "refused\n"), ("0", "read\n")):
        assert process(OUT_OF_BOUNDS, tmp_path, NUMBA_BOUNDSCHECK=checked).stdout == expected


def test_code_is_not_compiled_where_numba_would_reach_the_limit_of_calls(tmp_path: Path) -> None:
    assert process(FEW_CALLS, tmp_path).stdout == "refused\n0.5\n"


def test_a_process_without_a_writable_folder_works_and_warns() -> None:
    cold = process(NOTHING_CAN_BE_WRITTEN + TWO_FUNCTIONS + "print('done')", None)
    assert cold.stdout == "done\n"
    assert cold.stderr.count("set NUMBA_CACHE_DIR to a writable folder") == 1


def test_stored_code_is_read_from_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert process(READ_ONLY + TWO_FUNCTIONS, tmp_path).stderr.count("set NUMBA_CACHE_DIR to a writable folder") == 1
    assert not [*tmp_path.rglob("*.numba")]
    process(TWO_FUNCTIONS, tmp_path)
    assert process(READ_ONLY + TWO_FUNCTIONS, tmp_path).stderr == ""


@pytest.mark.parametrize("disaster", DISASTERS.values(), ids=DISASTERS)
def test_code_is_compiled_while_it_cannot_be_stored_and_stored_later(tmp_path: Path, disaster: str) -> None:
    assert process(disaster + TWO_FUNCTIONS + "print('done')", tmp_path).stdout == "done\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    for compiled in (1, 0):
        assert process(TWO_FUNCTIONS, tmp_path).stderr.count(MESSAGE) == compiled


def test_a_temporary_folder_that_another_user_may_have_prepared_is_not_used(tmp_path: Path) -> None:
    """What is stored there is executed."""
    own, open_to_all, link = tmp_path / "own", tmp_path / "open", tmp_path / "link"
    own.mkdir(mode=0o700)
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link.symlink_to(own)
    check_own(own)
    for path in (open_to_all, link, Path("/usr")):
        with pytest.raises(PermissionError, match=f"no other user can read or write - at {path}"):
            check_own(path)


@pytest.mark.slow
def test_models_learn_where_nothing_can_be_written() -> None:
    assert process(NOTHING_CAN_BE_WRITTEN + MODELS + "print(model.predict_one({'x': 1}))", None).stdout


def command(*words: object) -> str:
    """Return the code of a process that runs a command of this library."""
    return f"import sys; sys.argv = {['streamkernel', *map(str, words)]}; import streamkernel.__main__ as m; m.main()"


@pytest.mark.slow
def test_models_and_runs_compile_nothing_after_a_warm_up(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert str(cache) in process(command("warm-up"), cache).stderr
    stored = {path.name for path in cache.rglob("*") if path.is_file()}
    assert stored
    assert process(MODELS, cache).stderr == ""
    events = [{"a": i % 7 / 7, "b": i % 5 / 5, "y": (i % 7 > 3) != (i % 5 > 2)} for i in range(1000)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for learner in ("newton", "dsg"):
        config = tmp_path / f"{learner}.toml"
        config.write_text(RUN.replace("LEARNER", learner))
        for _ in range(2):  # the second continues from the state of the first
            assert MESSAGE not in process(command("run", config), cache).stderr
    assert {path.name for path in cache.rglob("*") if path.is_file()} == stored


@pytest.mark.parametrize(
    "make", [KernelClassifier, KernelRegressor, KernelMultiTargetRegressor, KernelMultiLabelClassifier]
)
def test_a_model_of_every_kind_can_be_warmed_up(make: Any) -> None:
    model = make(max_features=16)
    warm_up(model, explains=True)
    assert model.n_steps == 0


def test_importing_loads_no_optional_package() -> None:
    heavy = ("pandas", "pyarrow", "matplotlib", "kafka", "ray", "sklearn", "starlette", "scipy.optimize")
    code = f"import sys, streamkernel; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


SENT = """
import _thread, ctypes, sys
from streamkernel.jit.cache import run_uninterrupted

begin, send = _thread.start_new_thread, ctypes.pythonapi.PyThreadState_SetAsyncExc

def begin_with_exception(*arguments):
    thread = begin(*arguments)
    while not send(ctypes.c_ulong(thread), ctypes.py_object(TimeoutError)):
        pass
    return thread

sys.setswitchinterval(100.0)  # the thread begins when this one waits
_thread.start_new_thread = begin_with_exception
try:
    run_uninterrupted(print, "not sent")
except TimeoutError:
    print("raised")
"""


def test_an_exception_sent_to_a_thread_that_begins_to_compile_is_raised_by_its_caller() -> None:
    answer = subprocess.run([sys.executable, "-c", SENT], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout == "raised\n"
