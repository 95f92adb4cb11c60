"""The check of the language finds pronouns in place of nouns, and names that could hold anything."""

from pathlib import Path

import pytest

from docs import prose


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    ["the time of one and that of two", "all names but those that are new", "a value unlike those\nlearned before"],
)
def test_a_pronoun_in_place_of_a_noun_is_counted(tmp_path: Path, text: str) -> None:
    page = write(tmp_path / "page.md", f"{text}\n" + "word " * 20)
    rate, places = prose.pronoun_heads([page])
    assert len(places) == 1
    assert rate == 1000 / len(page.read_text().split())


@pytest.mark.parametrize(
    "text", ["it holds that off the path", "those lines", "`those of` is code\n```text\nthat of\n```"]
)
def test_other_words_are_not_counted(tmp_path: Path, text: str) -> None:
    assert prose.pronoun_heads([write(tmp_path / "page.md", text)]) == (0.0, [])


def test_in_code_only_texts_and_comments_count(tmp_path: Path) -> None:
    path = write(
        tmp_path / "code.py", '"""The sum and those of others."""\nthat_of = 1  # the last and that of before\n'
    )
    assert [line.rpartition(":")[0] for line in prose.pronoun_heads([path])[1]] == [f"{path}:1", f"{path}:2"]


def test_universal_names_are_counted_where_they_are_bound(tmp_path: Path) -> None:
    path = write(
        tmp_path / "code.py", "def f(known, x):\n    found = own.room\n    for given in x:\n        print(found)\n"
    )
    count, places = prose.universal_names([path])
    assert count == 3
    assert sorted(place.rpartition("'")[0].rpartition("'")[2] for place in places) == ["found", "given", "known"]


def test_a_count_beyond_its_limit_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(prose.MOST, "universal names in code", 0)
    monkeypatch.setattr(prose, "FILES", ["streamkernel/errors.py", "docs/prose.py"])
    monkeypatch.setattr(prose, "universal_names", lambda paths: (1.0, ["here:1: 'found'"]))
    assert prose.main() == 1
    assert capsys.readouterr().out.endswith("here:1: 'found'\nuniversal names in code: 1.00, at most 0\n")
