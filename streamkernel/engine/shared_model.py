"""The model of a group: numbered versions in a directory, and how one adds what a member or a worker has learned."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from river import base, compose, feature_extraction, preprocessing

from streamkernel import tensor_file
from streamkernel.connectors import Participant
from streamkernel.engine.checkpoint import state_file
from streamkernel.engine.checkpoint.state_directory import PRIVATE, StateDirectoryError, check_setup, plain_file
from streamkernel.engine.fields import OnFields
from streamkernel.engine.learned_types import join_counts
from streamkernel.engine.pipelines import first_steps, kernel_of
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.errors import MergeError, ModelFileError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import become_replica, flush, is_young, last_step, learner_of, restructure
from streamkernel.estimators.random_features import RandomFeatures
from streamkernel.estimators.standard_scaler import StandardScaler

FIXED = (
    preprocessing.Binarizer,
    preprocessing.FeatureHasher,
    preprocessing.Normalizer,
    feature_extraction.BagOfWords,
    feature_extraction.PolynomialExtender,
    RandomFeatures,  # the first events, which one worker learns, determine its bandwidth
)
"""Steps that events do not change."""

KIND = "shared model"
KEPT = 3
"""Number of versions that are kept, so that a slow reader can finish its file."""

ATTEMPTS = 10
"""Maximum number of attempts to add a version while other members add theirs; the next commit retries."""

FEWEST, MOST = 256, 65_536
"""A member commits early when it has learned as many events as its base had, within these bounds."""

log = structlog.get_logger("streamkernel")


def problem_of_step(step: base.Transformer) -> str | None:
    """Return the reason why a step cannot be merged, or ``None`` if it can.

    Examples
    --------
    >>> problem_of_step(preprocessing.StandardScaler())
    >>> problem_of_step(preprocessing.OrdinalEncoder())
    'expected a step whose state can be merged (Binarizer, FeatureHasher, Normalizer, BagOfWords, PolynomialExtender,
    RandomFeatures, StandardScaler, MinMaxScaler, MaxAbsScaler, OneHotEncoder), got OrdinalEncoder'
    """
    inner = step.transformer if isinstance(step, OnFields) else step
    if type(inner) not in (*FIXED, *_MERGES):
        names = ", ".join(dict.fromkeys(kind.__name__ for kind in (*FIXED, *_MERGES)))
        return f"expected a step whose state can be merged ({names}), got {type(inner).__name__}"
    if getattr(inner, "window_size", None) is not None:
        return f"expected a step without a window, got a {type(inner).__name__} with one"
    return None


def merge_steps(before: base.Transformer, parts: Sequence[base.Transformer]) -> base.Transformer:
    """Return one step that combines what each worker, now at `parts`, has learned since the step `before`."""
    if isinstance(before, OnFields):
        return OnFields(merge_steps(before.transformer, [part.transformer for part in parts]), before.on)  # type: ignore[attr-defined]
    merged = copy.deepcopy(before)
    if type(before) in _MERGES:
        _MERGES[type(before)](merged, before, parts)
    return merged


def _moments(merged: Any, before: Any, parts: Sequence[Any]) -> None:
    """Add counts, sums, and sums of squares about the earlier mean, which keeps precision for large means."""
    for name in dict.fromkeys(name for one in (before, *parts) for name in one.counts):
        centre = next(one.means[name] for one in (before, *parts) if name in one.means)
        count, total, squares = (-(len(parts) - 1) * sum_ for sum_ in _sums(before, name, centre))
        for part in parts:
            n, s, q = _sums(part, name, centre)
            count, total, squares = count + n, total + s, squares + q
        mean = total / count
        merged.counts[name], merged.means[name] = count, centre + mean
        if merged.with_std:
            merged.vars[name] = max(0.0, squares / count - mean * mean)


def _sums(scaler: Any, name: Any, centre: float) -> tuple[int, float, float]:
    n = scaler.counts.get(name, 0)
    off = scaler.means[name] - centre if n else 0.0
    return n, n * off, n * ((scaler.vars[name] if n and scaler.with_std else 0.0) + off * off)


def _ranges(*fields: str) -> Callable[[Any, Any, Sequence[Any]], None]:
    """Return a function that merges minima or maxima stored under these names."""

    def merge(merged: Any, before: Any, parts: Sequence[Any]) -> None:
        for field in fields:
            for part in parts:
                for name, extreme in getattr(part, field).items():
                    getattr(merged, field)[name].update(extreme.get())

    return merge


def _categories(merged: Any, before: Any, parts: Sequence[Any]) -> None:
    if merged.drop_zeros or merged.categories is not None:
        return
    for part in parts:
        for name, values in part.values.items():
            for value in sorted(values, key=repr):
                merged.learn_one({name: value})


_MERGES: dict[type, Callable[[Any, Any, Sequence[Any]], None]] = {
    preprocessing.StandardScaler: _moments,
    StandardScaler: _moments,
    preprocessing.MinMaxScaler: _ranges("min", "max"),
    preprocessing.MaxAbsScaler: _ranges("abs_max"),
    preprocessing.OneHotEncoder: _categories,
}


def merge_problems(pipeline: Any, where: str) -> Iterator[str]:
    """Yield the reasons why copies of a pipeline cannot be merged.

    `pipeline` are the preprocessing steps and the model, or the model alone. `where` is where they would be merged, for
    the messages.

    Examples
    --------
    >>> from streamkernel import KernelClassifier, KernelMultiTargetRegressor, upkeep
    >>> list(merge_problems(KernelMultiTargetRegressor(), "on a cluster"))
    []
    >>> list(merge_problems(KernelClassifier(pruning=upkeep.Pruning()), "on a cluster"))
    ['model.pruning: expected none on a cluster, got a Pruning']
    """
    model = last_step(pipeline)
    if not isinstance(model, KernelModel):
        yield f"model: expected KernelClassifier or KernelRegressor {where}, got {type(model).__name__}"
    else:
        for name in ("pruning", "refit"):
            if getattr(model, name) is not None:
                yield f"model.{name}: expected none {where}, got a {type(getattr(model, name)).__name__}"
    for i, step in enumerate(first_steps(pipeline).values()):
        problem = problem_of_step(step)
        if problem:
            yield f"preprocessing[{i}]: {problem}"


class SharedModel(Participant):
    """The versions of a group's model, and the member that learns with a copy of one.

    A version is one immutable file. It contains the model, and for each member the number of the last checkpoint whose
    events are in the model. A member's base is the version from which its own model continued. After a
    commit with the number N, it creates the next version, unless the newest one contains N already:

        version k + 1 = the newest version k + (own model - base)

    and continues from it. The file of a version can be created only once (by a hard link), so of two members that add
    version k + 1, one repeats the addition as k + 2. After a crash, either a version contains N, and the member
    continues from the newest version; or none does, and the member continues from its checkpoint and adds it. `version`
    is the version from which the member's model continued, 0 for none. `path` is the directory, to which all members
    can write; it is created if it is missing. `identity` is the permanent name of this member. `setup` is the
    configuration of the run; a version of a different configuration is refused. `count` is called with the kind of an
    incident, ``"not_shared"``, when a version could not be added.
    """

    def __init__(
        self,
        path: Path,
        identity: str,
        processor: RecordProcessor,
        setup: Mapping[str, Any],
        count: Callable[[str], None] = lambda kind: None,
    ) -> None:
        path.mkdir(0o700, parents=True, exist_ok=True)
        self.path, self.version = path, 0
        self._identity, self._processor, self._setup = identity, processor, _for_all(setup)
        self._count = count
        self._base = path / f"base-{identity}.safetensors"
        self._added = self._counted = 0

    def begin(self) -> bool:
        """Start from the newest version if there is no state; return false if another member must create it first.

        The first 256 events determine bandwidths and scales, which all members must share. So one member learns them,
        and the others wait for its version. Raise `StateDirectoryError` if the checkpoints of this member are missing,
        or the versions belong to a different configuration.
        """
        if newest := newest_version(self.path):
            head = self._read_version(newest)
            if self._identity in head["members"]:
                raise StateDirectoryError(
                    f"Expected the checkpoints of this member, which the model in {self.path} has events of, got none; "
                    "take another state.directory"
                )
            self._keep_base(newest)
            self._continue(head, newest)
            return True
        founder = self.path / "founder"
        try:
            with os.fdopen(os.open(founder, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
                file.write(self._identity)
        except FileExistsError:
            return plain_file(founder).read_text() == self._identity
        return True

    def is_due(self) -> bool:
        """Return whether the member has learned as many events as its base, and so should commit."""
        return self._events - self._counted >= min(max(FEWEST, self._counted), MOST)

    def after_commit(self, number: int, positions: Mapping[str, Any], deadline: float = math.inf) -> None:
        """Add what was learned until a checkpoint."""
        self.share(number)

    def share(self, number: int, *, newest: int | None = None) -> bool:
        """Add the checkpoint with this number, and continue from the newest version; return false after an error.

        Nothing may have been learned since the checkpoint. After a failure, the member keeps its model and its base,
        and a later call adds everything since the base. At a start, `newest` is the number of the newest checkpoint on
        disk; if it is damaged, `number` is an older one's. Raise `OSError` or `ModelFileError` if the directory or the
        newest version cannot be read at a start; `StateDirectoryError` if versions and checkpoint do not belong
        together, or it is unknown whether a version was added.
        """
        try:
            self._add_checkpoint(number, number if newest is None else newest)
        except MergeError as error:
            log.error("the model cannot be merged into the group's", reason=str(error))
        except (OSError, ModelFileError) as error:
            if newest is not None:
                raise
            log.error("the group's model cannot be read or written; retrying later", reason=str(error))
        else:
            return True
        finally:
            self._counted = self._events
        become_replica(self._kernel_model, 0, 1)
        self._count("not_shared")
        return False

    def _add_checkpoint(self, number: int, count: int) -> None:
        for _ in range(ATTEMPTS):
            newest = newest_version(self.path)
            if newest and newest == self.version and number <= self._added:
                return
            if not newest and is_young(self._kernel_model):
                return
            try:
                head = self._read_version(newest) if newest else {"members": {}, "types": {}}
                added = head["members"].get(self._identity, 0)
                if added > count:
                    raise StateDirectoryError(
                        f"Expected checkpoint {added}, which the model in {self.path} contains, got {count}; it is an "
                        "older copy of a state directory"
                    )
                if added >= number:
                    self._keep_base(newest)
                    self._continue(head, newest)
                    return
            except FileNotFoundError:  # other members have added more versions than are kept
                continue
            head["model"] = self._merged(head, newest)
            head["members"] |= {self._identity: number}
            head["types"] = join_counts(head["types"], self._processor.examples.types.state())
            if self._create(head, newest + 1):
                self._continue(head, newest + 1)
                return
        raise OSError(f"Expected to add a version, got {ATTEMPTS} of other members in its place - at {self.path}")

    def _merged(self, head: Mapping[str, Any], newest: int) -> Any:
        """Return the newest version's model merged with this member's learning since its base."""
        member_model = self._processor.model
        base = read_version(self._base) if plain_file(self._base).exists() else None
        if not newest or (base is not None and base["version"] == newest):
            restructure(self._kernel_model, learner_of(kernel_of(base["model"])).examples if base else self._events)
            return member_model
        if base is None:
            if self._events:
                raise StateDirectoryError(
                    f"Expected a state that continues the model in {self.path}, got one with a model of its own; "
                    "take another state.directory"
                )
            return head["model"]
        model, steps = head["model"], first_steps(head["model"])
        kernel_of(model).merge(self._kernel_model, base=kernel_of(base["model"]))
        flush(kernel_of(model))
        before, ours = first_steps(base["model"]), first_steps(member_model)
        merged = [(name, merge_steps(before[name], [step, ours[name]])) for name, step in steps.items()]
        return compose.Pipeline(*merged, list(model.steps.items())[-1]) if merged else model

    def _create(self, version: Mapping[str, Any], number: int) -> bool:
        """Create a version, unless there is one of this number."""
        draft, path = self.path / f"draft-{self._identity}.safetensors", self.path / _name(number)
        state_file.write(draft, KIND, {**version, "version": number, "setup": self._setup}, PRIVATE)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        try:
            newest, member = newest_version(self.path), version["members"][self._identity]
            if newest > number and self._read_version(newest)["members"].get(self._identity, 0) < member:
                path.unlink()  # the number was free because that version had been deleted
                return False
            tensor_file.move(draft, self._base)
            for old in versions(self.path)[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:  # the version exists; adding it again would count its events twice
            raise StateDirectoryError(f"the shared model was written, but not all of it: {error}") from error
        return True

    def _keep_base(self, newest: int) -> None:
        """Keep a version for as long as this member continues from it."""
        link = self.path / f"draft-{self._identity}.safetensors"
        link.unlink(missing_ok=True)
        os.link(self.path / _name(newest), link)
        tensor_file.move(link, self._base)

    def _continue(self, head: Mapping[str, Any], version: int) -> None:
        """Continue with the model of a version."""
        self._processor.adopt(head["model"])
        self._processor.examples.types.join(head["types"])
        become_replica(self._kernel_model, 0, 1)
        self.version, self._added = version, head["members"].get(self._identity, 0)
        self._counted = self._events
        log.debug("continuing from the shared model", version=version, learned=self._events)

    def _read_version(self, number: int) -> dict[str, Any]:
        return check_version(self.path / _name(number), self._setup)

    @property
    def _kernel_model(self) -> KernelModel:
        return kernel_of(self._processor.model)

    @property
    def _events(self) -> int:
        """Events that the member's model has learned."""
        return learner_of(self._kernel_model).examples


def versions(path: Path) -> list[Path]:
    """Return the versions in a directory, oldest first."""
    return sorted(path.glob("version-*.safetensors"))


def newest_version(path: Path) -> int:
    """Return the number of the newest version, or 0."""
    numbers = versions(path)
    return int(numbers[-1].stem.split("-")[1]) if numbers else 0


def check_version(path: Path, setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a version; only the starting point may differ in the configuration of another member."""
    version = read_version(path)
    check_setup(version["setup"], _for_all(setup))
    return version


def _for_all(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setup that all members have in common."""
    return {key: value for key, value in setup.items() if key != "model.from"}


def read_version(path: Path) -> dict[str, Any]:
    """Return the content of a version."""
    return state_file.read(plain_file(path), KIND)


def _name(number: int) -> str:
    return f"version-{number:012d}.safetensors"
