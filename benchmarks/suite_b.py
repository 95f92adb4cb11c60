"""Suite B: the default learner on streams that nothing was chosen by, one version of it beside another.

Each event is predicted, then learned, by ``KernelClassifier()`` or ``KernelRegressor()`` with no argument but a seed of
its own in each draw: with one seed for all, other random features alone change the mean by 0.001. Scores are accuracy
and R². Both are 1 at the best, and both are shares of what there is to explain, of events or of variance; so
they have one mean, in which each stream counts once, with the mean of its draws. R² begins with the second event.

Results are stored in ``results/suite_b/LABEL.json``, and results of --quick, the first 3,000 events of at most ten
draws, in ``results/suite_b/quick/LABEL.json``. A stream with a stored result is run again only with --again. With
--compare OTHER, the table shows the differences between two labels; a mechanism pays if it gains at least 0.0005 on
average over the streams, or at least 0.005 and two standard errors on three of them.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from benchmarks import store
from benchmarks.accuracy import chosen, joined
from benchmarks.common import arguments, processor_seconds, show
from benchmarks.models import OURS
from benchmarks.prequential import Found, predicted, whole_score
from benchmarks.scenarios import CLASSES, NUMBERS
from benchmarks.store import Result
from benchmarks.suite_b_streams import SUITE_B, Late
from streamkernel import KernelClassifier, KernelRegressor

QUICK_EVENTS, QUICK_DRAWS = 3000, 10
MEAN_GAIN, STREAM_GAIN, ERRORS, STREAMS = 0.0005, 0.005, 2.0, 3
"""A mechanism pays with the first gain on average, or with the second and ERRORS standard errors on STREAMS streams."""


def started() -> None:
    """Keep a process to one thread, and compile what both tasks need, so that it is in no stream's time."""
    threadpool_limits(1)
    for name in ("iris", "patients"):
        measured(name, 0, None)


def measured(name: str, draw: int, most: int | None) -> Found:
    """Return the result of one draw of a stream, or of its first events."""
    stream = SUITE_B[name]
    events, predictions = stream.events(draw, most), []
    model: Any = (KernelClassifier if stream.task == CLASSES else KernelRegressor)(seed=draw)

    def run() -> None:
        predictions.extend(predicted(Late(model, stream.delay) if stream.delay else model, events))

    took = processor_seconds(run)
    first = int(stream.task == NUMBERS)
    score = whole_score(stream.task, events[first:], predictions[first:])
    return Found(score, len(events), len(events) - first, took)


def finished(names: list[str], *, is_quick: bool, processes: int, progress: Progress) -> Iterator[tuple[str, Result]]:
    """Yield the result of each stream as soon as all its draws are measured."""
    draws = {name: min(SUITE_B[name].draws, QUICK_DRAWS if is_quick else sys.maxsize) for name in names}
    found: dict[str, dict[int, Found]] = {name: {} for name in names}
    row = progress.add_task("draws", total=sum(draws.values()))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), started) as pool:
        jobs: dict[Future[Found], tuple[str, int]] = {
            pool.submit(measured, name, draw, QUICK_EVENTS if is_quick else None): (name, draw)
            for name in names
            for draw in range(draws[name])
        }
        for job in as_completed(jobs):
            name, draw = jobs[job]
            found[name][draw] = job.result()
            progress.update(row, advance=1, description=name)
            if len(found[name]) == draws[name]:
                in_order = [found[name][i] for i in range(draws[name])]
                yield name, joined(in_order, max(one.done for one in in_order), store.path().stem)


@dataclass(frozen=True)
class Difference:
    """What one version gains over another on a stream.

    Parameters
    ----------
    name
        The stream.
    before, after
        The scores of both versions; minus infinity where predictions were not finite.
    gain
        The second score minus the first one.
    error
        The standard error of the gain over draws; NaN where there is one draw.
    """

    name: str
    before: float
    after: float
    gain: float
    error: float


def differences(old: Mapping[str, Result], new: Mapping[str, Result]) -> list[Difference]:
    """Return the difference on each stream that both versions have learned as many events of, in as many draws."""
    found = []
    for name, one in old.items():
        other = new.get(name)
        if other is None or (one.of, len(one.orders)) != (other.of, len(other.orders)):
            continue
        before, after = (-np.inf if result.score is None else result.score for result in (one, other))
        gain = 0.0 if before == after else after - before
        pairs = np.subtract(other.orders, one.orders) if np.isfinite(gain) else np.array([])
        error = float(np.std(pairs, ddof=1) / np.sqrt(len(pairs))) if len(pairs) > 1 else np.nan
        found.append(Difference(name, before, after, gain, error))
    return found


