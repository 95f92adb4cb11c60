"""``run --check`` judges a sample as the run does, and the advice of both is right."""

import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import call

DSG = 'type = "KernelClassifier"\nlearner = "dsg"\nmax_features = 64'
NEWTON = 'type = "KernelClassifier"\nmax_features = 64'
REGRESSOR = 'type = "KernelRegressor"\nlearner = "dsg"\nmax_features = 64'


def write(
    folder: Path,
    records: Iterable[dict[str, Any]] | bytes,
    *,
    top: str = "",
    tables: str = "",
    model: str = DSG,
    source: str = "",
    name: str = "e.jsonl",
) -> Path:
    """Write records and a configuration, and return its path."""
    text = records if isinstance(records, bytes) else "".join(json.dumps(one) + "\n" for one in records).encode()
    (folder / name).write_bytes(text)
    config = folder / "run.toml"
    config.write_text(
        f'label = "y"\n{top}\n[source]\npath = "{name}"\n{source}\n[model]\n{model}\n[sink]\npredictions = "p.jsonl"\n'
        f'dead_letters = "d.jsonl"\n[log]\nformat = "json"\n{tables}\n'
    )
    return config


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def letters(config: Path) -> list[Any]:
    """Run a stream from its start, and return its dead letters."""
    for name in ("p.jsonl", "d.jsonl"):
        (config.parent / name).unlink(missing_ok=True)
    call("run", config)
    return lines(config.parent / "d.jsonl")


def events(more: Callable[[int, float], dict[str, Any]], n: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(1)
    numbers = [rng.gauss(0, 1) for _ in range(n)]
    return [{"a": round(a, 3), "y": int(a > 0), **more(i, a)} for i, a in enumerate(numbers)]


def parquet(folder: Path, columns: dict[str, Any]) -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), folder / "written.parquet")
    return (folder / "written.parquet").read_bytes()


