"""The champion and its challengers compared: as a table of the page, and as texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamkernel.engine.telemetry.quality import WINDOW, Scores, stored_scores

if TYPE_CHECKING:
    from streamkernel.engine.telemetry.snapshot import EngineSnapshot


def model_table(numbers: EngineSnapshot) -> list[dict[str, Any]]:
    """Return a row for each model of a run that has challengers, as JSON values."""
    found = numbers.challengers
    if not found.models:
        return []
    learned = numbers.outcomes["learned"]
    return [
        _row(found.champion, "champion", numbers.scores, learned, 0, ""),
        *(
            _row(one.name, _role(one.is_suspended), one.scores, one.judged, one.errors, one.reason)
            for one in found.models
        ),
    ]


def checkpoint_table(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the same rows for a checkpoint."""
    found = state.get("challengers") or {}
    if not found.get("models"):
        return []
    rows = [_row(found["champion"], "champion", stored_scores(state), state["outcomes"]["learned"], 0, "")]
    for one in found["models"]:
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