def far(gains: np.ndarray, errors: np.ndarray) -> int:
    """Return the number of streams with a gain that counts; one without a standard error counts by its size."""
    return int(np.sum((gains >= STREAM_GAIN) & (gains >= ERRORS * np.nan_to_num(errors))))


def pays(gains: np.ndarray, errors: np.ndarray) -> bool:
    """Whether a mechanism with these gains on the streams stays by the rule."""
    return bool(gains.mean() >= MEAN_GAIN or far(gains, errors) >= STREAMS)


def verdict(name: str, gains: np.ndarray, errors: np.ndarray) -> str:
    """Return the verdict on the mechanisms that only one of two versions contains, given its gains."""
    return (
        f"only in {name}: {gains.mean():+.5f} on average, at least {STREAM_GAIN} on {far(gains, errors)} of "
        f"{len(gains)} streams: {'pays' if pays(gains, errors) else 'does not pay'}"
    )


def compare(other: str, label: str, old: Mapping[str, Result], new: Mapping[str, Result]) -> None:
    """Print the differences, the largest loss first, and what the rule says."""
    found = sorted(differences(old, new), key=lambda one: one.gain)
    if not found:
        sys.exit(f"expected streams that both {other} and {label} have results of, found none")
    rows = [
        [one.name, f"{one.before:.4f}", f"{one.after:.4f}", f"{one.gain:+.4f}",
         "" if np.isnan(one.error) else f"±{one.error:.4f}"] for one in found
    ]  # fmt: skip
    show(f"{label} beside {other}: accuracy or R²", ["stream", other, label, "gain", "standard error"], rows)
    gains = np.array([one.gain for one in found])
    errors = np.array([one.error for one in found])
    error = np.sqrt(np.nansum(errors**2)) / len(found)
    print(
        f"{len(found)} streams, mean gain {gains.mean():+.5f} ± {error:.5f}; more than {STREAM_GAIN} better on "
        f"{np.sum(gains > STREAM_GAIN)}, worse on {np.sum(gains < -STREAM_GAIN)}"
    )
    if left := sorted({*old, *new} - {one.name for one in found}):
        print(f"not compared, because only one has a result over these events: {', '.join(left)}")
    print(verdict(label, gains, errors))
    print(verdict(other, -gains, errors))


def table(label: str, results: Mapping[str, Result]) -> None:
    """Print the results of one version."""
    rows = [
        [name, SUITE_B[name].task, f"{one.of:,}", str(max(1, len(one.orders))),
         "not finite" if one.score is None else f"{one.score:.4f}",
         f"±{np.std(one.orders, ddof=1):.4f}" if one.orders and one.score is not None else "",
         f"{one.seconds * max(1, len(one.orders)):.1f}", f"{1e6 * one.seconds / one.of:,.0f}"]
        for name, one in results.items()
    ]  # fmt: skip
    show(
        f"Suite B, {label}",
        ["stream", "task", "events", "draws", "accuracy or R²", "of draws", "seconds, all draws", "µs per event"],
        rows,
    )
    scores = [-np.inf if one.score is None else one.score for one in results.values()]
    total = sum(one.seconds * max(1, len(one.orders)) for one in results.values())
    print(f"{len(scores)} streams, mean {np.mean(scores):.5f}, {total:,.0f} s of processor time")


def stored(file: Path, wanted: list[str]) -> dict[str, Result]:
    """Return the results in a file, by stream, in the order of the suite."""
    there = store.read(file) if file.exists() else {}
    return {name: there[name][OURS[SUITE_B[name].task]] for name in wanted if name in there}


def main() -> None:
    """Run the streams without a stored result, and print the results, or those of two versions."""
    options = arguments(
        __doc__, label=store.path().stem, compare="", streams="all", quick=False, again=False, processes=2
    )
    folder = store.FOLDER / "suite_b" / ("quick" if options.quick else "")
    file = folder / f"{options.label}.json"
    other = folder / f"{options.compare}.json"
    if options.compare and not other.exists():
        sys.exit(f"expected results of {options.compare}, found no file {other}")
    wanted = chosen(options.streams, SUITE_B, {})
    new = [name for name in wanted if options.again or name not in stored(file, wanted)]
    if new:
        results = store.read(file) if file.exists() else {}
        columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns) as progress:
            for name, one in finished(new, is_quick=options.quick, processes=options.processes, progress=progress):
                results[name] = {OURS[SUITE_B[name].task]: one}
                store.write(results, file)
    if options.compare:
        compare(options.compare, options.label, stored(other, wanted), stored(file, wanted))
    else:
        table(options.label, stored(file, wanted))


if __name__ == "__main__":
    main()
