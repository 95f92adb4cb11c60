"""A configuration that cannot run on a cluster is refused immediately, with a reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import rounds
import runs
import structlog
from ray import exceptions
from typer.testing import CliRunner
from waiting import LIMIT

from streamkernel.cli import app
from streamkernel.cluster import assemble, workers
from streamkernel.cluster.workers import RoundTask
from streamkernel.connectors import UnavailableError, WorkAssignment
from streamkernel.engine.config.config import load_config

GOOD = runs.CONFIG.format(data=".", workers=2, events_per_round=10)
TOPICS = '[kafka]\nservers = "127.0.0.1:1"\n[source]\ntopics = ["t"]'
PROBLEMS = {
    "model: expected KernelClassifier or KernelRegressor on a cluster, got GaussianProcessRegressor": (
        'type = "KernelClassifier"\nmax_features = 64', 'type = "GaussianProcessRegressor"'
    ),
    "model.pruning: expected none on a cluster, got a Pruning": (
        "[sink]", 'pruning = { type = "Pruning" }\n[sink]'
    ),
    "model.refit: expected none on a cluster, got a Refit": (
        "[sink]",
        'learner = "dsg"\nrefit = { type = "Refit" }\n[sink]',
    ),
    "preprocessing[0]: expected a step whose state can be merged (Binarizer, FeatureHasher, Normalizer, BagOfWords, "
    "PolynomialExtender, RandomFeatures, StandardScaler, MinMaxScaler, MaxAbsScaler, OneHotEncoder), "
    "got RobustScaler": (
        "StandardScaler", "RobustScaler"
    ),
    "source.dataset: expected files or topics on a cluster, got Phishing": (
        'path = "./part-*.jsonl"', 'dataset = "Phishing"'
    ),
    "source.path: expected files on a cluster, got standard input": (
        'path = "./part-*.jsonl"', 'path = "-"\nformat = "jsonl"'
    ),
    "source.follow: expected false on a cluster, got true": ("[source]", "[source]\nfollow = true"),
    "delayed_labels: expected none on a cluster, where each record needs its label, got a table": (
        "[sink]", '[delayed_labels]\nkey = "id"\n[sink]'
    ),
    "challengers: expected none on a cluster, which merges one model, got 1": (
        "[sink]", '[[challengers]]\nname = "other"\nmodel = "KernelClassifier"\n[sink]'
    ),
    "state.mirror: expected none on a cluster, where workers have the positions, got one": (
        "[state]", '[state]\nmirror = "s3://bucket/x"'
    ),
    "baseline: expected none on a cluster, where it would have to be merged, got one": (
        "[sink]", '[baseline]\ntype = "LogisticRegression"\n[sink]'
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return rounds.write(tmp_path, rounds.records(300))


def checked(folder: Path, text: str) -> tuple[int, str]:
    """Return the exit code and the output of ``run --cluster local --check``."""
    (folder / "run.toml").write_text(text)
    result = CliRunner().invoke(app, ["run", "--cluster", "local", "--check", str(folder / "run.toml")])
    return result.exit_code, result.output


@pytest.mark.parametrize("problem", PROBLEMS)
def test_indivisible_sources_and_unmergeable_models_are_named(folder, problem):
    assert checked(folder, GOOD)[0] == 0
    old, new = PROBLEMS[problem]
    assert old in GOOD
    code, said = checked(folder, GOOD.replace(old, new, 1))
    assert code == 2
    assert problem in said
    assert "Traceback" not in said


def test_a_step_with_a_window_is_named(folder):
    text = GOOD.replace('type = "StandardScaler"', 'type = "MinMaxScaler"\nwindow_size = 100')
    said = "preprocessing[0]: expected a step without a window, got a MinMaxScaler with one"
    assert checked(folder, text) == (2, f"streamkernel: {said}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [("workers = 0", "cluster.workers: expected an integer from 1 to 1024, got 0"),
     ("events_per_round = 0", "cluster.events_per_round: expected an integer from 1 to 10,000,000, got 0"),
     ("rounds = 3", "cluster.rounds")],
)  # fmt: skip
def test_an_invalid_cluster_table(folder, line, said):
    code, found = checked(folder, GOOD.split("[cluster]")[0] + f"[cluster]\n{line}\n")
    assert code == 2
    assert said in found


def test_without_ray_the_error_names_the_package_and_everything_else_works(folder):
    (folder / "run.toml").write_text(GOOD)
    program = """
import sys
sys.modules["ray"] = sys.modules["threadpoolctl"] = None
from typer.testing import CliRunner
from streamkernel.cli import app

print(CliRunner().invoke(app, ["run", "run.toml"]).exit_code)
checked = CliRunner().invoke(app, ["run", "--cluster", "local", "--check", "run.toml"])
print(checked.exit_code, checked.stderr.strip())
refused = CliRunner().invoke(app, ["run", "--cluster", "local", "run.toml"])
print(refused.exit_code)
print(refused.stderr)
"""
    words = [sys.executable, "-c", program]
    found = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    expected = "Expected Ray for a run on a cluster, found none; install it with: pip install 'streamkernel[ray]'"
    assert found.returncode == 0, found.stderr
    finished, checked, refused, *logs = found.stdout.splitlines()
    assert checked == f"2 streamkernel: {expected}"
    errors = [line["event"] for line in map(json.loads, filter(None, logs)) if line["level"] == "error"]
    assert (finished, refused, errors) == ("0", "2", [expected])
    assert rounds.read_newest(folder / "state")["outcomes"]["learned"] == 296


def test_only_one_file_imports_ray():
    package = Path(__file__).resolve().parents[2]
    found = [
        path.name
        for folder in ("streamkernel", "connectors")
        for path in (package / folder).rglob("*.py")
        if re.search(r"^\s*(import|from) ray\b", path.read_text(), re.MULTILINE)
    ]
    assert found == ["workers.py"]


def test_a_missing_cluster():
    addresses = ["ray://127.0.0.1:1", "127.0.0.1:1", "no.such.host:6379", "nonsense://x"]
    program = f"""
