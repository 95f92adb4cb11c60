"""Declared times have the same seconds from Parquet, from objects of Python and from text."""

import datetime as dt
import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamkernel import Fields
from streamkernel.cluster.assemble import partitioned_source
from streamkernel.connectors.formats import ValueDecoder
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config

BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = [dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 7, 1, 12), dt.datetime(2024, 10, 27, 2, 30)]
DAYS = [dt.date(2024, 1, 1), dt.date(2024, 7, 1), dt.date(2024, 10, 27)]
SECONDS = [moment.replace(tzinfo=BERLIN).timestamp() for moment in NAIVE]
MIDNIGHTS = [dt.datetime.combine(day, dt.time(), BERLIN).timestamp() for day in DAYS]

COLUMNS = {
    "seconds": (pa.array(NAIVE, pa.timestamp("s")), SECONDS),
    "nanoseconds": (pa.array(NAIVE, pa.timestamp("ns")), SECONDS),
    "with a zone": (pa.array([m.replace(tzinfo=BERLIN) for m in NAIVE], pa.timestamp("ms", "Asia/Tokyo")), SECONDS),
    "days": (pa.array(DAYS), MIDNIGHTS),
    "days in milliseconds": (pa.array(DAYS, pa.date64()), MIDNIGHTS),
    "texts": (pa.array([m.isoformat() for m in NAIVE]), SECONDS),
}


def configured(folder: Path, column: Any, spec: str) -> Any:
    at, inside = column, pa.StructArray.from_arrays([column], ["at"])
    pq.write_table(pa.table({"at": at, "user": inside, "a": [1.0] * 3, "y": [0, 1, 0]}), folder / "e.parquet")
    (folder / "run.toml").write_text(
        f'label = "y"\n[fields]\nat = {spec}\n"user.at" = {spec}\n[source]\npath = "e.parquet"\n'
        '[model]\ntype = "KernelClassifier"\n[sink]\npredictions = "p.jsonl"\ndead_letters = "d.jsonl"\n'
    )
    return load_config(folder / "run.toml")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_declared_zone_is_for_times_of_parquet(tmp_path: Path, name: str) -> None:
    column, seconds = COLUMNS[name]
    config = configured(tmp_path, column, '{ type = "time", zone = "Europe/Berlin" }')
    fields = config.build_fields()
    events = config.build_source().poll(1.0)
    assert [fields.transform_one(e.record) for e in events] == [
        {"at": second, "user.at": second, "a": 1.0, "y": y} for second, y in zip(seconds, [0, 1, 0], strict=True)
    ]
    shared = partitioned_source(config)
    parts = [event for part in shared.plan({}, 1, 9) for events in shared.read(part) for event in events]
    assert [event.record for event in parts if event.record] == [event.record for event in events]


def test_a_declared_zone_is_for_times_of_decoded_values() -> None:
    zones = {"at": "Europe/Berlin"}
    decode = ValueDecoder(lambda _: {"at": NAIVE[1], "day": DAYS[0], "other": NAIVE[1]}, zones=zones)
    utc = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC).timestamp()
    assert decode(b"") == {"at": SECONDS[1], "day": 1_704_067_200.0, "other": utc}


def test_a_unit_does_not_go_with_times_of_parquet(tmp_path: Path) -> None:
    engine = engine_of(configured(tmp_path, COLUMNS["seconds"][0], '{ type = "time", unit = "ms" }'))
    engine.run()
    letters = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert len(letters) == 3
    assert all('which looks like seconds; declare unit = "s" - at field "at"' in letter["reason"] for letter in letters)


def test_the_zone_of_a_table_is_the_zone_of_its_rows() -> None:
    fields = Fields({"at": {"type": "time", "zone": "Europe/Berlin"}})
    assert [fields.transform_one({"at": moment})["at"] for moment in NAIVE] == SECONDS
