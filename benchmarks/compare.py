"""Two files of results: where a model lost accuracy or speed from one release to the next.

Both are told of results over the same events alone, and speed of the same machine alone. The command fails if there is
a loss.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import store
from benchmarks.common import show


def losses(old: store.Results, new: store.Results, points: float, factor: float) -> Iterator[list[str]]:
    """Yield scenario, model, what was lost, before and after.

    Parameters
    ----------
    old, new
        Results of two releases.
    points
        The difference that counts as a loss, in hundredths of accuracy or R².
    factor
        The ratio of processor times that counts as a loss.
    """
    for scenario, models in old.items():
        for name, before in models.items():
            after = new.get(scenario, {}).get(name)
            if after is None:
                yield [scenario, name, "result", "there", "missing"]
                continue
            if (before.events, before.of, before.tested) != (after.events, after.of, after.tested):
                continue
            if before.score is not None and (after.score is None or before.score - after.score > points / 100.0):
                yield [scenario, name, "accuracy", f"{before.score:.4f}", f"{after.score or float('nan'):.4f}"]
            if before.machine == after.machine and after.seconds > factor * before.seconds:
                yield [scenario, name, "speed", *(f"{1e6 * r.seconds / r.events:,.1f} µs" for r in (before, after))]


def main() -> None:
    """Print the losses, and fail if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path, metavar="OLD.json")
    parser.add_argument("new", type=Path, metavar="NEW.json")
    parser.add_argument("--points", type=float, default=0.5, help="of accuracy or R² that are a loss; default: 0.5")
    parser.add_argument("--factor", type=float, default=1.5, help="times the time that is a loss; default: 1.5")
    options = parser.parse_args()
    found = list(losses(store.read(options.old), store.read(options.new), options.points, options.factor))
    if found:
        show("Losses", ["scenario", "model", "of", options.old.stem, options.new.stem], found)
        sys.exit(1)
    print("no losses")


if __name__ == "__main__":
    main()
