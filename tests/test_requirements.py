"""The locked requirements are those of pyproject.toml, each with its hashes; after a change: make lock."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKED = re.compile(r"([\w.-]+)==([\w.!+-]+)(?: ; [^\\]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+")


def needed(name: str) -> list[Requirement]:
    """Return what an extra needs, with those that it names, or what streamkernel itself does."""
    project: dict[str, Any] = PYPROJECT["project"]
    found = map(Requirement, project["optional-dependencies"][name] if name else project["dependencies"])
    return [
        one
        for requirement in found
        for one in (
            [requirement]
            if requirement.name != project["name"]
            else [each for extra in sorted(requirement.extras) for each in needed(extra)]
        )
    ]


IMAGE = ["engine", "confluent", "schema-registry", "compression", "objects", "otel"]
"""The extras that are in the image."""


@pytest.mark.parametrize(("file", "extras"), [("run", IMAGE), ("cluster", [*IMAGE, "ray"]), ("test", ["test"])])
def test_locked_requirements_are_those_of_the_project(file: str, extras: list[str]) -> None:
    text = (ROOT / "requirements" / f"{file}.txt").read_text()
    locked: dict[str, list[str]] = {}
    for name, version in LOCKED.findall(text):
        locked.setdefault(canonicalize_name(name), []).append(version)
    wanted = needed("") + [requirement for extra in extras for requirement in needed(extra)]
    wanted += map(Requirement, PYPROJECT["dependency-groups"]["build"])
    for requirement in wanted:
        versions = locked.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name} is not locked"
        assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), requirement
    rest = [line for line in LOCKED.sub("", text).splitlines() if not line.startswith("#")]
    assert not rest  # as the address of a registry, or a package without hashes


def test_the_image_with_ray_has_the_versions_of_the_one_without() -> None:
    run, cluster = (
        set(LOCKED.findall((ROOT / "requirements" / f"{name}.txt").read_text())) for name in ("run", "cluster")
    )
    assert run <= cluster, "make lock writes both"


def test_build_requirements_are_locked() -> None:
    assert PYPROJECT["dependency-groups"]["build"] == PYPROJECT["build-system"]["requires"]


def test_the_image_installs_nothing_else() -> None:
    commands = re.sub(r"\\\n", "", (ROOT / "deploy" / "Containerfile").read_text())
    installs = re.findall(r"pip install.*", commands)
    assert len(installs) == 3
    assert "--no-deps --require-hashes -r requirements/${REQUIREMENTS}.txt" in installs[0]
    assert "ARG REQUIREMENTS=run\n" in commands
    assert all(option in installs[1] for option in ("--no-index", "--no-deps", "--no-build-isolation"))
    assert "--no-deps --require-hashes -r requirements/bill_of_materials.txt" in installs[2]


def test_installs_resolve_nothing_beyond_the_lock() -> None:
    """pip resolves ``coverage[toml]`` by itself, and takes a release newer than the lock, whose hash is not in it."""
    files = [ROOT / "Makefile", ROOT / "deploy" / "Containerfile", *ROOT.glob(".github/workflows/*.yml")]
    installs = [line for file in files for line in file.read_text().splitlines() if "--require-hashes" in line]
    assert len(installs) >= 4
    assert all("--no-deps --require-hashes" in line for line in installs)
