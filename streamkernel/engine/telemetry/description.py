"""Descriptions of models and checkpoints, as names and texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from river import compose

from streamkernel.engine.pipelines import counts_of_targets
from streamkernel.engine.telemetry.figures import OUTCOMES
from streamkernel.engine.telemetry.quality import WINDOW, Scores, stored_scores
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.parameters import parameters_of
from streamkernel.estimators.several_targets import SeveralTargetsModel

if TYPE_CHECKING:
    from streamkernel.engine.telemetry.snapshot import EngineSnapshot


def model_table(numbers: EngineSnapshot) -> list[dict[str, Any]]:
    """Return a row for each model of a run that has challengers, as JSON values."""
    challengers = numbers.challengers
    if not challengers.models:
        return []
    learned = numbers.outcomes["learned"]
    return [
        _row(challengers.champion, "champion", numbers.scores, learned, 0, ""),
        *(
            _row(one.name, _role(one.is_suspended), one.scores, one.judged, one.errors, one.reason)
            for one in challengers.models
        ),
    ]


def checkpoint_table(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the same rows for a checkpoint."""
    challengers = state.get("challengers") or {}
    if not challengers.get("models"):
        return []
    rows = [_row(challengers["champion"], "champion", stored_scores(state), state["outcomes"]["learned"], 0, "")]
    for one in challengers["models"]:
        counts = one["quality"]["count"], one["errors"], one["reason"]
        rows.append(_row(one["name"], _role(one["is_suspended"]), stored_scores(one), *counts))
    return rows


def promotion_rows(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the promotions in a checkpoint, as pairs of a name and a text."""
    for one in (state.get("challengers") or {}).get("promotions", ()):
        champion, former = one["champion"] or "a model that was dropped", one["former"] or "a model that was dropped"
        yield one["action"], f"{champion} in place of {former} after {one['learned']:,} events, {one['time']}"


def texts(table: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a table, as pairs of a name and a text."""
    for row in table:
        figures = [f"{row['name_of_metric']} {_shown(row['metric'])}, last {WINDOW:,} {_shown(row['recent'])}"]
        figures += [f"{row['judged']:,} events"]
        figures += [f"{row['errors']:,} errors, the last one {row['reason']}"] if row["errors"] else []
        yield f"{row['role']} {row['model']}", "; ".join(figures)


def _row(name: str, role: str, scores: Scores, judged: int, errors: int, reason: str) -> dict[str, Any]:
    numbers = {"metric": scores.ours, "recent": scores.recent[0]}
    return {
        "model": name,
        "role": role,
        "name_of_metric": scores.name,
        **{key: number if math.isfinite(number) else None for key, number in numbers.items()},
        "judged": judged,
        "errors": errors,
        "reason": reason,
    }


def _role(is_suspended: bool) -> str:
    return "suspended" if is_suspended else "challenger"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def model_rows(model: Any) -> list[tuple[str, str]]:
    """Return the description of a pipeline, as pairs of a name and a text."""
    steps = list(model.steps.values()) if isinstance(model, compose.Pipeline) else [model]
    rows = [("pipeline", " | ".join(str(step) for step in steps))]
    last = steps[-1]
    if isinstance(last, KernelModel):
        rows += [("parameters", "\n".join(f"{name} = {value!r}" for name, value in parameters_of(last).items()))]
        rows += [
            ("kernel", repr(last.kernel_)),
            ("labels", ", ".join(map(repr, getattr(last, "labels", {}))) or "numbers"),
            *([("targets", ", ".join(map(str, last.targets)))] if isinstance(last, SeveralTargetsModel) else []),
            ("features", f"{last.n_features:,} in {last.n_seeds:,} blocks"),
            ("steps", f"{last.n_steps:,}, of which {last.n_reused:,} reused a block"),
            ("objective", f"{last.objective:.6g}"),
        ]
    bounded, outlying = counts_of_targets(model) or (0, 0)
    if bounded or outlying:
        rows += [("range of targets", f"{bounded:,} predictions bounded, {outlying:,} outlying targets")]
    return rows


def checkpoint_rows(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the description of a checkpoint, as pairs of a name and a text."""
    rows, scores = model_rows(state["model"]), stored_scores(state)
    rows += [(scores.name, "–" if math.isnan(scores.ours) else f"{scores.ours:.6g}")]
    rows += [(f"of {target}", f"{score:.6g}") for target, score in scores.by_target.items()]
    rows += [*texts(checkpoint_table(state)), *promotion_rows(state)]
    rows += [(OUTCOMES.get(outcome, outcome), f"{count:,}") for outcome, count in state["outcomes"].items()]
    if state.get("labels") is not None:
        rows += [(f"labels {outcome}", f"{count:,}") for outcome, count in state["labels"]["counts"].items()]
    rows += [(f"position in {stream}", str(position)) for stream, position in state["positions"].items()]
    return rows
