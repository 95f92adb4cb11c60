"""Statements about the project are the same in all files that contain them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from test_requirements import PYPROJECT

import streamkernel

ROOT = Path(__file__).parents[1]
PROJECT = PYPROJECT["project"]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
POLICY = (ROOT / "docs" / "reference" / "compatibility.md").read_text()


def supported() -> list[str]:
    """Return the versions of Python of the classifiers."""
    return re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


def test_every_supported_python_is_in_the_workflow_and_in_the_policy() -> None:
    versions = supported()
    assert JOBS["test"]["strategy"]["matrix"]["python"] == versions
    assert JOBS["windows"]["strategy"]["matrix"]["python"] == versions
    assert f"| Python | {versions[0]} to {versions[-1]}," in POLICY
    assert all(SpecifierSet(PROJECT["requires-python"]).contains(f"{version}.0") for version in versions)


def test_the_policy_has_the_bounds_of_numba() -> None:
    (numba,) = (line for line in PROJECT["dependencies"] if line.startswith("numba"))
    low, high = re.fullmatch(r"numba>=(\d\.\d+),<0\.(\d+)", numba).groups()  # type: ignore[union-attr]
    last = f"0.{int(high) - 1}"
    assert f"| numba | {low if low == last else f'{low} to {last}'}." in POLICY


def test_the_workflow_runs_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    targets = {target for command in commands for target in re.findall(r"make (\w+)", command)}
    assert {"test", "package"} <= targets
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_changelog_has_the_version_and_an_unreleased_section() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[?(Unreleased|[\d.]+)", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert PROJECT["version"] in headings
    assert streamkernel.__version__ in {PROJECT["version"], "unknown"}


def test_the_license_is_the_one_of_the_metadata() -> None:
    assert PROJECT["license"] == "BSD-3-Clause AND MIT"
    text = (ROOT / PROJECT["license-files"][0]).read_text()
    assert text.startswith("BSD 3-Clause License")
    assert "the streamkernel authors" in text


@pytest.mark.xdist_group("one")
def test_tests_with_servers_are_kept_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist appends the group to the name of a test, which some versions of pytest ignore."""
    assert "@" in request.node.nodeid or not getattr(request.config.option, "loadgroup", False)
