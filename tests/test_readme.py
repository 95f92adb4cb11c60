"""The pages are correct: their Python runs, their TOML is valid, and the first command works in a fresh clone."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
from pathlib import Path

import pytest
import structlog

from streamkernel.engine.config.config import load_config
from tests.test_cli import call

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=lambda page: page.name)
def test_the_python_of_the_pages_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text().replace("/tmp/", f"{tmp_path}/")
    structlog.reset_defaults()  # an earlier test may have configured it, and lines of the log are shown on pages
    examples = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, page.name, page.name, 0)
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert results.attempted >= 4
    assert results.failed == 0


FRAGMENTS = {"kafka.md"}
"""Pages with parts of programs, which are compiled only."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python\n" in page.read_text()], ids=lambda page: page.name
)
def test_the_programs_of_the_pages_run(page: Path) -> None:
    for text in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        if not text.startswith(">>>"):
            program = compile(text, page.name, "exec")
            if page.name not in FRAGMENTS:
                exec(program, {})


@pytest.mark.parametrize("page", [page for page in PAGES if "```toml" in page.read_text()], ids=lambda page: page.name)
def test_the_toml_of_the_pages_is_valid(page: Path, tmp_path: Path) -> None:
    for i, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)):
        (tmp_path / f"{i}.toml").write_text(text)
        for name in re.findall(r'^path = "(\S+)"', text, re.MULTILINE):
            (tmp_path / name).touch()
        load_config(tmp_path / f"{i}.toml").check()


def test_the_check_of_types_prints_what_the_first_page_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    config, printed = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("toml", "text"))
    (tmp_path / "run.toml").write_text(re.sub(r"\[fields\].*?\[", "[", config, flags=re.DOTALL))
    with (tmp_path / "events.csv").open("w") as file:
        file.write("id,icd,age,ward,class\n")
        for i in range(1000):
            icd = f"V{40 + i % 8}" if i % 9 < 2 else f"{240 + i % 50}.{i % 10}"
            age = "unknown" if i % 100 == 3 else 20 + i * 7 % 60
            file.write(f"{i},{icd},{age},{('east', 'west')[i % 2]},{('home', 'stays')[i % 3 == 0]}\n")
    result = call("run", "--check", "run.toml", cwd=tmp_path)
    assert result.stdout == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
@pytest.mark.timeout(3600)  # it installs everything
def test_make_demo_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    answer = subprocess.run(["make", "demo"], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert (clone / "streamkernel-demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "LogisticRegression, last 1,000" in answer.stderr
