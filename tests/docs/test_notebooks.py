"""The notebooks run from the first cell to the last, as JupyterLab would run them, and are stored without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import pyplot

FOLDER = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(FOLDER.rglob("*.ipynb"))


def run(source: str, names: dict[str, Any], where: str) -> Any:
    """Run a cell, and return the value that a notebook would show: that of a last expression without a semicolon."""
    *body, last = ast.parse(source).body
    exec(compile(ast.Module(body, []), where, "exec"), names)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), where, "exec"), names)
        return None
    value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    return None if source.rstrip().endswith(";") else value


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("Agg")
    pyplot.close("all")
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            value = run("".join(cell["source"]), names, f"{path.name}, {cell['id']}")
            if value is not None:
                shown.append(value._repr_html_())
    assert len(pyplot.get_fignums()) == 5
    pyplot.close("all")
    assert len(shown) == 3
    assert "events learned" in shown[1]
    assert "1,250" in shown[1]


def test_each_notebook_is_linked_from_a_page() -> None:
    text = "".join(page.read_text() for page in FOLDER.rglob("*.md"))
    assert NOTEBOOKS
    assert [path.name for path in NOTEBOOKS if f"/{path.name})" not in text] == []
