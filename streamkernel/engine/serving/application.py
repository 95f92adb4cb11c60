"""A process that serves models: the newest checkpoint of each state directory, which others write, and its routes."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from river import base
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.engine.checkpoint import state_file
from streamkernel.engine.checkpoint.state_directory import checkpoints, number_of
from streamkernel.engine.coverage import coverage_of
from streamkernel.engine.examples import Examples
from streamkernel.engine.http import openapi
from streamkernel.engine.http.applications import application_of, json_answer
from streamkernel.engine.http.predictions import MOST_NAMES, Worker, answer_prediction, version_headers
from streamkernel.engine.telemetry.figure import Histogram, counter, gauge, histogram
from streamkernel.engine.telemetry.monitor import PublishedModel
from streamkernel.engine.telemetry.status import build_info, metrics_of, model_rows
from streamkernel.errors import ModelFileError
from streamkernel.estimators.internals import prediction_copy
from streamkernel.field_types.fields import Fields

log = structlog.get_logger("streamkernel")

STATUSES = ("2xx", "4xx", "5xx")

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper bounds of the histogram of response times, in seconds."""

_FIELDS = len(STATUSES) + len(BOUNDS) + 3  # and the requests above all bounds, the records, the seconds


def load(path: Path) -> PublishedModel:
    """Return the model of a checkpoint, ready to answer; its version is the number of the checkpoint.

    The file is copied first: one that another program truncates while it is read would end the process. Raise
    `ModelFileError` if the file is incomplete or damaged, or is not a checkpoint of ``streamkernel run``; `OSError` if
    it cannot be read; a symbolic link is not followed, and a pipe is an incomplete file.
    """
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as copy:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        try:
            saved = state_file.read(Path(copy.name), "checkpoint")
        except ModelFileError as error:
            raise ModelFileError(str(error).replace(copy.name, str(path))) from error
    published = model_of(saved, number_of(path))
    with suppress(Exception):  # compile; a model that cannot answer this may answer others
        published.answer(dict.fromkeys(sorted(published.examples.numbers)[:MOST_NAMES] or ["a"], 0.5))
    return published


def model_of(saved: Mapping[str, Any], version: int) -> PublishedModel:
    """Return the model in the state of a checkpoint.

    Raise `ModelFileError` if the state has no fields of a run, such as the label.
    """
    try:
        setup, model, coverage = saved["setup"], saved["model"], saved.get("coverage")
        label = setup["label"] if isinstance(setup["label"], str) else tuple(setup["label"])
        types = saved["fields"]
        keys = (setup["delayed_labels.key"], setup["delayed_labels.time"])
        examples = Examples(
            label,
            setup["ignore"] or (),
            numeric_label=isinstance(model, (base.Regressor, base.MultiTargetRegressor)),
            weight=setup.get("weight"),
            fields=None if types["fields"] is None else Fields.of_state(types["fields"]),
            keys=[name for name in keys if name is not None],
        )
        examples.restore(types)
        learned = int(saved["outcomes"]["learned"])
    except KeyError as error:
        raise ModelFileError(f"Expected a checkpoint of streamkernel run, got one without {error}") from error
    widths = None if coverage is None else coverage_of(coverage["target"], label).restored(coverage)
    return PublishedModel(version, learned, prediction_copy(model), examples, coverage=widths)


class ServedModel(NamedTuple):
    """A model and the file that it is from.

    `model` is the model; its version is the number of the checkpoint. `written` is when the file was last changed, in
    seconds since 1970.
    """

    model: PublishedModel
    written: float

    @property
    def age(self) -> float:
        """Seconds since the checkpoint was written."""
        return max(0.0, time.time() - self.written)


