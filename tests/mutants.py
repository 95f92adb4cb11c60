"""Mutants of files: their decoded structure is changed, written with a right checksum, and read in a child process.

The child has little memory and processor time for each mutant, so one that asks for much, or hangs, ends it. Run as a
program, it reads mutants of one kind of file: ``python mutants.py KIND FIRST LAST FOLDER``.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from river import compose, ensemble, feature_extraction, preprocessing, stats
from safetensors.numpy import save as to_bytes
from streams import examples, nested

from streamkernel import (
    GaussianProcessRegressor,
    KernelClassifier,
    KernelDensityRatio,
    KernelDriftDetector,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    RandomFeatures,
    kernels,
    learners,
    load,
    save,
    tensor_file,
    upkeep,
)
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_checkpoint
from streamkernel.engine.config.config import load_config
from streamkernel.engine.serving.application import model_of
from streamkernel.engine.telemetry.status import checkpoint_rows
from streamkernel.errors import InputError, ModelFileError, NotFittedError
from streamkernel.estimators import model_file
from streamkernel.research import StochasticGaussianProcessRegressor

OUTCOMES = "outcomes"

FILES = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files stay in memory: a disk takes longer to write a mutant durably than it takes to read it."""

LEARNED = 3
"""Examples that a model learns after it was read."""

SECONDS, MEMORY = 1.0, 300 << 20
"""Processor time and memory of a mutant."""

XS, LABELS = examples(90, ("a", "b", "c"))
TARGETS = [x["x0"] * x["x1"] + 2.0 for x in XS]
SMALL = {"max_features": 64}
NUMBERS = [0, -1, 1, 2, 1 << 31, (1 << 63) - 1, -(1 << 63), 10**12, 10**40, 0.5, -0.0, 1e300, -1e300, 5e-324, 1e16]


