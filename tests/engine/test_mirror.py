"""Checkpoints in an object store: what counts, what faults do, and who may write."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid

import pytest
from object_stores import SECRET, object_store
from typer.testing import CliRunner
from waiting import LIMIT, wait_for

from streamkernel.cli import app
from streamkernel.engine.checkpoint import mirror as mirroring
from streamkernel.engine.checkpoint.bucket import Bucket, DamagedError, MirrorError, history, manifest_numbers, read
from streamkernel.engine.checkpoint.mirror import MirroredDirectory
from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError, read_newest
from streamkernel.engine.config.config import load_config
from streamkernel.engine.config.messages import ConfigError


@pytest.fixture(scope="module")
def server():
    with object_store() as server:
        yield server


@pytest.fixture
def store(server, monkeypatch):
    monkeypatch.setattr(mirroring, "pause_after", lambda times: 0.01)
    yield server
    server.fault = lambda method, path: None


@pytest.fixture
def scheme():
    return "s3"


BOTH = pytest.mark.parametrize("scheme", ["s3", "gs"])


@pytest.fixture
def address(scheme, tmp_path):
    return f"file://{tmp_path}/mirror" if scheme == "file" else f"{scheme}://bucket/{uuid.uuid4().hex}"


def written(path, address, n, first=1):
    """Write checkpoints, wait until the last one is in the store, and return the directory, which is open."""
    state = MirroredDirectory(path, address)
    for i in range(first, first + n):
        state.write({"learned": i})
    wait_for(lambda: not state.mirror.lag_checkpoints)
    return state


def numbers(address):
    return manifest_numbers(Bucket(address).names())


@pytest.mark.parametrize("scheme", ["s3", "gs", "file"])
def test_a_lost_directory_comes_back_with_its_name_and_goes_on(store, address, tmp_path):
    with written(tmp_path / "one", address, 2) as one:
        identity = one.identity
    with MirroredDirectory(tmp_path / "two", address) as two:
        assert two.read_newest() == {"learned": 2, "checkpoint": 2}
        assert two.identity == identity
        assert two.is_restored()
        two.write({"learned": 3})
        assert not two.is_restored()
    assert numbers(address)[-1] == 3
    with MirroredDirectory(tmp_path / "three", address) as three:
        assert (three.read_newest()["learned"], three.identity) == (3, identity)


def test_as_many_stay_as_in_the_directory(store, address, tmp_path):
    for i in range(1, 6):
        written(tmp_path / "state", address, 1, first=i).close()
    Bucket(address).put("checkpoint-000000000004-0000000000000000.safetensors", io.BytesIO(b"of an upload that broke"))
    written(tmp_path / "state", address, 1, first=6).close()
    names = Bucket(address).names()
    assert manifest_numbers(names) == [4, 5, 6]
    assert sorted(name for name in names if "safetensors" in name) == [read(Bucket(address), n).file for n in (4, 5, 6)]


def test_a_slow_store_leaves_out_what_was_replaced_and_holds_nothing_up(store, address, tmp_path):
    started, gate = threading.Event(), threading.Event()

    def wait(method, path):
        if method == "PUT":
            started.set()
            gate.wait(LIMIT)

    store.fault = wait
    state = MirroredDirectory(tmp_path / "state", address)
    state.write({"learned": 1})
    assert started.wait(LIMIT)
    for i in range(2, 12):
        state.write({"learned": i})  # nobody has opened the gate
    assert state.mirror.lag_checkpoints == 11
    assert state.mirror.lag_seconds > 0.0
    gate.set()
    wait_for(lambda: state.mirror.copied == 11)
    assert (state.mirror.copies, state.mirror.lag_seconds) == (2, 0.0)
    state.close()
    assert numbers(address) == [1, 11]


@BOTH
def test_errors_of_the_server_are_retried_and_counted(store, address, tmp_path):
    state = written(tmp_path / "state", address, 1)
    asked = itertools.count()
    store.fault = lambda method, path: 500 if next(asked) < 12 else None  # more than the library repeats
    state.write({"learned": 2})
    wait_for(lambda: not state.mirror.lag_checkpoints)
    assert state.mirror.failures >= 1
    state.close()
    assert numbers(address) == [1, 2]


@BOTH
@pytest.mark.parametrize("what", ["the file", "the manifest"])
def test_half_an_upload_does_not_count(store, address, tmp_path, what, monkeypatch):
    monkeypatch.setattr(mirroring, "LAST_SECONDS", 0.0)
    state = written(tmp_path / "one", address, 1)
    part = "safetensors" if what == "the file" else "json"
    store.fault = lambda method, path: 403 if method == "PUT" and part in path else None
    state.write({"learned": 2})
    wait_for(lambda: state.mirror.failures)
    state.close()
    store.fault = lambda method, path: None
    with MirroredDirectory(tmp_path / "two", address) as two:
        assert two.read_newest() == {"learned": 1, "checkpoint": 1}


def test_a_damaged_object_is_left_out_and_none_that_is_whole_is_an_error(store, address, tmp_path):
    written(tmp_path / "one", address, 1).close()
    written(tmp_path / "one", address, 1, first=2).close()
    bucket = Bucket(address)
    content = bucket.get(read(bucket, 2).file)
    bucket.put(read(bucket, 2).file, io.BytesIO(content[:-1] + bytes([content[-1] ^ 1])))
    with MirroredDirectory(tmp_path / "two", address) as two:
        assert two.read_newest() == {"learned": 1, "checkpoint": 1}
        two.write({"learned": 3})
        wait_for(lambda: not two.mirror.lag_checkpoints)
    assert numbers(address) == [1, 2]
    with MirroredDirectory(tmp_path / "four", address) as four:
        assert four.read_newest() == {"learned": 3, "checkpoint": 2}
    bucket.put(read(bucket, 2).file, io.BytesIO(b"short"))
    bucket.put(read(bucket, 1).file, io.BytesIO(b"short"))
    with pytest.raises(MirrorError, match=r"Expected a whole checkpoint in the mirror, got .*SHA-256"):
        MirroredDirectory(tmp_path / "three", address)
    assert not list((tmp_path / "three").iterdir())


@BOTH
def test_without_an_answer_a_run_goes_on_from_its_directory_but_does_not_begin_anew(store, address, tmp_path, capsys):
    written(tmp_path / "one", address, 1).close()
    store.fault = lambda method, path: 403
    with pytest.raises(MirrorError, match=r"403 Forbidden.*Refused") as found:
        MirroredDirectory(tmp_path / "two", address)
    state = MirroredDirectory(tmp_path / "one", address)
    state.write({"learned": 2})
    wait_for(lambda: state.mirror.failures)
    store.fault = lambda method, path: None
    wait_for(lambda: not state.mirror.lag_checkpoints)
    state.close()
    assert SECRET not in str(found.value) + "".join(capsys.readouterr())
    assert numbers(address) == [1, 2]


@BOTH
def test_a_mirror_belongs_to_one_directory_and_one_process(store, address, tmp_path):
    one = written(tmp_path / "one", address, 1)
    with StateDirectory(tmp_path / "other") as other:
        other.write({"learned": 9})
    with pytest.raises(StateDirectoryError, match="mirror of this state directory, got the mirror of another one"):
        MirroredDirectory(tmp_path / "other", address)
    two = MirroredDirectory(tmp_path / "two", address)  # as on another machine, while the first one still runs
    two.write({"learned": 20})
    wait_for(lambda: two.mirror.copied == 2)
    one.write({"learned": 2})
    wait_for(lambda: one.mirror.failures)
    one.close(), two.close()
    shutil.rmtree(tmp_path / "two")
    with MirroredDirectory(tmp_path / "two", address) as two:
        assert two.read_newest()["learned"] == 20
        two.write({"learned": 30})
    with pytest.raises(StateDirectoryError, match="a process elsewhere has continued from there"):
        MirroredDirectory(tmp_path / "one", address)


@BOTH
def test_objects_are_created_once_and_large_ones_written_in_parts(store, address):
    bucket, methods = Bucket(address), []
    assert [bucket.create("once", b"1"), bucket.create("once", b"2"), bucket.get("once")] == [True, False, b"1"]
    store.fault = lambda method, path: methods.append(method)
    bucket.put("large", io.BytesIO(bytes(12_000_000)))
    assert methods.count("PUT") > 1
    assert sum(len(piece) for piece in bucket.stream("large")) == 12_000_000
    bucket.delete(["large", "once", "none"])
    assert bucket.names() == []
    with pytest.raises(DamagedError, match="Expected an object, got none"):
        bucket.get("large")


def command(*words):
    done = CliRunner().invoke(app, ["state", "history", *words])
    return done.exit_code, done.output


@BOTH
def test_the_history_of_a_mirror_reads_every_checkpoint(store, address, tmp_path):
    with MirroredDirectory(tmp_path / "state", address) as state:
        for learned in (70, 80, 90):
            state.write({"outcomes": {"learned": learned}})
            wait_for(lambda: not state.mirror.lag_checkpoints)
    bucket = Bucket(address)
    bucket.put("checkpoint-000000000001.json", io.BytesIO(b"{}"))
    bucket.put(read(bucket, 2).file, io.BytesIO(b"short"))
    first, second, third = history(address)
    assert [first.number, first.learned, "Expected a manifest" in first.problem] == [1, None, True]
    assert [second.number, second.learned, "SHA-256" in second.problem] == [2, None, True]
    assert [third.number, third.learned, third.problem] == [3, 90, ""]
    assert third.size == read(bucket, 3).size
    code, text = command(address)
    assert (code, "90" in text) == (0, True)


@BOTH
def test_a_history_that_cannot_be_read_is_an_error_by_name(store, scheme, address):
    assert command(address) == (2, f"streamkernel: Expected a mirror, got no checkpoint - at {address}\n")
    code, text = command(f"{scheme}://none/x")
    assert (code, "(NoSuchBucket) - at" in text) == (2, True)
    store.fault = lambda method, path: 403
    code, text = command(address)
    assert (code, "403 Forbidden" in text, SECRET in text) == (2, True, False)
    assert command("ftp://bucket/x")[1].startswith('streamkernel: expected "s3://BUCKET/PREFIX"')


def lines(path):
    """Return the predictions in a file, without the name of the state directory."""
    return [json.loads(line) | {"member": None} for line in path.read_text().splitlines()]


CONFIG = """
label = "y"
[source]
path = "{folder}/events.jsonl"
[model]
type = "KernelClassifier"
max_features = 64
[sink]
predictions = "{folder}/{name}.jsonl"
[state]
directory = "{folder}/{name}"
checkpoint_seconds = 0.05
{mirror}
"""

TOPICS = """
[kafka]
servers = "kafka:9092"
[source]
topics = ["events"]
"""


def test_a_run_that_is_killed_in_an_upload_and_loses_its_disk_ends_with_the_same_bits(store, address, tmp_path):
    events = [{"a": i % 7 / 3, "b": i % 11 / 5, "y": i % 7 > i % 11} for i in range(5_000)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))

    def start(name, mirror=""):
        (tmp_path / f"{name}.toml").write_text(CONFIG.format(folder=tmp_path, name=name, mirror=mirror))
        words = [sys.executable, "-m", "streamkernel", "run", str(tmp_path / f"{name}.toml")]
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    calm, gate, held = start("calm"), threading.Event(), threading.Event()

    def hold(method, path):  # the file of the third checkpoint or a later one
        if method == "PUT" and "safetensors" in path and len(numbers(address)) > 1:
            held.set()
            gate.wait(LIMIT)

    store.fault = hold
    hurt = start("hurt", mirror=f'mirror = "{address}"')
    wait_for(lambda: held.is_set() or hurt.poll() is not None)
    os.kill(hurt.pid, signal.SIGKILL)
    hurt.communicate()
    gate.set()
    store.fault = lambda method, path: None
    shutil.rmtree(tmp_path / "hurt")
    (tmp_path / "hurt.jsonl").unlink()
    again = start("hurt", mirror=f'mirror = "{address}"')
    assert "restored from the mirror" in again.communicate(timeout=LIMIT)[1]
    calm.communicate(timeout=LIMIT)
    assert (again.returncode, calm.returncode) == (0, 0)
    one, two = (read_newest(tmp_path / name) for name in ("calm", "hurt"))
    assert one["positions"] == two["positions"]
    assert one["outcomes"] == two["outcomes"]
    assert one["metric"].get() == two["metric"].get()
    x = {"a": 0.3, "b": 0.4}
    assert one["model"].predict_proba_one(x) == two["model"].predict_proba_one(x)
    whole, rest = (lines(tmp_path / f"{name}.jsonl") for name in ("calm", "hurt"))
    assert rest
    assert rest == whole[-len(rest) :]


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        ("s3://key:hunter22-is@bucket/x", "state.mirror: expected an address without credentials"),
        ("s3://bucket/x?sig=hunter22-is", "state.mirror: expected an address without credentials"),
        ("ftp://bucket/x", 'state.mirror: expected "s3://BUCKET/PREFIX"'),
    ],
)
def test_an_address_has_no_credentials(tmp_path, mirror, expected):
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.format(folder=tmp_path, name="x", mirror=f'mirror = "{mirror}"'))
    with pytest.raises(ConfigError, match=expected) as found:
        load_config(path)
    assert "hunter22" not in str(found.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('directory = "{folder}/{name}"', ""), "state.directory: required for state.mirror"),
        (
            ("{mirror}", '{mirror}\nshared_model = "shared"'),
            "state.shared_model: expected none with state.mirror, because",
        ),
        (
            ('path = "{folder}/events.jsonl"', 'http = "requests"'),
            "state.mirror: expected none with source.http, whose",
        ),
        (
            ('[source]\npath = "{folder}/events.jsonl"', TOPICS),
            "kafka.group: required for state.mirror with exactly_once",
        ),
    ],
)
def test_what_a_mirror_excludes_is_refused_by_name_with_the_reason(tmp_path, change, expected):
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.replace(*change).format(folder=tmp_path, name="x", mirror='mirror = "s3://bucket/x"'))
    with pytest.raises(ConfigError, match=expected):
        load_config(path).check()


def test_a_server_without_tls_needs_a_permission(store, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(MirrorError, match="a server without TLS needs AWS_ALLOW_HTTP=true"):
        Bucket("s3://bucket/x").names()
