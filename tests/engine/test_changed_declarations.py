"""Declared types that change on a running state, through the command line, over lines of JSON and CSV."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from streamkernel import Fields, load
from tests.test_cli import call

MODELS = {"dsg": 'learner = "dsg"\nmax_features = 64', "newton": "max_features = 64"}
N = 300
"""Records between two starts."""

each_model = pytest.mark.parametrize("model", MODELS)
each_form = pytest.mark.parametrize("form", ["jsonl", "csv"])


class Stream:
    """A file that grows between starts of a run on one state; its label is whether a code is above 4.

    Parameters
    ----------
    folder
        Where its files are.
    form
        The format of the file.
    model
        The parameters of the model.
    """

    def __init__(self, folder: Path, form: str, model: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self._form, self._model, self._generator = folder, form, model, random.Random(3)

    def run(self, declared: str | None, *, has_code: bool = True, letter: str = "") -> list[dict[str, Any]]:
        """Append records, run with a type of the code, and return the new predictions; nothing may be refused."""
        rows: list[dict[str, Any]] = []
        for _ in range(N):
            a, code = self._generator.gauss(0, 1), self._generator.randrange(10)
            written = f"{letter}{code}" if letter else code
            rows.append({"a": a, "code": written if has_code else None, "y": "yes" if code > 4 else "no"})
        path = self.folder / f"events.{self._form}"
        is_new = not path.exists()
        with path.open("a", newline="") as file:
            if self._form == "jsonl":
                file.writelines(json.dumps(row) + "\n" for row in rows)
            else:
                writer = csv.DictWriter(file, rows[0])
                if is_new:
                    writer.writeheader()
                writer.writerows(rows)
        (self.folder / "run.toml").write_text(
            f'label = "y"\n[source]\npath = "{path.name}"\n[model]\ntype = "KernelClassifier"\n{self._model}\n'
            '[sink]\npredictions = "out.jsonl"\ndead_letters = "dead.jsonl"\n[state]\ndirectory = "state"\n'
            + (f'[fields]\ncode = "{declared}"\n' if declared else "")
        )
        result = call("run", "run.toml", cwd=self.folder)
        assert result.exit_code == 0, result.output
        assert (self.folder / "dead.jsonl").read_text() == ""
        return [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()][-N:]


def accuracy(lines: list[dict[str, Any]]) -> float:
    return sum(line["prediction"] == line["label"] for line in lines) / len(lines)


@each_form
@each_model
def test_each_type_has_what_was_learned_with_it(tmp_path: Path, model: str, form: str) -> None:
    """A number that becomes a category is learned anew, and is known when it is a number again."""
    stream = Stream(tmp_path, form, MODELS[model])
    assert accuracy(stream.run(None)[-100:]) > 0.9
    as_category = stream.run("category")
    assert accuracy(as_category[:10]) < 0.8
    assert accuracy(as_category[-100:]) > 0.9
    for declared in ("number", "category", None):
        assert accuracy(stream.run(declared)[:50]) > 0.9
    assert as_category[0]["model_version"] == N


@each_form
@each_model
def test_what_was_counted_of_a_field_before_its_declaration_ended_is_forgotten(
    tmp_path: Path, model: str, form: str
) -> None:
    """Texts would otherwise be dead letters among the numbers of the first run."""
    stream = Stream(tmp_path, form, MODELS[model])
    stream.run(None)
    stream.run("category", letter="c")
    assert accuracy(stream.run(None, letter="c")[:50]) > 0.9


@each_form
@each_model
@pytest.mark.parametrize("declared", ["ignore", "identifier"])
def test_a_field_that_becomes_ignored_counts_as_missing(tmp_path: Path, model: str, form: str, declared: str) -> None:
    """Compare with a stream whose later records lack it."""
    ignored, without = (Stream(tmp_path / name, form, MODELS[model]) for name in ("ignored", "without"))
    for stream in (ignored, without):
        stream.run(None)
    lines = ignored.run(declared), without.run(None, has_code=False)
    assert [line["probabilities"] for line in lines[0]] == [line["probabilities"] for line in lines[1]]
    assert accuracy(ignored.run("number")[:50]) > 0.9


@each_form
@each_model
def test_a_loaded_state_goes_on_behind_another_declaration(tmp_path: Path, model: str, form: str) -> None:
    stream = Stream(tmp_path, form, MODELS[model])
    stream.run(None)
    stream.run("category")
    pipeline = Fields({"code": "category"}) | load(tmp_path / "state")
    lines = stream.run("category")
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[2 * N])
    assert first == lines[0]
    rows = (tmp_path / "events.jsonl").read_text().splitlines() if form == "jsonl" else None
    x = json.loads(rows[2 * N]) if rows else list(csv.DictReader((tmp_path / "events.csv").open()))[2 * N]
    inputs = {"a": float(x["a"]), "code": x["code"]}
    shares = {str(label): share for label, share in pipeline.predict_proba_one(inputs).items()}
    assert shares == pytest.approx(first["probabilities"])


def test_the_log_of_a_declared_field_proposes_no_declaration(tmp_path: Path) -> None:
    codes = "1001", "1002", "2001", "20X1", "0099", "99", "1e3"
    rows = [f"{codes[i % 7]},{i / 9},{i % 2}\n" for i in range(3 * N)]
    (tmp_path / "run.toml").write_text(
        'label = "y"\n[source]\npath = "events.csv"\n[model]\ntype = "KernelClassifier"\nmax_features = 64\n'
        '[sink]\npredictions = "out.jsonl"\n[state]\ndirectory = "state"\n'
    )
    (tmp_path / "events.csv").write_text("code,a,y\n" + "".join(rows[: 2 * N]))
    assert r"field \"code\"" in call("run", "run.toml", cwd=tmp_path).output
    with (tmp_path / "run.toml").open("a") as file:
        file.write('[fields]\ncode = "category"\n')
    with (tmp_path / "events.csv").open("a") as file:
        file.writelines(rows[2 * N :])
    assert r"field \"code\"" not in call("run", "run.toml", cwd=tmp_path).output