class Kind(NamedTuple):
    """A kind of file: how one is made, and how it is read."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]


def model(make: Callable[[], Any], ys: Any = None) -> Kind:
    """Return the kind of a file with a model."""

    def write(path: Path) -> None:
        made = make()
        teach(made, XS, ys)
        save(made, path)

    return Kind(write, lambda path: use(path, ys))


def teach(model: Any, xs: Any, ys: Any) -> None:
    """Let a model learn examples."""
    for x, y in zip(xs, itertools.repeat(None) if ys is None else ys, strict=False):
        if isinstance(model, KernelDriftDetector):
            model.update(x)
        else:
            model.learn_one(x, *([] if ys is None else [y]))


def use(path: Path, ys: Any) -> None:
    """Read a model, ask it, check that what was read can be written and read again, and let it learn."""
    found = load(path)
    ours = isinstance(found, model_file.Serializable)
    try:
        ask(found)
    except (InputError, NotFittedError):
        pass
    except Exception:
        if ours:  # the attributes of River's objects are not checked
            raise
    if ours:
        found.save(path)
        again = load(path)
        if getattr(again, "pruning", None) is getattr(again, "refit", None) is None:  # compile code
            with contextlib.suppress(InputError):
                teach(again, XS[:LEARNED], ys)


def ask(found: Any) -> None:
    """Ask a model everything."""
    for x in XS[:3]:
        for name in ("predict_one", "predict_proba_one", "score_one", "transform_one", "explain_one"):
            if (question := getattr(found, name, None)) is not None:
                question(x)
        if isinstance(found, GaussianProcessRegressor):
            found.predict_one(x, with_dist=True)
    repr(found)


def checkpoint(path: Path) -> None:
    """Make a checkpoint of a run."""
    folder = path.parent / "run"
    folder.mkdir()
    lines = [json.dumps(x | {"label": y, "key": i}) for i, (x, y) in enumerate(zip(XS, LABELS, strict=True))]
    (folder / "events.jsonl").write_text("\n".join(lines))
    (folder / "config.toml").write_text(
        'label = "label"\ncoverage = 0.9\npreprocessing = ["StandardScaler"]\n[source]\npath = "events.jsonl"\n'
        '[model]\ntype = "KernelClassifier"\nmax_features = 64\n[state]\ndirectory = "state"\n'
        "[monitoring]\n"
    )
    engine_of(load_config(folder / "config.toml")).run()
    path.write_bytes(max((folder / "state").glob("checkpoint-*")).read_bytes())


def read_state(path: Path) -> None:
    """Read a checkpoint as `load`, `inspect` and `serve` do."""
    saved = read_checkpoint(path)
    try:
        checkpoint_rows(saved)
        model_of(saved, 1)
    except Exception:  # the state of a run is not checked
        pass


KINDS: dict[str, Kind] = {
    "classifier": model(lambda: KernelClassifier(**SMALL), LABELS),
    "classifier of two": model(lambda: KernelClassifier(class_weight="balanced", **SMALL), [y == "a" for y in LABELS]),
    "softmax": model(lambda: KernelClassifier(**nested("dsg", loss="softmax", averaging=True, **SMALL)), LABELS),
    "hinge": model(lambda: KernelClassifier(**nested("dsg", loss="hinge", batch_size=7, **SMALL)), LABELS),
    "pruned": model(
        lambda: KernelClassifier(
            learner="dsg", pruning=upkeep.Pruning(every=40), refit=upkeep.Refit(every=40, window=64), **SMALL
        ),
        [y == "a" for y in LABELS],
    ),
    "regressor": model(lambda: KernelRegressor(**SMALL), TARGETS),
    "joint": model(lambda: KernelRegressor(learner=learners.Newton(joint=True), **SMALL), TARGETS),
    "kernels": model(
        lambda: KernelRegressor(kernels.Gaussian("median") * kernels.Polynomial(2) + kernels.Matern(1.5, 2.0), **SMALL),
        TARGETS,
    ),
    "bandwidths": model(
        lambda: KernelRegressor(kernels.MultiScale(kernels.Gaussian(1.0), (2.0, 1.0, 0.5)), learner="dsg", **SMALL),
        TARGETS,
    ),
    "first order": model(lambda: KernelRegressor(learner="dsg", **SMALL), TARGETS),
    "several targets": model(lambda: KernelMultiTargetRegressor(**SMALL), [{"u": y, "v": -y} for y in TARGETS]),
    "several labels": model(
        lambda: KernelMultiLabelClassifier(**SMALL), [{"u": y == "a", "v": y == "b"} for y in LABELS]
    ),
    "novelty": model(lambda: KernelNoveltyDetector(**SMALL)),
    "drift": model(lambda: KernelDriftDetector(window=40)),
    "ratio": model(lambda: KernelDensityRatio(**SMALL), [y == "a" for y in LABELS]),
    "features": model(lambda: RandomFeatures(kernels.Gaussian("median"), n_features=16)),
    "process": model(lambda: GaussianProcessRegressor(n_features=16), TARGETS),
    "stochastic process": model(
        lambda: StochasticGaussianProcessRegressor(
            variance="operator", noise=0.3, n_features=12, features_per_seed=4, batch_size=5
        ),
        TARGETS,
    ),
    "pipeline": model(
        lambda: (
            compose.TransformerUnion(
                preprocessing.StandardScaler(), compose.Select("x0") | preprocessing.MinMaxScaler()
            )
            | KernelClassifier(learner="dsg", **SMALL)
        ),
        LABELS,
    ),
    "ensemble": model(
        lambda: ensemble.LeveragingBaggingClassifier(KernelClassifier(learner="dsg", **SMALL), n_models=2, seed=1),
        [y == "a" for y in LABELS],
    ),
    "statistics": model(
        lambda: (
            compose.TransformerUnion(
                feature_extraction.TargetAgg(by="x0", how=stats.RollingQuantile(0.5, 5)), preprocessing.RobustScaler()
            )
            | KernelRegressor(learner="dsg", **SMALL)
        ),
        TARGETS,
    ),
    "checkpoint": Kind(checkpoint, read_state),
}


def odd_values(rng: random.Random, kept: int) -> Any:
    """Return a value that a file may have anywhere."""
    n = rng.choice([5, 40, 60])
    doubling = [{"tuple": ["a"]}, *({"tuple": [{"ref": kept + k}, {"ref": kept + k}]} for k in range(n))]
    chosen = rng.choice(
        [
            None, True, False, *NUMBERS, "", "a", "x" * 1000, [], {}, [[]], {"tuple": []}, doubling, deep_value,
            [*doubling, {"set": [{"ref": kept + n}]}], {"ref": rng.randrange(-1, 60)}, {"float": "nan"},
            {"range": [0, rng.choice([3, 10**5, 10**11]), 1]}, {"name": "builtins.list"}, {"name": "copy.deepcopy"},
            {"partial": [{"name": "builtins.list"}, {"range": [0, 10**11, 1]}, {"dict": []}]},
            {"array": ["|S0", [10**15], "C", {"bytes": ""}]}, {"array": ["<f8", [10**6, 10**6, 0], "C", {"bytes": ""}]},
            values_of_one_hash,
            {"VectorDict": [{"dict": [["a", 1.0]]}, None, {"range": [0, 10**9, 1]}]}, {"int": "0x" + "f" * 5000},
            {"defaultdict": [{"tuple": [1]}, []]}, {"deque": [10**12, [1]]}, {"hook": {"model": 0}},
            {"class": "river.stats.mean.Mean", "state": {}}, {"type": "Gaussian", "sigma": 1.0}, {"type": "CDSG"},
            {"compiled": ["river._river_rust.stats.RsRollingQuantile", {"tuple": [0.5, 10**11]}, {"bytes": ""}]},
        ]
    )  # fmt: skip
    return chosen(rng) if callable(chosen) else chosen


def deep_value(rng: random.Random) -> Any:
    """Return a value in a value in a value."""
    deep: Any = []
    for _ in range(rng.choice([3, 100, 300])):
        deep = rng.choice([[deep], {"tuple": [deep]}])
    return deep


def values_of_one_hash(rng: random.Random) -> Any:
    """Return a set in which each value is compared with all before it."""
    return {"frozenset": [{"int": hex(k * ((1 << 61) - 1))} for k in range(rng.choice([3, 3000]))]}


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the path of each part of a JSON value."""
    path: tuple[Any, ...] = ()
    found, rest = [path], [(path, value)]
    while rest:
        path, value = rest.pop()
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        rest += (more := [((*path, key), part) for key, part in items])
        found += [path for path, _ in more]
    return found


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutate_json(rng: random.Random, value: Any) -> Any:
    """Return a JSON value with one part changed."""
    known = places(value)
    path = rng.choice(known[1:])
    parent, key = at(value, path[:-1]), path[-1]
    old, how = parent[key], rng.randrange(9)
    if how == 0 and isinstance(old, (int, float)) and not isinstance(old, bool):
        parent[key] = rng.choice([-old, 2 * old, 10 * old, old + 1, old - 1, old * 1_000_000, float(old)])
    elif how == 1:
        parent[key] = copy.deepcopy(at(value, rng.choice(known)))
    elif how == 2 and isinstance(parent, (dict, list)):
        del parent[key]
    elif how == 3 and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent) * rng.choice([1, 1, 50]))
    elif how == 4 and isinstance(parent, dict):
        parent[rng.choice([*parent, "model", "steps", "set", "tuple", "frozenset", "class"])] = parent.pop(key)
    elif how == 5:
        parent[key] = rng.choice([[old], {"tuple": [old]}, {"set": [old]}, {"a": old}, {"dict": [[old, old]]}])
    elif how == 6 and isinstance(parent, list):
        rng.shuffle(parent)
    else:
        parent[key] = odd_values(rng, len(path))
    return value


