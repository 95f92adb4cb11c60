"""Fields of declared types in Python: one example, a table, a pipeline, a file."""

import datetime as dt
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import compose

from streamkernel import Calendar, Fields, InputError, KernelClassifier, KernelRegressor, load, save
from streamkernel.field_types.number_texts import COMMA, POINT, UNKNOWN, read_number

TYPES = {
    "icd": "category",
    "age": {"type": "number", "missing": [-1]},
    "id": "identifier",
    "note": "text",
    "at": {"type": "time", "unit": "ms", "zone": "Europe/Berlin"},
    "v": "vector",
    "raw": "ignore",
}
SECONDS = 1_784_874_600
X: dict[str, Any] = {"icd": 250.0, "age": "1,5", "id": 7, "note": "Big, big river", "at": "2026-01-01", "v": [1, 2]}
NEW_YEAR = dt.datetime(2025, 12, 31, 23, tzinfo=dt.UTC).timestamp()
INPUTS = {"icd": "250", "age": 1.5, "note=big": 1.0, "note=river": 1.0, "at": NEW_YEAR, "v.0": 1.0, "v.1": 2.0}


def test_each_type_is_converted() -> None:
    fields = Fields(TYPES, missing=["NA"])
    assert fields.transform_one(X | {"raw": [object()], "other": 3, "gone": "NA"}) == INPUTS | {"other": 3}
    assert fields.transform_one({"age": -1, "icd": "NA", "note": None, "at": pd.NaT, "v": np.nan}) == {}
    assert fields.transform_one({"at": 86_400_000, "v": np.array([0.5, np.nan])}) == {"at": 86_400.0, "v.0": 0.5}
    assert fields.transform_one({"at": dt.datetime(1970, 1, 2, tzinfo=dt.UTC)}) == {"at": 86_400.0}
    assert fields.transform_one({"at": np.datetime64("1970-01-02T01:00")})["at"] == 86_400.0
    assert fields.transform_one({"age": "007", "icd": np.int64(3)}) == {"age": 7.0, "icd": "3"}


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        ({"age": "old"}, "Expected a number as declared, got str 'old' - at field \"age\""),
        ({"age": [1]}, 'Expected a number as declared, got list [1] - at field "age"'),
        ({"icd": {"a": 1}}, "Expected a category as declared, got dict {'a': 1} - at field \"icd\""),
        ({"at": "25:00"}, "Expected a time in milliseconds or ISO 8601, got '25:00' - at field \"at\""),
        (
            {"at": 1e18},
            'Expected a time in milliseconds or ISO 8601, got 1e+18, which looks like nanoseconds; declare unit = "ns"',
        ),
        ({"v": 3}, 'Expected a vector as declared, got int 3 - at field "v"'),
        ({"v": [1, "a"]}, "Expected a number of a vector as declared, got str 'a' - at field \"v.1\""),
        ({"v": [0.0] * 4097}, 'Expected a vector of 1 to 4,096 numbers, got 4,097 - at field "v"'),
        ({"note": " ".join(map(str, range(5000)))}, "Expected a text of at most 4,096 different words, got 5,000"),
    ],
)
def test_what_does_not_fit_names_field_type_and_value(x: dict[str, Any], reason: str) -> None:
    fields = Fields(TYPES)
    with pytest.raises(InputError) as error:
        fields.transform_one(x)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize(("name", "text"), [("at", "NaT"), ("at", "None"), ("age", "null"), ("age", ""), ("v", "n/a")])
def test_a_text_that_may_mean_no_value_is_told_how_to_be_missing(name: str, text: str) -> None:
    with pytest.raises(InputError) as error:
        Fields(TYPES).transform_one({name: text})
    _, _, advice = str(error.value).partition("; if it means that there is no value, declare missing = ")
    assert advice
    assert Fields(TYPES, missing=json.loads(advice)).transform_one({name: text, "other": 1}) == {"other": 1}


