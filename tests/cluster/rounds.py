"""A run in rounds whose workers are all in this process, so that it takes a second."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from river import metrics, preprocessing
from states import state_in
from streams import content, nested

from streamkernel import KernelClassifier
from streamkernel.cluster.assemble import CheckpointOnlySource
from streamkernel.cluster.runner import ClusterRunner
from streamkernel.cluster.workers import Replica, Report, RoundTask
from streamkernel.connectors import DeadLetters, FileSink, PartitionedFiles
from streamkernel.connectors.files.readers import inner_position
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint import river_state
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.pipelines import kernel_of
from streamkernel.estimators import model_file
from streamkernel.estimators.internals import learner_of

BAD_EVERY = 97


def records(n: int, seed: int = 0) -> list[str]:
    """Return lines of events with ids; some have a large mean, and some lines are invalid."""
    rng = random.Random(seed)
    found = []
    for i in range(n):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        event = {"id": f"{seed}-{i}", "a": a, "b": 1.7e6 + b, "town": rng.choice("xyz"), "y": a * b > 0}
        found.append('{"half' if i % BAD_EVERY == 5 else json.dumps(event))
    return found


def write(folder: Path, *files: Sequence[str]) -> Path:
    """Write files of lines, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, lines in enumerate(files):
        (folder / f"part-{i}.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def classifier(**options: Any) -> Any:
    """Return the model that most tests use."""
    return preprocessing.StandardScaler() | KernelClassifier(**nested(**{"max_features": 64, **options}))


class HerePool:
    """Workers in this process, which exchange serialized data only.

    Parameters
    ----------
    replica
        Makes a worker.
    is_fresh
        Whether each task is done by a new worker, as if the one before had died.
    """

    def __init__(self, replica: Callable[[], Replica], is_fresh: bool = False) -> None:
        self._replica, self._is_fresh = replica, is_fresh
        self._workers: dict[int, Replica] = {}
        self.asked: list[list[RoundTask]] = []
        self.letters: list[Any] = []

    def cpus(self) -> int:
        return 3

    def round(
        self,
        model: Any,
        types: dict[str, Any],
        tasks: Sequence[RoundTask],
        most: int,
        meanwhile: Callable[[], None],
        stopping: Callable[[], bool],
        waiting: Callable[[str], None],
    ) -> list[Report] | None:
        self.asked.append(list(tasks))
        waiting("")
        meanwhile()
        found = []
        for task in tasks:
            if stopping():
                return None
            if self._is_fresh or task.number not in self._workers:
                self._workers[task.number] = self._replica()
            sent = pickle.loads(pickle.dumps((model, types)))
            found.append(pickle.loads(pickle.dumps(self._workers[task.number].learn(*sent, task))))
            self.letters.append(found[-1].letters)
        return found

    def close(self) -> None:
        pass


def engine(
    data: Path,
    folder: Path,
    model: Any = None,
    *,
    workers: Callable[[], int | None] | int | None = 2,
    events_per_round: int = 100,
    is_fresh: bool = False,
    metric: Any = None,
    has_towns: bool = False,
    **options: Any,
) -> Engine:
    """Return an engine over the files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    metric = metric or metrics.Accuracy()

    def divided() -> PartitionedFiles:
        return PartitionedFiles(data / "part-*.jsonl")

    own = {"label": "y", "ignore": ["id"] if has_towns else ["id", "town"], **options}
    source = CheckpointOnlySource(divided())
    runner = partial(
        ClusterRunner,
        divided=source.divided,
        pool=HerePool(lambda: Replica(divided, metric=metric, writes=True, **own), is_fresh),  # type: ignore[arg-type]
        workers=workers if callable(workers) else lambda: workers,
        events_per_round=events_per_round,
    )
    return Engine(
        model or classifier(),
        source,
        runner=runner,
        metric=metric,
        sink=FileSink(folder / "predictions.jsonl"),
        dead_letters=DeadLetters(FileSink(folder / "dead_letters.jsonl")),
        state=state_in(folder / "state"),
        **own,  # type: ignore[arg-type]
    )


def told(folder: Path) -> dict[str, Any]:
    """Return the output of a run and the bits of its newest checkpoint."""
    state = read_newest(folder / "state")
    assert state is not None
    files = {name: (folder / name).read_bytes() for name in ("predictions.jsonl", "dead_letters.jsonl")}
    return learnt(state) | files | {"positions": state["positions"]}


def learnt(state: dict[str, Any]) -> dict[str, Any]:
    """Return all bits of the pipeline in a checkpoint, its metric and its counters."""
    parts: list[Any] = []

    def hook(thing: object) -> dict[str, Any] | None:
        if isinstance(thing, model_file.Serializable):
            parts.append(content(thing))
            return {"part": len(parts)}
        return None

    names = "outcomes", "refused", "fields", "metric", "model"
    return {name: river_state.encode(state[name], hook=hook) for name in names} | {"parts": parts}


def lines(folder: Path, name: str = "predictions.jsonl") -> list[dict[str, Any]]:
    """Return the lines of a file that a run has written."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def assert_each_once(folder: Path, sizes: Sequence[int]) -> None:
    """Check that each event in files of `records` was learned once, and that its output was written once."""
    bad = sum(len(range(5, n, BAD_EVERY)) for n in sizes)
    good = sum(sizes) - bad
    told = [*lines(folder), *lines(folder, "dead_letters.jsonl")]
    places = [(line["stream"], inner_position(line["position"])[1]) for line in told]
    assert Counter(Path(name).name for name, _ in places) == {f"part-{i}.jsonl": n for i, n in enumerate(sizes)}
    assert len(set(places)) == len(places)
    state = read_newest(folder / "state")
    assert state is not None
    assert state["outcomes"] == {"learned": good, "predicted": good, "dead_letter": bad, "pending": 0, "passed_over": 0}
    learner = learner_of(kernel_of(state["model"]))
    assert learner.numbers["examples"] + len(getattr(learner, "pending", [])) == good
