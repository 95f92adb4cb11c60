"""Processor time of a process with its first event, where no compiled code is stored yet, and where it is.

``--other PATH`` is another checkout with a ``.venv`` of its own: the same in that one, in turns with this one, and the
median of this one's time over the other's.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.common import arguments, interleaved, ratio, show

HERE = Path(__file__).resolve().parents[1]
EVENT = """
from streamkernel import KernelClassifier
model = KernelClassifier({})
model.learn_one({{"a": 1.0}}, True)
"""
MODELS = {"no arguments": "", "first order": "learner='dsg'"}


def processor_seconds(python: str, checkout: Path, code: str, cache: str) -> float:
    """Return the processor time of a process that runs some code, with compiled code in the folder `cache`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    subprocess.run([python, "-c", code], cwd=checkout, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold_and_warm(python: str, checkout: Path, code: str) -> tuple[float, float]:
    """Return the processor time of a process with an empty folder for compiled code, and of the next process."""
    with tempfile.TemporaryDirectory() as cache:
        first, second = (processor_seconds(python, checkout, code, cache) for _ in range(2))
    return first, second


def main() -> None:
    """Print the medians."""
    options = arguments(__doc__, runs=3, other="")
    checkouts = {"this checkout": (sys.executable, HERE)}
    if options.other:
        other = Path(options.other).resolve()
        checkouts[options.other] = str(other / ".venv" / "bin" / "python"), other
    rows = []
    for model, arguments_of in MODELS.items():
        code = EVENT.format(arguments_of)
        found = interleaved(options.runs, *(partial(cold_and_warm, *where, code) for where in checkouts.values()))
        ours = found[0]
        for name, times in zip(checkouts, found, strict=True):
            cold, warm = (statistics.median(column) for column in zip(*times, strict=True))
            ratios = [ratio(*pair) for pair in zip(zip(*ours, strict=True), zip(*times, strict=True), strict=True)]
            rows.append([f"{model}, {name}", f"{cold:.1f} s", f"{warm:.2f} s", *(f"{one:.2f}" for one in ratios)])
    columns = ["model", "nothing stored", "stored", "this one over it: nothing stored", "stored"]
    show("processor time of a process with one event", columns, rows)


if __name__ == "__main__":
    main()