@pytest.mark.parametrize(
    ("kind", "value", "inputs"),
    [
        ("number", Decimal("1.5"), {"f": 1.5}),
        ("number", Fraction(1, 4), {"f": 0.25}),
        ("number", np.float32(0.5), {"f": 0.5}),
        ("category", Decimal("3.0"), {"f": "3"}),
        ("category", Decimal(10**18), {"f": "1" + "0" * 18}),
        ("category", True, {"f": "true"}),
        ("category", np.bool_(False), {"f": "false"}),
        ("category", "True", {"f": "true"}),
        ("time", Decimal(SECONDS), {"f": SECONDS}),
        ("time", np.int64(SECONDS), {"f": SECONDS}),
        ("vector", [np.float32(0.5), Decimal("1.5"), np.int8(3), None], {"f.0": 0.5, "f.1": 1.5, "f.2": 3.0}),
        ("vector", np.array([1, 2], np.float16), {"f.0": 1.0, "f.1": 2.0}),
    ],
)
def test_numbers_of_any_kind_fit(kind: str, value: Any, inputs: dict[str, Any]) -> None:
    assert Fields({"f": kind}).transform_one({"f": value}) == inputs


@pytest.mark.parametrize("value", [-999, -999.0, "-999", np.int64(-999), np.float32(-999), Decimal(-999)], ids=repr)
def test_a_marker_is_seen_in_numbers_of_any_kind(value: Any) -> None:
    assert Fields({}, missing=[-999]).transform_one({"a": value}) == {}
    assert Fields({"a": {"type": "number", "missing": [-999]}}).transform_one({"a": value}) == {}


@pytest.mark.parametrize(
    "value", [float("inf"), Decimal("-Infinity"), np.float64("inf"), 10**5000], ids=["inf", "decimal", "numpy", "long"]
)
def test_infinity_is_no_category(value: Any) -> None:
    with pytest.raises(InputError, match=r'Expected a category as declared, got .* - at field "f"'):
        Fields({"f": "category"}).transform_one({"f": value})


