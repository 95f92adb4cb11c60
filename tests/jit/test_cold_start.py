"""Processes without stored compiled code log this once, work without a folder to store it, and can be warmed up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MESSAGE = "compiling for this machine, once"
TWO_FUNCTIONS = """
import numpy as np
from streamkernel.posterior.bayesian_linear import dots, spreads
dots(np.ones((1, 1)), np.ones(1))
spreads(np.ones((1, 1)), np.ones((1, 1)))
"""
MODELS = """
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.estimators.together import predict_and_learn
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
NOTHING_CAN_BE_WRITTEN = """
from pathlib import Path
def refuse(*arguments, **options):
    raise PermissionError("read-only")
Path.mkdir = refuse
"""
READ_ONLY = """
import tempfile
def refuse(*arguments, **options):
    raise PermissionError("read-only")
tempfile.TemporaryFile = tempfile.TemporaryDirectory = refuse
"""


def process(code: str, cache: Path | None) -> subprocess.CompletedProcess[str]:
    """Run code with compiled code in a folder, or in those that are looked for without one."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


def test_a_cold_process_logs_compilation_once(tmp_path: Path) -> None:
    assert process(TWO_FUNCTIONS, tmp_path).stderr.count(MESSAGE) == 1
    assert process(TWO_FUNCTIONS, tmp_path).stderr == ""


def test_stored_code_that_cannot_be_read_is_compiled_again(tmp_path: Path) -> None:
    process(TWO_FUNCTIONS, tmp_path)
    stored = sorted(tmp_path.rglob("*.numba"))
    for path, content in zip(stored, (b"cstreamkernel.errors\nGone\n.", b"", b"no pickle"), strict=False):
        path.write_bytes(content)
    assert process(TWO_FUNCTIONS, tmp_path).stderr.count(MESSAGE) == 1
    assert process(TWO_FUNCTIONS, tmp_path).stderr == ""


def test_a_process_without_a_writable_folder_works_and_warns() -> None:
    cold = process(NOTHING_CAN_BE_WRITTEN + TWO_FUNCTIONS + "print('done')", None)
    assert cold.stdout == "done\n"
    assert cold.stderr.count("set NUMBA_CACHE_DIR to a writable folder") == 1


def test_stored_code_is_read_from_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert process(READ_ONLY + TWO_FUNCTIONS, tmp_path).stderr.count("set NUMBA_CACHE_DIR to a writable folder") == 1
    assert not [*tmp_path.rglob("*.numba")]
    process(TWO_FUNCTIONS, tmp_path)
    assert process(READ_ONLY + TWO_FUNCTIONS, tmp_path).stderr == ""


@pytest.mark.slow
def test_models_learn_where_nothing_can_be_written() -> None:
    assert process(NOTHING_CAN_BE_WRITTEN + MODELS + "print(model.predict_one({'x': 1}))", None).stdout


@pytest.mark.slow
def test_models_compile_nothing_after_a_warm_up(tmp_path: Path) -> None:
    warm_up = process(
        "import sys; sys.argv = ['streamkernel', 'warm-up']; import streamkernel.__main__ as m; m.main()", tmp_path
    )
    assert str(tmp_path) in warm_up.stderr
    stored = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert stored
    assert process(MODELS, tmp_path).stderr == ""
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == stored


def test_importing_loads_no_optional_package() -> None:
    heavy = ("pandas", "pyarrow", "matplotlib", "kafka", "ray", "sklearn", "starlette", "scipy.optimize")
    code = f"import sys, streamkernel; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
