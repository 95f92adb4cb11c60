"""MOA's synthetic streams, written by MOA's own generators into the folder of data, for ``benchmarks.accuracy``.

RBF, LED, AGR and HYPER are 100,000 events each: blobs that stay; the digits of a display of which more and more
segments are swapped with noise, and Agrawal's loans by one function after another, each with three abrupt drifts at the
quarters; a hyperplane that turns all the time. RBF_m and RBF_f are 20,000 events of blobs that move, moderately and
fast.

    python -m benchmarks.moa_streams --data DIR
    python -m benchmarks.accuracy --data DIR --scenarios moa
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rich.progress import track

from benchmarks.common import arguments
from benchmarks.rivals import moa


def abrupt(concepts: list[str], apart: int) -> str:
    """Return MOA's text for a stream of concepts that give way to each other over 50 events."""
    first, *rest = concepts
    if not rest:
        return f"({first})"
    return f"(ConceptDriftStream -s ({first}) -d {abrupt(rest, apart)} -p {apart} -w 50)"


MANY, SOME = 100_000, 20_000
MOVING = "(generators.RandomRBFGeneratorDrift -c 5 -s {} -r 1 -i 1)"
STREAMS = {
    "moa_rbf": ("(generators.RandomRBFGenerator -c 5 -r 1 -i 1)", MANY),
    "moa_led": (abrupt([f"generators.LEDGeneratorDrift -d {n} -i 1" for n in (1, 3, 5, 7)], MANY // 4), MANY),
    "moa_agr": (abrupt([f"generators.AgrawalGenerator -f {n} -i 1" for n in (1, 2, 3, 4)], MANY // 4), MANY),
    "moa_hyper": ("(generators.HyperplaneGenerator -k 10 -t 0.001 -i 1)", MANY),
    "moa_rbf_m": (MOVING.format(0.0001), SOME),
    "moa_rbf_f": (MOVING.format(0.001), SOME),
}


def main() -> None:
    """Write the files that are not there."""
    options = arguments(__doc__, data=True, moa=Path())
    jar = moa.jar(options.moa)
    for name, (text, count) in track(STREAMS.items(), "streams", transient=True):
        path = options.data / f"{name}.arff"
        if path.exists():
            continue
        task = f"WriteStreamToARFFFile -s {text} -f part.arff -m {count}"
        subprocess.run(moa.java(jar, task), cwd=options.data, check=True, capture_output=True)
        (options.data / "part.arff").replace(path)
        print(path)


if __name__ == "__main__":
    main()