@pytest.mark.parametrize(
    ("field", "tables", "source"),
    [
        ([0.5, 2], 'f = "vector"', ""),
        ([0.5, 2], 'f = "ignore"', ""),
        ([0.5, 2], 'f = "identifier"', ""),
        ([0.5, 2], 'f = "vector"', "max_list_length = 4"),
        (["a", None], 'f = "ignore"', ""),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_check_accepts_what_the_run_takes(tmp_path: Path, field: Any, tables: str, source: str, form: str) -> None:
    records: Any = events(lambda i, a: {"f": field})
    if form == "parquet":
        records = parquet(tmp_path, {name: [record[name] for record in records] for name in records[0]})
    config = write(tmp_path, records, tables=f"[fields]\n{tables}", source=source, name=f"e.{form}")
    answer = call("run", "--check", config)
    assert answer.exit_code == 0, answer.stderr
    assert "dead letters" not in answer.stdout
    kind = tables.split('"')[1]
    assert f": {kind}, as declared" in answer.stdout
    assert letters(config) == []


def test_check_accepts_bytes_that_are_an_identifier(tmp_path: Path) -> None:
    table = parquet(tmp_path, {"a": [1.0, 2.0] * 50, "b": [b"\xff"] * 100, "y": [0, 1] * 50})
    config = write(tmp_path, table, tables='[fields]\nb = "identifier"', name="e.parquet")
    assert call("run", "--check", config).exit_code == 0
    assert letters(config) == []


def not_utf8(i: int) -> bytes:
    return f'{{"a": {i}, "t": "Köln", "y": {i % 2}}}\n'.encode("utf-8" if i % 3 else "latin-1")


REFUSED: dict[str, tuple[Any, dict[str, str]]] = {
    "unreadable": (b"".join(map(not_utf8, range(200))), {}),
    "large": (events(lambda i, a: {"f": 1e150 if i % 4 else 1.0}), {}),
    "beyond the kernel": (events(lambda i, a: {"f": 10**31 if i % 2 == 0 and i > 20 else 1}), {"model": NEWTON}),
    "label": (events(lambda i, a: {"y": "NA" if i % 3 == 0 else a}), {"model": REGRESSOR}),
    "no label": (events(lambda i, a: {"y": None} if i % 5 == 0 else {}), {}),
    "weight": (events(lambda i, a: {"w": "1,5" if i % 2 else 1}), {"top": 'weight = "w"'}),
    "classes": (events(lambda i, a: {"y": f"c{i}"}), {}),
    "key": (
        events(lambda i, a: {"id": None if i % 4 == 0 else i, "y": None}),
        {"tables": '[delayed_labels]\nkey = "id"'},
    ),
    "list": (events(lambda i, a: {"f": [1, 2] if i % 5 == 0 else 3}), {}),
    "all lists": (events(lambda i, a: {"f": [1, 2]}), {}),
    "two": (events(lambda i, a: {"f": float("inf")} if i == 0 else {"y": None}), {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_check_counts_the_dead_letters_of_the_run(tmp_path: Path, case: str) -> None:
    records, options = REFUSED[case]
    config = write(tmp_path, records, **options)
    answer, dead = call("run", "--check", config), letters(config)
    assert 0 < len(dead) <= 200
    assert f"{len(dead)} of the first 200 records (" in answer.output
    assert answer.exit_code == (2 if len(dead) > 100 else 0)
    reasons = {letter["reason"] for letter in dead}
    counts = re.findall(r"^  (\d+) \(\d+ %\): (.*)$", answer.output, re.MULTILINE)
    assert sum(int(count) for count, _ in counts) == len(dead)
    assert {reason for _, reason in counts} <= reasons


def test_columns_of_the_same_name_are_one_reason(tmp_path: Path) -> None:
    table = parquet(tmp_path, {"u.v": [1.0] * 100, "u": [{"v": 2.0}] * 100, "y": [0, 1] * 50})
    answer = call("run", "--check", write(tmp_path, table, name="e.parquet"))
    assert answer.exit_code == 2
    assert '  100 (100 %): Expected one value for each field, got two - at field "u.v" - at row 100' in answer.stderr


def test_check_names_what_no_record_has(tmp_path: Path) -> None:
    records = events(lambda i, a: {"price": 3, "user": {"age": 3}, "id": i})
    tables = '[fields]\nprise = "category"\nuser = "ignore"\n[delayed_labels]\nkey = "id"'
    config = write(tmp_path, [{k: v for k, v in one.items() if k != "y"} for one in records], tables=tables)
    config.write_text('ignore = ["idd"]\n' + config.read_text())
    answer = call("run", "--check", config)
    assert answer.exit_code == 0
    assert answer.stdout.splitlines()[1:4] == [
        'note: label: no record of the sample has "y"',
        'note: ignore: no record of the sample has "idd"; did you mean "id"?',
        'note: fields: no record of the sample has "prise"; did you mean "price"?',
    ]


@pytest.mark.parametrize(("name", "text"), [("e.csv", b"a,b,y\n"), ("e.jsonl", b"")])
def test_check_names_a_source_without_records(tmp_path: Path, name: str, text: bytes) -> None:
    answer = call("run", "--check", write(tmp_path, text, name=name))
    assert answer.stdout.splitlines()[1:] == ["note: the source has no records yet"]


def test_check_writes_nothing_but_its_answer(tmp_path: Path) -> None:
    config = write(tmp_path, events(lambda i, a: {"b": "NA" if i % 4 else i}, 600), model=NEWTON)
    before = sorted(tmp_path.iterdir())
    assert call("run", "--check", config).stderr == ""
    assert sorted(tmp_path.iterdir()) == before


def placeholders(share: float, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return events whose label depends on a number, which is a text in some of them."""
    rng, found = random.Random(3), []
    for i in range(1000):
        b = rng.gauss(0, 1)
        is_missing = rng.random() < share
        text = texts[i % len(texts)]
        found.append({"c": rng.gauss(0, 1), "b": text if is_missing else round(b, 4), "y": int(b > 0)})
    return found


@pytest.mark.parametrize("share", [0.03, 0.1, 0.97])
@pytest.mark.parametrize("texts", [("NA",), ("n.v.", "?")])
def test_the_advice_for_placeholders_is_to_declare_them_missing(
    tmp_path: Path, share: float, texts: tuple[str, ...]
) -> None:
    config = write(tmp_path, placeholders(share, texts))
    dead, logged = letters(config), call("run", config).stderr
    checked = call("run", "--check", config).stdout
    advice = re.compile(r"declare (missing = \[[^\]]*\])")
    found = {frozenset(json.loads(one.partition(" = ")[2])) for one in advice.findall(checked)}
    assert found == {frozenset(texts)}
    assert frozenset(texts) in {frozenset(json.loads(one[10:])) for one in advice.findall(logged.replace('\\"', '"'))}
    assert all(advice.search(letter["reason"]) and "category" not in letter["reason"] for letter in dead)
    assert bool(dead) == (share < 0.05)
    (line,) = set(advice.findall(checked))
    assert letters(write(tmp_path, placeholders(share, texts), top=line)) == []
    taken = [one for one in lines(tmp_path / "p.jsonl")[500:] if share < 0.5]
    assert sum(one["prediction"] == one["label"] for one in taken) >= 0.9 * len(taken)


def test_other_texts_among_placeholders_get_no_advice(tmp_path: Path) -> None:
    records = placeholders(0.04, ("NA",))
    for i in range(900, 903):
        records[i]["b"] = f"broken {i}"
    dead = [letter["reason"] for letter in letters(write(tmp_path, records))]
    assert "Expected a number as before, got the string 'broken 902' - at field \"b\"" in dead
    assert dead[-1].endswith('; if it means that there is no value, declare missing = ["NA"]')


@pytest.mark.parametrize("value", [[1, 2.5], ["a", "b"], [[1], [2]], "bytes"], ids=str)
def test_who_follows_the_advice_for_a_value_loses_no_record(tmp_path: Path, value: Any) -> None:
    columns = {"a": [1.0, 2.0] * 50, "f": [b"\xff" if value == "bytes" else value] * 100, "y": [0, 1] * 50}
    table = parquet(tmp_path, columns)
    dead = letters(write(tmp_path, table, name="e.parquet"))
    assert len(dead) == 100
    (advice,) = {letter["reason"].partition("declare ")[2] for letter in dead}
    assert advice
    config = write(tmp_path, table, name="e.parquet", tables=advice.replace("] ", "]\n"))
    assert call("run", "--check", config).exit_code == 0
    assert letters(config) == []


@pytest.mark.parametrize("case", ["label", "numbers too", "empty"])
def test_no_advice_is_given_that_would_be_refused(tmp_path: Path, case: str) -> None:
    def more(i: int, a: float) -> dict[str, Any]:
        if case == "label":
            return {"y": [1]} if i % 3 == 0 else {}
        return {"f": ([] if case == "empty" else [1, 2]) if i % 3 == 1 or case == "empty" else 3}

    dead = letters(write(tmp_path, events(more)))
    assert dead
    assert {letter["reason"].partition("; ")[2] for letter in dead} == {""}
    assert {letter["kind"] for letter in dead} == {"label" if case == "label" else "value"}


TEXTS_ALONE: dict[str, tuple[Callable[[int], dict[str, Any]], dict[str, str]]] = {
    "label": (lambda i: {}, {}),
    "ignored": (lambda i: {"n": i}, {"top": 'ignore = ["n"]'}),
    "ignored around": (lambda i: {"n": {"m": i}}, {"top": 'ignore = ["n"]'}),
    "declared": (lambda i: {"n": i}, {"tables": '[fields]\nn = "identifier"'}),
    "weight": (lambda i: {"n": 1.5}, {"top": 'weight = "n"'}),
}


@pytest.mark.parametrize("case", TEXTS_ALONE)
def test_numbers_that_are_no_inputs_do_not_turn_texts_into_categories(tmp_path: Path, case: str) -> None:
    more, options = TEXTS_ALONE[case]
    records = [one | more(i) for i, one in enumerate(of_digits())]
    config = write(tmp_path, records, **options)
    assert letters(config) == []
    answers = lines(tmp_path / "p.jsonl")[500:]
    assert sum(one["prediction"] == one["label"] for one in answers) > 0.9 * len(answers)
    assert "field a: numbers, 100 % written as text" in call("run", "--check", config).stdout


def test_keys_and_times_do_not_turn_texts_into_categories(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    for i, one in enumerate(of_digits()):
        y = one.pop("y")
        records += [{"id": i, "at": 1_700_000_000 + i, **one}, {"id": i, "at": 1_700_000_000 + i, "y": y}]
    config = write(tmp_path, records, tables='[delayed_labels]\nkey = "id"\ntime = "at"')
    assert letters(config) == []
    checked = call("run", "--check", config).stdout
    assert "field a: numbers, 100 % written as text" in checked


def of_digits() -> list[dict[str, Any]]:
    rng, found = random.Random(5), []
    for i in range(1000):
        a = rng.randrange(1000)
        found.append({"a": str(a), "b": str(i % 7), "y": int(a > 500)})
    return found


@pytest.mark.parametrize("kind", ["number", "time"])
def test_texts_that_are_alike_and_stay_categories_are_named_once(tmp_path: Path, kind: str) -> None:
    texts = {
        "number": [str(i) for i in range(1000)],
        "time": [f"2026-11-{1 + i % 28:02}T06:00:00Z" for i in range(1000)],
    }
    records = events(lambda i, a: {"t": texts[kind][i], "plan": "pro" if i % 2 else "free"})
    config = write(tmp_path, records)
    advice = f'texts are {kind}s, but taken as categories; if they are no codes, declare [fields] t = "{kind}"'
    notes = [json.loads(line) for line in call("run", config).stderr.splitlines()]
    assert [note["event"] for note in notes if note["event"].startswith("field ")] == [f'field "t": {advice}']
    assert f"field t: categories; {advice}\n" in call("run", "--check", config).stdout
    config = write(tmp_path, records, tables=f'[fields]\nt = "{kind}"')
    assert letters(config) == []
    assert f"field t: {kind}, as declared\n" in call("run", "--check", config).stdout


def test_texts_with_thousands_apart_are_numbers(tmp_path: Path) -> None:
    config = write(tmp_path, events(lambda i, a: {"pop": f"{1000 + 7 * i:,}", "size": "1,234" if i % 5 == 0 else i}))
    checked = call("run", "--check", config).stdout
    assert "field pop: numbers, 100 % written as text\nfield size: numbers, 20 % written as text\n" in checked
    assert "dead letters" not in checked


def test_a_run_of_dead_letters_alone_ends_with_an_error_whatever_their_reasons(tmp_path: Path) -> None:
    config = write(tmp_path, events(lambda i, a: {"f": float("inf")} if i == 0 else {"y": None}, 300))
    answer = call("run", config)
    assert answer.exit_code == 1
    (last,) = answer.stderr.splitlines()[-1:]
    assert "every record so far was refused, 300 in all (299 label, 1 value); the last one: Expected a label" in last


def test_the_log_has_each_reason_how_often_it_came_and_what_to_declare(tmp_path: Path) -> None:
    def more(i: int, a: float) -> dict[str, Any]:
        return {"b": "NA" if i % 40 == 39 else i, **({"y": None} if i % 10 == 0 else {})}

    answer = call("run", write(tmp_path, events(more, 1000)))
    reports = [one for one in map(json.loads, answer.stderr.splitlines()) if one["event"].startswith("records are ref")]
    dead = [letter["reason"] for letter in lines(tmp_path / "d.jsonl")]
    assert sum(report["count"] for report in reports) == len(dead)
    counts: dict[str, int] = dict.fromkeys(dead, 0)
    for report in reports:
        for text in report["reasons"]:
            count, _, reason = text.partition(" x ")
            counts[reason] += int(count)
    assert counts == {reason: dead.count(reason) for reason in dead}
    assert any('declare missing = ["NA"]' in reason for reason in counts)