class CheckpointFollower:
    """Loads each new checkpoint of a state directory beside the current one, and then replaces that by one assignment.

    The directory is only read, so it may be mounted read-only or be a copy. Whatever is wrong with it, the last good
    model stays. `path` is the state directory; it may appear later. `newest` is the last model that was loaded; any
    thread may read it. `problem` says why the newest checkpoint has another model, or an empty string.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path = name, path
        self.newest: ServedModel | None = None
        self.problem = ""
        self._loaded: tuple[int, int, int, int] | None = None

    def load_newest(self) -> bool:
        """Load the newest checkpoint if there is a new one, and return whether there was."""
        problem, is_new = "", False
        try:
            files = list(reversed(checkpoints(self._path)))
            if not files:
                problem = "no checkpoint" if self._path.is_dir() else "no state directory"
            for file in files:
                status = file.lstat()
                stamp = (number_of(file), status.st_ino, status.st_size, status.st_mtime_ns)
                if stamp == self._loaded or not self._is_newer(stamp):
                    break
                try:
                    model = load(file)
                except Exception as error:  # whatever a damaged file leads to
                    problem = problem or self._problem_text(error)
                    continue
                self.newest, self._loaded, is_new = ServedModel(model, status.st_mtime), stamp, True
                break
        except (OSError, ValueError) as error:  # as from a file system that is gone
            problem = self._problem_text(error)
        self._report_problem(problem, is_new)
        return is_new

    def _is_newer(self, stamp: tuple[int, int, int, int]) -> bool:
        """Return whether a checkpoint is newer than the loaded one: by its number, or of a run that began again."""
        return self._loaded is None or stamp[0] >= self._loaded[0] or stamp[3] > self._loaded[3]

    def _problem_text(self, error: Exception) -> str:
        return str(error).replace(f"{self._path}/", "")

    def _report_problem(self, problem: str, is_new: bool) -> None:
        """Log a new model, and a problem when it begins and ends."""
        if problem and problem != self.problem:
            keeps = "no model yet" if self.newest is None else f"keeping checkpoint {self.newest.model.version}"
            log.error(f"the newest checkpoint cannot be used; {keeps}", model=self.name, reason=problem)
        elif self.problem and not problem:
            log.info("checkpoints can be used again", model=self.name)
        self.problem = problem
        if is_new and self.newest is not None:
            version, events = self.newest.model.version, self.newest.model.events
            log.debug("model replaced", model=self.name, checkpoint=version, learned=events)


class ModelCounts(NamedTuple):
    """Requests to one model, of all workers since the start: by class of status, predicted records, and times."""

    requests: dict[str, float]
    records: float
    seconds: Histogram


class SharedCounts:
    """Counts by worker and model, in memory that is inherited by forked processes; each worker writes its own row.

    `worker` is the row of this process.

    Examples
    --------
    >>> counts = SharedCounts(2, ["clicks"])
    >>> counts.add("clicks", 200, 0.002, records=3)
    >>> counts.of("clicks").requests, counts.of("clicks").records
    ({'2xx': 1.0, '4xx': 0.0, '5xx': 0.0}, 3.0)
    """

    def __init__(self, workers: int, models: Sequence[str]) -> None:
        self.worker = 0
        self._models = {name: i for i, name in enumerate(models)}
        size = workers * len(models) * _FIELDS
        memory = np.frombuffer(mmap.mmap(-1, 8 * (size + 1)))
        self._restarts = memory[size:]
        self._counts = memory[:size].reshape(workers, len(models), _FIELDS)

    def add(self, model: str, status: int, seconds: float, records: int = 0) -> None:
        """Count a request."""
        row = self._counts[self.worker, self._models[model]]
        row[min(max(status // 100 - 3, 0), 2)] += 1.0
        row[len(STATUSES) + bisect_left(BOUNDS, seconds)] += 1.0
        row[-2] += records
        row[-1] += seconds

    def of(self, model: str) -> ModelCounts:
        """Return the counts of a model."""
        counts = self._counts[:, self._models[model]].sum(axis=0).tolist()
        seconds = Histogram.of(BOUNDS, counts[len(STATUSES) : -2], counts[-1])
        return ModelCounts(dict(zip(STATUSES, counts, strict=False)), counts[-2], seconds)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of models."""
        return iter(self._models)

    @property
    def restarts(self) -> float:
        """Workers that ended and were started again."""
        return float(self._restarts[0])

    def add_restart(self) -> None:
        """Count a worker that is started again."""
        self._restarts[0] += 1.0


Followers = Sequence[CheckpointFollower]


def _of_models(value: Callable[[ServedModel], float]) -> Callable[[Followers], dict[str, float]]:
    """Return a function that reads a value of each model that is loaded."""
    return lambda followers: {one.name: value(one.newest) for one in followers if one.newest is not None}