@pytest.mark.parametrize(
    ("types", "x"),
    [
        ({"v": "vector"}, {"v": [1.0], "v.0": 3}),
        ({"v": "vector"}, {"v.0": 3, "v": [1.0]}),
        ({"note": "text"}, {"note": "a", "note=a": 1}),
    ],
)
def test_two_fields_do_not_become_one_input(types: dict[str, str], x: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Expected one value for each input, got two of"):
        Fields(types).transform_one(x)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


LONG = ["x" * 10**6, b"x" * 10**6, nested(100_000), [0.5] * 10**5, {"a": "x" * 10**6}]


@pytest.mark.parametrize("value", LONG, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "use",
    [
        Fields({"f": "time"}).transform_one,
        Fields({"f": "number"}).transform_one,
        lambda x: KernelRegressor().learn_one({"a": 1.0}, x["f"]),
        lambda x: KernelRegressor().learn_one({"a": 1.0}, 1.0, w=x["f"]),
        lambda x: Calendar("f").transform_one(x),
    ],
    ids=["time", "number", "target", "weight", "calendar"],
)
def test_an_error_shows_a_value_in_few_characters(use: Callable[[dict[str, Any]], Any], value: Any) -> None:
    with pytest.raises(InputError) as error:
        use({"f": value})
    assert len(str(error.value)) < 150


def test_the_first_vectors_say_the_length() -> None:
    fields = Fields({"v": "vector"})
    fields.learn_one({"v": None})
    fields.learn_one({"v": [1, 2, 3]})
    with pytest.raises(InputError, match='Expected a vector of 3 numbers, got 2 - at field "v"'):
        fields.transform_one({"v": [1, 2]})
    again = Fields({"v": "vector"})
    again.learn_many(pd.DataFrame({"v": [None, [1, 2, 3]]}))
    assert again.state() == fields.state()


def test_a_table_has_the_values_of_its_rows() -> None:
    table = pd.DataFrame([X | {"other": 1}, X | {"age": -1, "icd": "V45", "other": 2}], index=[5, 5])
    found = Fields(TYPES).transform_many(table)
    assert list(found.index) == [5, 5]
    rows = [{name: v for name, v in row.items() if not pd.isna(v)} for row in found.to_dict("records")]
    second = {name: value for name, value in INPUTS.items() if name != "age"} | {"icd": "V45", "other": 2}
    assert rows == [INPUTS | {"other": 1}, second]


def test_a_pipeline_learns_codes_and_continues_from_a_file(tmp_path: Path) -> None:
    model = Fields(TYPES, missing=["NA"]) | KernelClassifier()
    for i in range(200):
        model.learn_one({"icd": (250.0, "V45")[i % 2], "a": "NA" if i % 3 else 1.0, "v": [i % 5, 1]}, bool(i % 2))
    assert (model.predict_one({"icd": 250}), model.predict_one({"icd": "V45"})) == (False, True)
    save(model, tmp_path / "model.safetensors")
    for twin in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert twin["Fields"].state() == model["Fields"].state()
        assert twin.predict_proba_one({"icd": 250}) == model.predict_proba_one({"icd": 250})
    assert model.clone()["Fields"].state()["lengths"] == {}
    assert isinstance(model, compose.Pipeline)


@pytest.mark.parametrize(
    ("types", "missing", "reason"),
    [
        ({"a": "float"}, (), "Expected one of \"number\", .* got 'float' - at types"),
        ({"a": {"type": "number", "zone": "UTC"}}, (), 'Expected zone with type = "time" only'),
        ({"a": {"type": "time", "unit": "h"}}, (), 'Expected the unit to be one of "s", "ms", "us", "ns", got \'h\''),
        ({"a": {"types": "time"}}, (), "Expected the keys type, unit, zone, decimal, missing, got 'types'"),
        ({"a": {"type": "time", "decimal": ","}}, (), 'Expected decimal with type = "number" only'),
        ({"a": {"type": "number", "decimal": ";"}}, (), 'Expected decimal to be one of "\\.", ",", got \';\''),
        ({"a": {"missing": [1]}}, (), "got nothing"),
        ({"a": 3}, (), "Expected the name of a type or a table, got 3"),
        ({}, "NA", "xpected a list of strings and numbers as missing, got 'NA'"),
        ({}, [None], "xpected strings and numbers as missing, got None"),
    ],
)
def test_mistakes_are_named(types: Any, missing: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Fields(types, missing)


NUMBERS = {
    "0.5": 0.5, ".5": 0.5, "5.": 5.0, "+3": 3.0, "-0,25": -0.25, "1e3": 1000.0, "12%": 0.12, "1,5 %": 0.015,
    "1 016,30": 1016.3, "1\u202f016.5": 1016.5, "1,234,567": 1234567.0, "1.234.567": 1234567.0, "1.234": 1.234,
    "0,125": 0.125, "1234,5": 1234.5, "42": 42.0,
}  # fmt: skip
NO_NUMBERS = ["", " ", "-", ".", "e5", "%", "nan", "inf", "0x1f", "01234", "00,5", "1_000", "12e4567",
              "1,23,456", "1.2.3", "1,016,30", "\u0663", "9" * 41, "12 34", "250 V"]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_texts_that_are_numbers(text: str, value: float) -> None:
    number = read_number(text)
    assert number is not None
    assert number.value == pytest.approx(value, rel=1e-15)
    assert number.is_clear == (text != "42")


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_texts_that_are_no_numbers(text: str) -> None:
    assert read_number(text) is None


def test_the_notation_of_a_field_decides_what_has_two_meanings() -> None:
    read = {notation: read_number("1,234", notation) for notation in (UNKNOWN, POINT, COMMA)}
    assert [number and number.value for number in read.values()] == [1234.0, 1234.0, 1.234]
    assert [read_number("1.234", notation).value for notation in (UNKNOWN, POINT, COMMA)] == [1.234, 1.234, 1234.0]  # type: ignore[union-attr]
    assert Fields({}).transform_one({"a": Decimal("NaN")}) == {}
