"""Runs on tables as other programs write them: delimiters, decimal commas, encodings, no header, row numbers."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import brokers
import pytest
from click.testing import Result
from typer.testing import CliRunner

from streamkernel.cli import app

_RNG = random.Random(0)
ROWS = [(_RNG.gauss(0, 2000), f"{_RNG.randrange(20):03}", _RNG.choice(["Köln", "Ulm"])) for _ in range(40)]
"""A number, a code with leading zeros, and a text; the label tells whether the number is positive."""


def table(
    delimiter: str = ",", comma: str = "", header: str = "a,code,town,y", begin: str = "", end: str = "", nl: str = "\n"
) -> str:
    """Return the rows as text; `comma` is the number's format if it has a decimal comma."""
    lines = [header.replace(",", delimiter)] if header else []
    for i, (a, code, town) in enumerate(ROWS):
        number = f"{a:{comma}}".translate(str.maketrans(",.", ".,")) if comma else f"{a:.2f}"
        lines.append(begin.format(i=i) + delimiter.join([number, code, town, "np"[a > 0]]) + end)
    return nl.join(lines) + nl


def config_of(folder: Path, name: str, source: str = "", label: str = "y", more: str = "") -> Path:
    path = folder / "run.toml"
    path.write_text(
        f'label = "{label}"\n{more}\n[source]\npath = "{name}"\n{source}\n[model]\ntype = "KernelClassifier"\n'
        'max_features = 32\n[sink]\npredictions = "predictions.jsonl"\ndead_letters = "dead.jsonl"\n'
    )
    return path


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def answers(folder: Path, name: str, data: bytes, source: str = "", code: int = 0) -> list[Any]:
    """Return the predictions of a run on a file, and check that no record was refused."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    result = command("run", config_of(folder, name, source))
    assert lines_of(folder / "dead.jsonl") == []
    assert result.exit_code == code, result.output
    return answers_in(folder)


def answers_in(folder: Path) -> list[Any]:
    lines = lines_of(folder / "predictions.jsonl")
    return [(line["label"], line["prediction"], line["probabilities"]) for line in lines]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    found = answers(tmp_path_factory.mktemp("plain"), "e.csv", table().encode())
    assert len(found) == len(ROWS)
    return found


VARIANTS: dict[str, tuple[str, bytes, str]] = {
    "semicolons": ("e.csv", table(";").encode(), 'delimiter = ";"'),
    "bars": ("e.csv", table("|").encode(), 'delimiter = "|"'),
    "tabs by suffix": ("e.tsv", table("\t").encode(), ""),
    "decimal commas": ("e.csv", table(";", ".2f").encode(), 'delimiter = ";"\ndecimal = ","'),
    "points between thousands": ("e.csv", table(";", ",.2f").encode(), 'delimiter = ";"\ndecimal = ","'),
    "tabs and commas": ("e.tsv", table("\t", ".2f").encode(), 'decimal = ","'),
    "latin-1": ("e.csv", table().encode("latin-1"), 'encoding = "latin-1"'),
    "UTF-16": ("e.csv", table(nl="\r\n").encode("utf-16"), 'encoding = "utf-16"'),
    "UTF-16 of one order": ("e.csv", ("\ufeff" + table()).encode("utf-16-be"), 'encoding = "utf-16-be"'),
    "a mark": ("e.csv", table(";").encode("utf-8-sig"), 'delimiter = ";"'),
    "no header": ("e.csv", table(header="").encode(), 'columns = ["a", "code", "town", "y"]'),
    "row numbers": ("e.csv", table(header=",a,code,town,y", begin="{i},").encode(), ""),
    "row numbers of pandas": ("e.csv", table(header="Unnamed: 0,a,code,town,y", begin="{i},").encode(), ""),
    "a header beside columns": ("e.csv", table().encode(), 'columns = ["a", "code", "town", "y"]'),
    "an empty end of the header": ("e.csv", table(header="a,code,town,y,").encode(), ""),
    "an empty end": ("e.csv", table(header="a,code,town,y,", end=",").encode(), ""),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_table_is_the_same_however_it_is_written(tmp_path: Path, plain: list[Any], variant: str) -> None:
    name, data, source = VARIANTS[variant]
    assert answers(tmp_path, name, data, source) == plain
    assert command("run", "--check", tmp_path / "run.toml").exit_code == 0


def test_columns_that_are_left_out_are_logged(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(",a,y,\n0,1,n,\n1,2,p,\n")
    output = command("run", config_of(tmp_path, "e.csv")).output
    assert "the first column, which has row numbers and no name, is left out" in output
    assert "the last column, which has neither a name nor values, is left out" in output


def test_columns_that_are_left_out_are_named_once_by_a_check(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(table(header=",a,code,town,y,", begin="{i},", end=","))
    config = config_of(tmp_path, "e.csv")
    config.write_text(f'{config.read_text()}[state]\ndirectory = "state"\n')
    for _ in range(2):  # without a state, and with one
        output = command("run", "--check", config).output
        assert output.count("the first column, which has row numbers and no name, is left out") == 1
        assert output.count("the last column, which has neither a name nor values, is left out") == 1
        assert command("run", config).exit_code == 0


@pytest.mark.parametrize("code", ["1E2 100", "1.10 1.1", "7E3 9E1", "12345678901234567890 2", "250 250.0"])
def test_a_check_names_numbers_that_look_like_codes(tmp_path: Path, code: str) -> None:
    def check(fields: str, codes: list[str], label: str = "np") -> str:
        rows = [f"{i},{codes[i % len(codes)]},{label[i % 2]}" for i in range(60)]
        (tmp_path / "e.csv").write_text("\n".join(["a,v,y", *rows, ""]))
        config = config_of(tmp_path, "e.csv")
        config.write_text(f"{config.read_text()}[fields]\n{fields}\n")
        result = command("run", "--check", config)
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    found = check("", code.split())
    assert "field v: numbers; looks like codes, because " in found
    assert 'if so, declare it: [fields] v = "category"' in found
    assert "codes" not in check('v = "category"', code.split())
    assert "codes" not in check("", ["0.5", "-0.0", "0", "1e-05", "123456.789012345678", "12"])


def test_a_check_names_labels_that_look_like_codes(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,y\n" + "1,250.0\n2,250\n" * 30)
    output = " ".join(command("run", "--check", config_of(tmp_path, "e.csv")).output.split())
    assert "note: label y looks like codes: 250.0 and 250 are one number" in output


@pytest.mark.parametrize("code", ["1E2 100", "1.10 1.1", "007 7", "12345678901234567890 12345678901234567891"])
def test_labels_are_joined_by_the_texts_of_keys(tmp_path: Path, code: str) -> None:
    one, other = code.split()
    (tmp_path / "e.csv").write_text(f"id,a,y\n{one},-5,\n{other},,p\n{one},,n\n{other},5,\n")
    config = config_of(tmp_path, "e.csv")
    config.write_text(f'{config.read_text()}[delayed_labels]\nkey = "id"\n')
    assert command("run", config).exit_code == 0
    assert lines_of(tmp_path / "dead.jsonl") == []
    # Features get a prediction, and the label that came first is that of the other features.
    found = {line["key"]: line["label"] for line in lines_of(tmp_path / "predictions.jsonl")}
    assert found == {one: None, other: "p"}


def test_a_check_says_what_cannot_be_read(tmp_path: Path) -> None:
    def check(data: bytes, source: str = "") -> tuple[int, str]:
        (tmp_path / "e.csv").write_bytes(data)
        result = command("run", "--check", config_of(tmp_path, "e.csv", source))
        return result.exit_code, " ".join(result.output.split())

    for nothing in (b"", b"\n\n", b"a,code,town,y\n"):
        code, output = check(nothing)
        assert (code, "note: the source has no records yet" in output) == (0, True)
    code, output = check(table(header="").encode(), 'columns = ["a", "y"]')
    assert code != 0
    assert (
        "40 of the first 40 records (100 %) that would be dead letters: 40 (100 %): Expected 2 fields, got 4" in output
    )
    code, output = check(table().encode("latin-1"))
    n = sum(town == "Köln" for *_, town in ROWS)
    assert (code, f"{n} of the first 40 records (" in output, "Expected UTF-8, got byte 0xf6" in output) == (
        2,
        True,
        True,
    )
    assert 'did you mean encoding = "latin-1"?' in output


def test_a_wrong_delimiter_is_named(tmp_path: Path) -> None:
    for sign in (";", "\t", "|"):
        (tmp_path / "e.csv").write_text(table(sign))
        for words in (("run",), ("run", "--check")):
            result = command(*words, config_of(tmp_path, "e.csv"))
            assert result.exit_code != 0
            output = " ".join(result.output.split())
            assert f"did you mean delimiter = {json.dumps(sign)}?" in output.replace('\\"', '"').replace("\\\\", "\\")
    assert lines_of(tmp_path / "dead.jsonl") == []


def test_bytes_that_are_no_text_cost_one_record(tmp_path: Path) -> None:
    utf_16 = table().encode("utf-16-le").replace("Köln".encode("utf-16-le"), b"\x00\xd8K\x00", 1)
    for encoding, data in (("utf-16-le", utf_16), ("cp1252", table().encode("cp1252").replace(b"K\xf6ln", b"\x81", 1))):
        (tmp_path / "e.csv").write_bytes(data)
        assert command("run", config_of(tmp_path, "e.csv", f'encoding = "{encoding}"')).exit_code == 0
        dead = lines_of(tmp_path / "dead.jsonl")
        assert [line["reason"][: len(f"Expected {encoding}, got byte")] for line in dead] == [
            f"Expected {encoding}, got byte"
        ]
        assert len(lines_of(tmp_path / "predictions.jsonl")) == len(ROWS) - 1
        redriven = command("redrive", tmp_path / "run.toml")
        assert (redriven.exit_code == 0) == (encoding == "cp1252"), redriven.output
        for file in ("dead.jsonl", "predictions.jsonl"):
            (tmp_path / file).unlink()


def test_a_first_column_with_other_values_needs_a_name(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(",a,y\n0,1,n\nUlm,2,p\n2,3,p\n3,4,n,\n")
    command("run", config_of(tmp_path, "e.csv"))
    assert [line["reason"] for line in lines_of(tmp_path / "dead.jsonl")] == [
        'Expected a row number in column 1, which has no name, got "Ulm" - at line 3',
        "Expected 3 fields, got 4 - at line 5",
    ]


@pytest.mark.parametrize(
    ("name", "source", "problem"),
    [
        ("e.csv", 'delimiter = ":"', 'source.delimiter: expected ",", ";", "\\t" or "|", got ":"'),
        ("e.csv", 'encoding = "rot13"', "source.encoding: expected one of Python's text encodings"),
        ("e.csv", "max_list_length = 3", 'source.max_list_length: only goes with the format "jsonl" or "parquet"'),
        ("e.jsonl", 'decimal = ","', 'source.decimal: only goes with the format "csv", got "jsonl"'),
        ("e.csv", 'encoding = "utf-16"\nfollow = true', "expected an encoding with the line ends of ASCII to follow"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, name: str, source: str, problem: str) -> None:
    (tmp_path / name).write_text("a,y\n1,n\n")
    result = command("run", "--check", config_of(tmp_path, name, source))
    assert problem.lower() in " ".join(result.output.split()).lower()
    assert result.exit_code != 0


TOPIC = """
label = "y"
[kafka]
servers = "{servers}"
group = "{name}"
[source]
topics = ["{name}"]
until = "latest"
{source}
[model]
type = "KernelClassifier"
max_features = 32
[sink]
predictions = "predictions.jsonl"
dead_letters = "dead.jsonl"
[state]
directory = "state"
"""
IN_TOPICS: dict[str, tuple[str, list[bytes]]] = {
    "tables": (
        'format = "csv"\ncolumns = ["a", "code", "town", "y"]\ndelimiter = ";"\ndecimal = ","\nencoding = "latin-1"',
        table(";", ",.2f", header="").encode("latin-1").splitlines(),
    ),
    "JSON with byte order marks": (
        "",
        [
            json.dumps({"a": round(a, 2), "code": code, "town": town, "y": "np"[a > 0]}).encode("utf-8-sig")
            for a, code, town in ROWS
        ],
    ),
}


@pytest.mark.parametrize("kind", IN_TOPICS)
def test_values_of_topics_are_read_as_those_of_files(tmp_path: Path, plain: list[Any], kind: str) -> None:
    source, values = IN_TOPICS[kind]
    with brokers.noida(tmp_path / "broker") as broker:
        servers, name = f"127.0.0.1:{broker.port}", uuid.uuid4().hex
        brokers.make_topics(servers, names=[name])
        brokers.produce(servers, name, values)
        config = tmp_path / "run.toml"
        config.write_text(TOPIC.format(servers=servers, name=name, source=source))
        assert command("run", config).exit_code == 0
    assert lines_of(tmp_path / "dead.jsonl") == []
    assert answers_in(tmp_path) == plain
