"""The estimators need nothing of the extra `engine`, and the command line says what to install without it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from test_requirements import PYPROJECT

ENGINE = {
    re.split(r"[<>=\[]", requirement)[0] for requirement in PYPROJECT["project"]["optional-dependencies"]["engine"]
}
WITHOUT_ENGINE = f"""
import sys
for name in {sorted(name for name, owners in packages_distributions().items() if ENGINE & {*owners})}:
    sys.modules[name] = None
"""
ESTIMATORS = """
import streamkernel
from streamkernel import *
model = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64)
model.learn_one({"x": 1.0}, True)
model.save(sys.argv[1])
print(load(sys.argv[1]).predict_one({"x": 1.0}))
from river import preprocessing
pipeline = preprocessing.StandardScaler() | model
save(pipeline, sys.argv[1])
print(load(sys.argv[1]).predict_one({"x": 1.0}))
"""
COMMAND = """
from streamkernel.__main__ import main
main()
"""


def process(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-c", WITHOUT_ENGINE + code, *words)
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def test_estimators_work_without_the_engine(tmp_path: Path) -> None:
    assert "kafka" in WITHOUT_ENGINE
    assert process(ESTIMATORS, tmp_path / "model").stdout == "True\nTrue\n"


def test_the_command_line_names_the_package_to_install_without_the_engine() -> None:
    found = process(COMMAND, "run", "config.toml")
    assert found.returncode == 1
    assert len(found.stderr.splitlines()) == 1
    assert "pip install 'streamkernel[engine]'" in found.stderr


WITHOUT_ONNX = """
import sys
sys.modules["onnx"] = None
from streamkernel import KernelRegressor
from streamkernel.interop import to_numpy, to_onnx
model = KernelRegressor()
model.learn_one({"x": 1.0}, 1.0)
to_numpy(model, sys.argv[1])
try:
    to_onnx(model)
except ImportError as error:
    print(error)
"""


def test_an_export_for_onnx_names_the_package_to_install(tmp_path: Path) -> None:
    found = process(WITHOUT_ONNX, tmp_path / "model.npz")
    assert found.stdout == "Expected the package onnx; install it with: pip install 'streamkernel[onnx]'\n", (
        found.stderr
    )
