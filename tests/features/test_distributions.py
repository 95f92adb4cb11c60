"""The published files: the wheel has every module and the dashboards, the sdist has all files that the tests need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_requirements import PYPROJECT, ROOT
from typer.testing import CliRunner

from streamkernel.cli import app

FOLDERS = PYPROJECT["tool"]["setuptools"]["package-dir"]
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2])"
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
DASHBOARDS = {
    str(path.relative_to(ROOT / "dashboards"))
    for folder in ("grafana", "prometheus", "provisioning")
    for path in (ROOT / "dashboards" / folder).rglob("*.*")
}


def files_of(folder: Path, *names: str) -> Iterator[str]:
    """Return the files of a source tree that are published, in some of its folders."""
    for name in names:
        for path in (folder / name).rglob("*.*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(folder))


def not_published(folder: str, names: list[str]) -> set[str]:
    """Return the entries of a folder that are not published; `data` and `figures` are only so in the root."""
    return IGNORED(folder, names) | ({"data", "figures"} if Path(folder) == ROOT else set())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """Return the names in an sdist, and those in the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("distributions")
    shutil.copytree(ROOT, folder / "source", ignore=not_published)
    build = [sys.executable, "-c", BUILD]
    subprocess.run([*build, "sdist", folder], cwd=folder / "source", capture_output=True, check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    subprocess.run([*build, "wheel", folder], cwd=unpacked, capture_output=True, check=True)
    sdist = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*")}
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return sdist, set(wheel.namelist())


def test_every_package_is_declared() -> None:
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for name in ("streamkernel", "streamkernel/connectors")
        for path in (ROOT / name).rglob("__init__.py")
    }
    assert packages | FOLDERS.keys() == {*PYPROJECT["tool"]["setuptools"]["packages"]}


def test_a_package_of_users_that_is_named_connectors_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "__init__.py").write_text("theirs = True")
    program = "import connectors; from streamkernel.engine import Engine; print(connectors.theirs, Engine.__name__)"
    run = [sys.executable, "-c", program]
    printed = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed == "True Engine\n"


def test_the_sdist_is_complete(built: tuple[set[str], set[str]]) -> None:
    sdist, _ = built
    wanted = set(files_of(ROOT, "streamkernel", "connectors", "dashboards", "tests", "docs", "benchmarks"))
    assert wanted - sdist == set()
    assert {"README.md", "SECURITY.md", "Makefile", "pyproject.toml", "requirements/test.txt"} <= sdist
    assert not any("__pycache__" in name for name in sdist)


def test_the_wheel_has_the_packages_and_the_dashboards(built: tuple[set[str], set[str]]) -> None:
    _, wheel = built
    wanted = {
        *files_of(ROOT, "streamkernel"),
        *(f"streamkernel/{name}" for name in files_of(ROOT, "connectors")),
        *(f"streamkernel/dashboards/{name}" for name in DASHBOARDS),
    }
    (licence,) = (name for name in wanted if name.endswith(".LICENSE"))  # is where licences are in a wheel
    assert wanted - wheel == {licence}
    assert any(name.endswith(f".dist-info/licenses/{licence}") for name in wheel)
    assert {name.partition("/")[0] for name in wheel if ".dist-info/" not in name} == {"streamkernel"}


def test_dashboards_are_written_to_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "monitoring"
    assert CliRunner().invoke(app, ["dashboards", str(folder)]).exit_code == 0
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == DASHBOARDS
    again = CliRunner().invoke(app, ["dashboards", str(folder)])
    assert again.exit_code == 2
    assert again.stderr == f"streamkernel: expected a new or empty folder, got one with files - at {folder}\n"
