"""Files from someone else: each mutant of a file is read or refused, in little time and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutants import KINDS, outcomes
from river import compose
from streams import regressor

from streamkernel import ModelFileError, load, save, tensor_file

MUTANTS = int(os.environ.get("STREAMKERNEL_MUTANTS", "40"))
"""Of each kind of file; `make test-nightly` has 10,000."""


@pytest.mark.timeout(900 + MUTANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_mutant_is_read_or_refused(kind: str) -> None:
    read, refused, others = outcomes(kind, MUTANTS)
    assert not others
    assert read
    assert refused


DOUBLING = [{"tuple": ["a"]}, *({"tuple": [{"ref": k + 1}, {"ref": k + 1}]} for k in range(60))]
"""A tuple of 2⁶⁰ values in 61 tuples, to hash which takes as many steps in one call."""

BOMBS: dict[str, Any] = {
    "a set of it": [*DOUBLING, {"set": [{"ref": 61}]}],
    "a frozenset of it": [*DOUBLING, {"frozenset": [{"ref": 61}]}],
    "a key of it": [*DOUBLING, {"dict": [[{"ref": 61}, 1]]}],
    "it as a factory": [*DOUBLING, {"defaultdict": [{"ref": 61}, []]}],
    "tuples so deep that to hash them takes all of the stack": [
        {"tuple": ["a"]}, *({"tuple": [{"ref": k + 1}]} for k in range(200_000)), {"set": [{"ref": 200_001}]}
    ],
    "keys of one hash": {"set": [{"int": hex(k * ((1 << 61) - 1))} for k in range(60_000)]},
    "arguments without end": {"partial": [{"name": "builtins.list"}, {"range": [0, 10**11, 1]}, {"dict": []}]},
    "a long range": {"range": [0, 10**9, 1]},
    "a mask without end": {"VectorDict": [{"dict": []}, None, {"range": [0, 10**9, 1]}]},
    "a seed without end": {"Random": [{"range": [0, 10**9, 1]}]},
    "entries without size": {"array": ["|S0", [10**15], "C", {"bytes": ""}]},
    "a window": {"compiled": ["river._river_rust.stats.RsRollingQuantile", {"tuple": [0.5, 10**11]}, {"bytes": ""}]},
}  # fmt: skip


def test_values_that_would_take_all_time_or_memory_are_refused(tmp_path: Path) -> None:
    for name, state in BOMBS.items():
        tensor_file.write(tmp_path / name, "pipeline", {"state": state, "models": []}, {"x": np.zeros(1)})
    program = (
        "import resource, sys, streamkernel\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "for path in sys.argv[1:]:\n"
        "    try: streamkernel.load(path)\n"
        "    except streamkernel.ModelFileError as error: assert 'enough memory' not in str(error), error\n"
        "    else: raise AssertionError(path)\n"
    )
    subprocess.run([sys.executable, "-c", program, *map(str, tmp_path.iterdir())], check=True, timeout=300)


@pytest.mark.parametrize("state", [[], {"dict": []}, 5, None, {"name": "builtins.list"}], ids=repr)
def test_a_file_of_a_pipeline_holds_one(state: Any, tmp_path: Path) -> None:
    tensor_file.write(tmp_path / "model", "pipeline", {"state": state, "models": []}, {"x": np.zeros(1)})
    with pytest.raises(ModelFileError, match="Expected a Base, got a"):
        load(tmp_path / "model")


def changed(tmp_path: Path, change: Any) -> Path:
    """Return the path of a pipeline's file with another description."""
    path = tmp_path / "model"
    save(compose.Select("a") | regressor(), path)
    description, tensors = tensor_file.read(path, "pipeline")
    change(description)
    tensor_file.write(path, "pipeline", description, tensors)
    return path


def test_the_steps_of_a_pipeline_are_objects_of_river(tmp_path: Path) -> None:
    def change(description: Any) -> None:
        description["state"]["state"]["steps"]["OrderedDict"][1][1] = 5

    with pytest.raises(ModelFileError, match="Expected River's objects in a Pipeline, got a int"):
        load(changed(tmp_path, change))


def test_a_model_is_built_once(tmp_path: Path) -> None:
    def change(description: Any) -> None:
        steps = description["state"]["state"]["steps"]["OrderedDict"]
        steps.append(["another", steps[1][1]])

    with pytest.raises(ModelFileError):
        load(changed(tmp_path, change))


def test_too_little_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise MemoryError

    path = tmp_path / "model"
    regressor().save(path)
    monkeypatch.setattr("streamkernel.estimators.regressor.KernelRegressor._restore", none)
    with pytest.raises(ModelFileError, match=r"^Expected enough memory to read the file, which may be whole, got Mem"):
        load(path)


def test_a_file_that_cannot_be_opened_is_not_missing(tmp_path: Path) -> None:
    path = tmp_path / "model"
    regressor().save(path)
    load(path)  # imports
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=f"Too many open files: '{path}'"):
            load(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