MODELS = (
    gauge("served_model_age_seconds", "seconds", "Time since the checkpoint of the model was written.",
        _of_models(lambda served: served.age), ("model",)),
    gauge("served_model_checkpoint", "1", "Number of the checkpoint that the model is from.",
        _of_models(lambda served: served.model.version), ("model",)),
    gauge("served_model_events", "events", "Events that the model has learned.",
        _of_models(lambda served: served.model.events), ("model",)),
    gauge("served_model_problem", "0 or 1",
        "1 if the newest checkpoint cannot be used and an older model answers, or none.",
        lambda followers: {one.name: float(bool(one.problem)) for one in followers}, ("model",)),
)  # fmt: skip

REQUESTS = (
    counter("serve_requests", "requests", "Requests for predictions, by class of status.",
        lambda counts: {(name, status): n for name in counts for status, n in counts.of(name).requests.items()},
        ("model", "status")),
    counter("serve_records", "records", "Records that were predicted.",
        lambda counts: {name: counts.of(name).records for name in counts}, ("model",)),
    histogram("serve_request_seconds", "Time from a request's headers to its response.",
        lambda counts: {name: counts.of(name).seconds for name in counts})._replace(labels=("model",)),
    counter("serve_restarts", "workers", "Worker processes that ended and were started again.", "restarts"),
)  # fmt: skip


class ServingCollector(Collector):
    """The metrics of served models, for Prometheus. `counts` are requests of all workers."""

    def __init__(self, followers: Followers, counts: SharedCounts) -> None:
        self._followers, self._counts = followers, counts

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield build_info()
        yield from metrics_of((figure, self._followers) for figure in MODELS)
        yield from metrics_of((figure, self._counts) for figure in REQUESTS)


def serving_application(followers: Followers, counts: SharedCounts, token: str | None) -> Starlette:
    """Return the ASGI application of some models; the paths of a run name the model if there is only one.

    `counts` is where requests are counted. `token` is as for :class:`~streamkernel.engine.http.applications.Guard`.
    """
    registry = CollectorRegistry()
    registry.register(ServingCollector(followers, counts))
    by_name = {follower.name: follower for follower in followers}
    only = followers[0].name if len(followers) == 1 else None
    worker = Worker()

    def follower_of(request: Request) -> CheckpointFollower:
        name = request.path_params.get("name", only)
        follower = by_name.get(name) if name is not None else None
        if follower is None:
            raise HTTPException(404, f"Expected /models/NAME with one of {', '.join(by_name)}")
        return follower

    async def predict(request: Request) -> Response:
        follower, began, status = follower_of(request), time.perf_counter(), 500
        try:
            answer = await answer_prediction(request, _model_of(follower).model, worker)
            status = answer.status_code
            return answer
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            records = request.state.records if status == 200 else 0
            counts.add(follower.name, status, time.perf_counter() - began, records)

    async def model(request: Request) -> Response:
        served = _model_of(follower_of(request))
        about = {"about": dict(model_rows(served.model.model))}
        return json_answer(_summary(served) | about, headers=version_headers(served.model))

    async def models(request: Request) -> Response:
        return json_answer({"models": _all(followers)})

    async def readyz(request: Request) -> Response:
        missing = [f"{one.name}: {one.problem or 'loading'}" for one in followers if one.newest is None]
        status = {"status": "no model yet: " + "; ".join(missing) if missing else "ok", "models": _all(followers)}
        return json_answer(status, 503 if missing else 200)

    async def healthz(request: Request) -> Response:
        return json_answer({"status": "ok"})

    routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/models", models)]
    routes += [Route(path, model) for path in ("/model", "/models/{name}")]
    routes += [Route(path, predict, methods=["POST"]) for path in ("/predict", "/models/{name}/predict")]
    description = openapi.serving_description(has_one=only is not None, needs_token=token is not None)
    return application_of(routes, token, registry, description)


def _model_of(follower: CheckpointFollower) -> ServedModel:
    served = follower.newest
    if served is None:
        reason = follower.problem or "it is being loaded"
        raise HTTPException(503, f"No model yet ({reason}); retry", {"retry-after": "1"})
    return served


def _all(followers: Followers) -> dict[str, Any]:
    """Return the state of each model, by name."""
    return {
        follower.name: ({} if follower.newest is None else _summary(follower.newest)) | {"problem": follower.problem}
        for follower in followers
    }


def _summary(served: ServedModel) -> dict[str, Any]:
    model = served.model
    return {
        "version": model.version,
        "events": model.events,
        "origin": f"checkpoint {model.version}",
        "age_seconds": round(served.age, 3),
    }