def mutate_tensor(rng: random.Random, tensors: dict[str, Any]) -> None:
    """Change one tensor."""
    name = rng.choice(sorted(tensors))
    old, how = tensors[name], rng.randrange(12)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name] = tensors[rng.choice(sorted(tensors))].copy()
    elif how == 2:
        tensors[name] = old.astype(rng.choice(["f8", "f4", "i8", "i4", "u1", "?"]))
    elif how == 3:
        tensors[name] = old.reshape(rng.choice([(-1,), (*old.shape, 1), (1, *old.shape), old.shape[::-1]]))
    elif how == 4:
        tensors[name] = old[: len(old) // 2]
    elif how == 5:
        tensors[name] = np.concatenate([old] * rng.choice([2, 9]))
    elif how == 6:
        tensors[name] = old[:0]
    elif how == 7:
        tensors[rng.choice(["kept", "change", "upkeep.job", "span", "names", "extra"])] = old.copy()
    elif old.size:
        changed = np.ascontiguousarray(old).copy()
        flat = changed.reshape(-1)
        where = rng.choice([[rng.randrange(len(flat))], [rng.randrange(len(flat)) for _ in range(5)], slice(None)])
        limits = np.iinfo(flat.dtype) if flat.dtype.kind in "iu" else None
        value = rng.choice([*NUMBERS, math.nan, math.inf, 1e30, 1e90, 1e-160])
        if limits is not None:
            value = 0 if isinstance(value, float) and not math.isfinite(value) else int(value)
            value = min(max(value, limits.min), limits.max)
        with np.errstate(all="ignore"):
            flat[where] = -flat[where] if how == 8 and flat.dtype.kind == "f" else value
        tensors[name] = changed


def mutant(rng: random.Random, header: dict[str, str], tensors: dict[str, Any]) -> bytes:
    """Return the bytes of a mutant of a file."""
    description, tensors = json.loads(header["description"]), dict(tensors)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if tensors and rng.random() < 0.5:
            mutate_tensor(rng, tensors)
        else:
            description = mutate_json(rng, description)
    header = header | {"description": json.dumps(description)}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return to_bytes(tensors, header | {"checksum": tensor_file.checksum(header, tensors)})


def read_mutants(kind: str, first: int, last: int, folder: Path) -> None:
    """Read mutants of a kind, and write for each its number, and what happened."""
    one, path = KINDS[kind], folder / "mutant.safetensors"
    one.make(path)
    _, tensors = tensor_file.read(path, "model", "pipeline", "checkpoint")
    with tensor_file.safe_open(path, "np") as file:
        header = {name: text for name, text in file.metadata().items() if name != "checksum"}
    one.read(path)  # loads compiled code
    gc.freeze()  # collections then look at mutants alone
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    progress = (folder / OUTCOMES).open("w")
    for number in range(first, last):
        rng = random.Random(f"{kind} {number}")
        try:
            path.write_bytes(mutant(rng, header, tensors))
        except RecursionError:  # as of mutants in mutants, whose text Python cannot write
            continue
        print(number, end=" ", file=progress, flush=True)
        allow(MEMORY)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            one.read(path)
            outcome = "read"
        except ModelFileError:
            outcome = "refused"
        except BaseException as error:
            outcome = f"{type(error).__name__} {error} {traceback.extract_tb(error.__traceback__)[-3:]}"
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        allow(None)
        print(outcome.replace("\n", " "), file=progress, flush=True)


def allow(more: int | None) -> None:
    """Limit the memory of this process to what it has and some bytes more."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most if more is None else pages * resource.getpagesize() + more, most))


def outcomes(kind: str, count: int) -> tuple[int, int, dict[int, str]]:
    """Return how many mutants of a kind were read and refused, and what happened with others by number."""
    counts, others, first = {"read": 0, "refused": 0}, {}, 0
    while first < count:
        with tempfile.TemporaryDirectory(dir=FILES) as folder:
            words = [sys.executable, __file__, kind, str(first), str(count), folder]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            child = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)
            progress = Path(folder) / OUTCOMES
            if child.returncode and not progress.exists():
                raise RuntimeError(child.stderr)
            lines = progress.read_text().splitlines()
        for line in lines:
            number, _, outcome = line.partition(" ")
            first = int(number) + 1
            if outcome in counts:
                counts[outcome] += 1
            else:
                others[first - 1] = outcome or f"ended with {child.returncode} {child.stderr[-300:]}"
        if not child.returncode:
            break
    return counts["read"], counts["refused"], others


if __name__ == "__main__":
    read_mutants(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
