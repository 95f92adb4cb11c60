"""The documentation site builds without warnings, has every page, and loads nothing from another host."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
import yaml

from docs.generated import RULES, commands_of
from streamkernel.cli import app
from streamkernel.engine.telemetry.figures import FIGURES

ROOT = Path(__file__).parents[2]
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
"""Elements that make a browser load something, and the attribute with its address."""


class Loads(HTMLParser):
    """Collects what a page makes a browser load; links that a reader follows are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.addresses.append(found.get("href") or "")
        elif tag in LOADED:
            self.addresses.append(found.get(LOADED[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.parent.relative_to(site) for path in site.rglob("index.html")}
    assert {Path() if page == Path("index") else page for page in pages} <= built


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        loads = Loads()
        loads.feed(path.read_text())
        assert loads.addresses
        assert [address for address in loads.addresses if re.match(r"(https?:)?//", address)] == []
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)\"']*", path.read_text()) == []


@pytest.mark.parametrize(
    "name", ["KernelClassifier", "KernelRegressor", "load", "DSG", "Gaussian", "DSPDC", "Engine", "learning_curve"]
)
def test_the_reference_contains_the_docstrings(site: Path, name: str) -> None:
    text = "".join(path.read_text() for path in (site / "reference" / "api").rglob("*.html"))
    assert re.search(rf'<h\d id="[\w.]+\.{name}"', text)
    assert ":class:" not in text


def test_the_algorithm_on_one_screen_is_in_its_page(site: Path) -> None:
    text = re.sub("<[^>]+>", "", (site / "explanation" / "one_screen" / "index.html").read_text())
    for name in ("default_learner.py", "cdsg.py"):
        *_, last = (ROOT / "tests" / "reference" / name).read_text().splitlines()
        assert last.strip() in html.unescape(text)


def test_the_page_of_the_command_line_has_every_command_and_option(site: Path) -> None:
    text = html.unescape((site / "reference" / "command_line" / "index.html").read_text())
    for name, command in commands_of(typer.main.get_command(app)):
        assert f"<code>streamkernel {name}" in text
        for parameter in command.params:
            assert parameter.name == "help" or (parameter.help or "") in re.sub("<[^>]+>", "", text)


def test_the_page_of_metrics_has_every_figure_and_every_alert(site: Path) -> None:
    text = html.unescape((site / "reference" / "metrics" / "index.html").read_text())
    for figure in (figure for figures in FIGURES.values() for figure in figures if figure.name):
        labels = f"{{{','.join(figure.labels)}}}" if figure.labels else ""
        name = f"streamkernel_{figure.name}{'_total' * (figure.kind == 'counter')}{labels}"
        assert re.search(rf"<code>{re.escape(name)}</code></td>\s*<td>{figure.kind}</td>", text), name
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        assert rule["annotations"]["runbook"] in text
