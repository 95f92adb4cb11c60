"""Time to import the package, and from the start of a process to its first prediction."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.common import arguments, interleaved, seconds, show

IMPORT = "import streamkernel"
RIVER = "from river import linear_model"
FIRST = """
from streamkernel import KernelClassifier
model = KernelClassifier()
model.learn_one({"a": 1.0}, True)
model.predict_one({"a": 2.0})
"""


def main() -> None:
    """Print the medians without the first process, which compiles."""
    options = arguments(__doc__, runs=7)

    def process(code: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    process(FIRST)
    jobs = {"empty process": "pass", "import river.linear_model": RIVER, IMPORT: IMPORT, "first prediction": FIRST}
    times = interleaved(options.runs, *(lambda code=code: process(code) for code in jobs.values()))
    rows = [[name, f"{statistics.median(took):.2f} s"] for name, took in zip(jobs, times, strict=True)]
    show("a process from start to end", ["what it does", "median"], rows)


if __name__ == "__main__":
    main()
