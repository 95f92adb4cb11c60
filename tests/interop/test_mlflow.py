"""The MLflow flavour: with MLflow in a separate environment, and without MLflow.

MLflow is not among the locked requirements: it needs older versions of packages that others here need newer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_requirements import PYPROJECT

from streamkernel import KernelClassifier, KernelNoveltyDetector, KernelRegressor
from streamkernel.interop import mlflow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how_to" / "other_programs.md"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has MLflow, and beyond that what this one has."""
    folder = tmp_path_factory.mktemp("mlflow")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    found = folder / "bin" / "python"
    words = [found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    purelib = subprocess.run(words, capture_output=True, text=True, check=True)
    own = Path(purelib.stdout.strip(), "own.pth")
    own.write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    wanted = PYPROJECT["project"]["optional-dependencies"]["mlflow"]
    subprocess.run([found, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted], check=True)
    return found


def check_runs(python: Path, folder: Path, *words: object) -> str:
    options = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [str(word) for word in (python, *words)],
        cwd=folder, env={**os.environ, **options, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_models_are_logged_saved_and_loaded(python: Path, tmp_path: Path) -> None:
    assert check_runs(python, tmp_path, Path(__file__).parent / "with_mlflow.py", tmp_path) == "done\n"


@pytest.mark.slow
def test_the_program_of_the_page_runs(python: Path, tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert "mlflow" in program
    (tmp_path / "program.py").write_text(program)
    check_runs(python, tmp_path, "program.py")


def test_rows_are_predicted_one_by_one() -> None:
    model = KernelClassifier(max_features=256)
    X = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": ["u", "v", "u"]}, index=[5, 6, 7])
    rows = X.to_dict("records")
    for x in rows:
        model.learn_one(x, x["b"] == "u")
    assert mlflow.PyfuncModel(model, "predict").predict(X).tolist() == [model.predict_one(x) for x in rows]
    found = mlflow.PyfuncModel(model, "predict_proba").predict(X)
    assert found.index.tolist() == [5, 6, 7]
    assert found["True"].tolist() == [model.predict_proba_one(x)[True] for x in rows]


def test_models_that_do_not_predict_are_rejected() -> None:
    with pytest.raises(TypeError, match="Expected a classifier or a regressor, got a KernelNoveltyDetector"):
        mlflow.PyfuncModel(KernelNoveltyDetector(), "predict")
    with pytest.raises(ValueError, match="Expected pyfunc_predict_fn to be one of predict, predict_proba, got 'score'"):
        mlflow.PyfuncModel(KernelRegressor(), "score")
    with pytest.raises(ValueError, match='Expected pyfunc_predict_fn="predict" for a KernelRegressor'):
        mlflow.PyfuncModel(KernelRegressor(), "predict_proba")


def test_without_mlflow_it_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"install it with: pip install 'streamkernel\[mlflow\]'"):
        mlflow.save_model(KernelRegressor(), tmp_path / "model")
    assert not list(tmp_path.iterdir())
