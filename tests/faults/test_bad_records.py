"""Corrupted records among good ones: each is learned or a dead letter, and the model shows no trace of them.

``python tests/faults/test_bad_records.py --records 100000`` is a long run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import brokers
from faults.kafka_runs import Run
from waiting import LIMIT

from streamkernel.connectors.kafka.sink import LONGEST
from streamkernel.engine.config.config import load_config
from streamkernel.estimators import model_file
from streamkernel.estimators.internals import last_step

NUMBERS = ["NaN", "-Infinity", "Infinity", "1e308", "-1e308", "1e999", "1e150", "9" * 400, "9" * 100, "1e-310", "7"]
TYPES: list[Any] = ["text", "", [], [1, [2, [3]]], {}, {"a": 1}, None, True, -0.0, 0, "1.5", "\ud83d\ude00"]
ENCODINGS = ["utf-16", "utf-16-le", "utf-32", "utf-7", "cp037", "utf-8-sig"]


def flipped(rng: random.Random, raw: bytes) -> bytes:
    found = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def cut(rng: random.Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw))]


def doubled(rng: random.Random, raw: bytes) -> bytes:
    i, j = sorted(rng.sample(range(len(raw) + 1), 2))
    return raw[:j] + raw[i:j] + raw[j:] if rng.random() < 0.5 else raw + raw


def with_control_characters(rng: random.Random, raw: bytes) -> bytes:
    i = rng.randrange(len(raw) + 1)
    return raw[:i] + bytes(rng.choices([*range(32), 127], k=rng.randint(1, 5))) + raw[i:]


def with_a_number(rng: random.Random, raw: bytes) -> bytes:
    fields = {name: json.dumps(value) for name, value in json.loads(raw).items()}
    fields[rng.choice(list(fields))] = rng.choice(NUMBERS)
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}").encode()


def with_a_type(rng: random.Random, raw: bytes) -> bytes:
    fields = json.loads(raw)
    return json.dumps({**fields, rng.choice([*fields, "new"]): rng.choice(TYPES)}).encode()


def nested(rng: random.Random, raw: bytes) -> bytes:
    depth = rng.choice([1, 2, 100, 2000])
    return rng.choice([b"[" * depth + raw + b"]" * depth, b'{"a": ' * depth + raw + b"}" * depth])


def without_a_field(rng: random.Random, raw: bytes) -> bytes:
    fields = json.loads(raw)
    for name in rng.sample(list(fields), rng.randint(1, len(fields))):
        del fields[name]
    return json.dumps(fields).encode()


def without_label(rng: random.Random, raw: bytes) -> bytes:
    fields = json.loads(raw)
    if rng.random() < 0.5:
        fields["y"] = None
    else:
        del fields["y"]
    return json.dumps(fields).encode()


def empty(rng: random.Random, raw: bytes) -> bytes:
    return rng.choice([b"", b" ", b"\n", b"{}", b"[]", b"null", b"0", b'""', b"\x00"])


def very_long(rng: random.Random, raw: bytes) -> bytes:
    n = LONGEST["value"] + rng.randrange(50_000) if rng.random() < 0.003 else rng.randint(2_000, 20_000)
    return rng.choice([raw[:-1] + b', "%s": 1}' % (b"n" * n), raw + b" " * n, b"x" * n, raw[:-1] + b"0" * n])


def no_utf_8(rng: random.Random, raw: bytes) -> bytes:
    i = rng.randrange(len(raw) + 1)
    return raw[:i] + rng.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"]) + raw[i:]


def in_another_encoding(rng: random.Random, raw: bytes) -> bytes:
    return raw.decode().encode(rng.choice(ENCODINGS))


def with_a_name_twice(rng: random.Random, raw: bytes) -> bytes:
    name = rng.choice(list(json.loads(raw)))
    value = rng.choice(["0.5", '"text"', "null", "true", "[]", "NaN"])
    return raw[:-1] + f', "{name}": {value}}}'.encode()


def tombstone(rng: random.Random, raw: bytes) -> None:
    return None


WAYS: list[Callable[[random.Random, bytes], bytes | None]] = [
    flipped, cut, doubled, with_control_characters, with_a_number, with_a_type, nested, without_a_field, without_label,
    empty, very_long, no_utf_8, in_another_encoding, with_a_name_twice, tombstone,
]  # fmt: skip


def records(n: int, seed: int) -> tuple[list[bytes | None], list[str]]:
    """Return `n` good and `n` corrupted records in random order, and the corruption of each."""
    rng = random.Random(seed)
    ways = [WAYS[i % len(WAYS)] for i in range(n)] + [None] * n
    rng.shuffle(ways)
    found: list[bytes | None] = []
    for i, way in enumerate(ways):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        raw = json.dumps({"id": i, "a": a, "b": b, "y": a * b > 0}).encode()
        found.append(raw if way is None else way(rng, raw))
    return found, ["good" if way is None else way.__name__ for way in ways]


def expected(model: Any, values: list[bytes | None]) -> dict[str, bytes]:
    """Return the bits of the last step of a new pipeline that learned these records alone, by direct calls."""
    for value in values:
        record = json.loads(value.decode("utf-8-sig"), parse_constant=lambda _: None)  # infinity is a dead letter
        inner = {name: field for name, field in record.items() if isinstance(field, dict) and name != "id"}  # once
        record |= {f"{name}.{key}": item for name, field in inner.items() for key, item in field.items()}
        left_out = {"id", *inner}
        fields = {name: field for name, field in record.items() if name not in left_out and field is not None}
        x = {name: 1.5 if field == "1.5" and name != "y" else field for name, field in fields.items()}
        y = x.pop("y")
        model.learn_one(x, y)
    return {n: tensor.tobytes() for n, tensor in model_file.describe(last_step(model))[1].items()}


def check(servers: str, folder: Path, n: int, seed: int) -> Counter[str]:
    """Run the command line on 2 n records, and return how many of each kind were learned."""
    values, kinds = records(n, seed)
    topic = f"hurt{seed}"
    brokers.make_topics(servers, names=[topic])
    brokers.produce(servers, topic, values)
    run = Run(servers, folder, topic)
    assert run.start().wait(LIMIT + n / 100) == 0, run.log()

    dead = {int(letter.key): letter for letter in brokers.committed(servers, run.dead_letters)}
    outcomes = run.state()["outcomes"]
    learned = [i for i in range(2 * n) if i not in dead and values[i] is not None]
    counts = {"learned": len(learned), "predicted": len(learned), "dead_letter": len(dead)}
    assert outcomes == {**counts, "pending": 0, "passed_over": values.count(None)}
    assert [int(key) for key, _ in run.seen()] == learned
    assert not any(kinds[i] == "good" for i in dead)

    for i, letter in dead.items():
        value, headers = values[i] or b"", dict(letter.headers)
        assert letter.value == value[: LONGEST["value"]], kinds[i]
        assert headers["__connect.errors.exception.message"], kinds[i]
        origin = [headers[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset")]
        assert origin == [topic.encode(), b"0", b"%d" % i]
        size = b"%d" % len(value) if len(value) > LONGEST["value"] else None
        assert headers.get("streamkernel.value.size") == size

    model = run.model()
    model.pop("told")
    (config,) = folder.glob(f"{run.name}-*/run.toml")
    assert model == expected(load_config(config).build_pipeline(), [values[i] for i in learned])
    return Counter(kinds[i] for i in learned)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("seed", [0])
def test_corrupt_records_do_not_change_the_model(servers, tmp_path, seed):
    learned = check(servers, tmp_path, n := 1500, seed)
    assert learned["good"] == n
    assert not learned.keys() & {"cut", "empty", "without_label", "tombstone"}


def main() -> None:
    """Print how many of each kind were learned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, brokers.apache(Path(name, "broker")) as (broker,):
        began = time.perf_counter()
        learned = check(f"127.0.0.1:{broker.port}", Path(name), options.records, options.seed)
    print(f"{options.records:,} good and as many hurt: {time.perf_counter() - began:.0f} s; learned of them:")
    for way in ("good", *(way.__name__ for way in WAYS)):
        print(f"{way:>25} {learned[way]:,}")


if __name__ == "__main__":
    main()