from streamkernel.cluster.workers import connect_to_ray

for address in {addresses}:
    try:
        connect_to_ray(address)
    except ConnectionError as error:
        print(repr(error))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert found.returncode == 0, found.stderr
    for line, address in zip(found.stdout.splitlines(), addresses, strict=True):
        assert "Expected a Ray cluster, got" in line
        assert f"at {address}" in line


class SlowRay:
    """The part of Ray that a pool uses, with a cluster whose workers appear at the third poll."""

    def __init__(self):
        self._looks = iter(range(10**9))
        self.workers, self.made, self.errors, self.exceptions = [], 0, [], exceptions

    def remote(self, **options):
        return lambda kind: SimpleNamespace(remote=self._made)

    def _made(self, replica):
        worker = SimpleNamespace(learn=SimpleNamespace(remote=lambda sent, task: ("ref", task.number)))
        self.workers.append(worker)
        self.made += 1
        return worker

    def kill(self, worker):
        self.workers.remove(worker)

    def put(self, sent):
        return sent

    def wait(self, refs, num_returns, timeout):
        return (refs if next(self._looks) >= 3 else []), []

    def get(self, ref):
        if self.errors:
            raise self.errors.pop(0)
        return SimpleNamespace(number=ref[1])

    def cluster_resources(self):
        return {"CPU": 1.0}


@pytest.fixture
def ray(monkeypatch):
    found = SlowRay()
    monkeypatch.setattr(workers, "connect_to_ray", lambda address: found)
    return found


def done(team: workers.WorkerPool, count: int, most: int, incidents: list[str] | None = None) -> list[int]:
    """Return which workers report on a round with this number of tasks."""
    tasks = [RoundTask(WorkAssignment({}, {}, 1), number, number, count) for number in range(count)]
    waiting = [] if incidents is None else incidents
    found = team.round(None, set(), tasks, most, lambda: None, lambda: False, waiting.append)
    return [report.number for report in found]


def test_a_worker_that_dies_again_and_again_is_restarted_and_reported_each_time(ray, monkeypatch):
    monkeypatch.setattr("streamkernel.engine.health.FIRST_PAUSE", 0.001)
    silent = exceptions.RayTaskError("learn", "", UnavailableError("no answer")).as_instanceof_cause()
    ray.errors = [exceptions.ActorDiedError(), exceptions.ObjectLostError("00" * 28, None, ""), silent]
    monkeypatch.setattr(workers, "AGAIN_SECONDS", 0.001)
    told: list[str] = []
    assert done(workers.WorkerPool("nowhere:1", lambda: None), 1, 1, told) == [0]
    assert [incident for incident in told if incident] == ["worker_lost", "worker_lost", "unreachable"]
    assert ray.made == 3


def test_a_worker_that_cannot_start_is_an_error(ray):
    failed = exceptions.RayTaskError("__init__", "Traceback\n...\nModuleNotFoundError: No module named 'x'", KeyError())
    ray.errors = [exceptions.ActorDiedError(failed)]
    said = "Expected workers to start, got ModuleNotFoundError: No module named 'x' - this version of streamkernel"
    with pytest.raises(ConnectionError, match=re.escape(said)):
        done(workers.WorkerPool("nowhere:1", lambda: None), 1, 1)


def test_a_stalled_round_is_reported(ray, monkeypatch):
    monkeypatch.setattr(workers, "LATE_SECONDS", 0.0)
    told: list[str] = []
    done(workers.WorkerPool("nowhere:1", lambda: None), 1, 1, told)
    assert "stalled" in told


def test_workers_do_not_get_the_token(folder, monkeypatch):
    from ray import cloudpickle

    monkeypatch.chdir(folder)
    (folder / "run.toml").write_text(GOOD + '[http]\ntoken = "a-very-secret-token"\n')
    made = []
    monkeypatch.setattr(
        assemble, "WorkerPool", lambda address, replica: made.append(replica) or rounds.HerePool(replica)
    )
    assemble.cluster_engine_of(load_config(folder / "run.toml"), "nowhere:1", lambda: 2).close()
    assert b"a-very-secret-token" not in cloudpickle.dumps(made[0])


def test_too_many_workers_for_the_cluster_are_reported(ray, monkeypatch):
    monkeypatch.setattr(workers, "LATE_SECONDS", 0.0)
    with structlog.testing.capture_logs() as logs:
        assert done(workers.WorkerPool("nowhere:1", lambda: None), 2, 2) == [0, 1]
    assert [(log["event"], log["workers"], log["room"]) for log in logs] == [
        ("a round is waiting for workers", [0, 1], 1)
    ] * 3


def test_an_idle_worker_is_kept_unless_fewer_are_requested(ray):
    team = workers.WorkerPool("nowhere:1", lambda: None)
    done(team, 2, 2)
    first = list(ray.workers)
    assert done(team, 1, 2) == [0]
    assert done(team, 2, 2) == [0, 1]
    assert ray.workers == first
    done(team, 1, 1)
    assert ray.workers == first[:1]
    done(team, 2, 1)  # as was planned before
    assert len(ray.workers) == 2
