"""Runs of the command line against Kafka that are hurt on purpose, and what is left of them.

``python tests/faults/kafka_runs.py --kills 50 --events 200000`` is a long one: kill -9 at random moments, and proof.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # before tests, which has a folder "connectors" too

import brokers

from connectors.kafka.options import CLIENTS
from streamkernel import model_file
from streamkernel.engine.checkpoint import read_newest

CONFIG = """
label = "y"
ignore = ["id"]
[kafka]
servers = "{servers}"
client = "{client}"
group = "{group}"
delivery = "{delivery}"
options = {{ {options} }}
[source]
topics = ["{topic}"]
{source}
[[preprocessing]]
type = "StandardScaler"
[model]
type = "KernelClassifier"
max_features = 64
[sink]
predictions_topic = "{predictions}"
dead_letters_topic = "{dead_letters}"
[state]
directory = "{state}"
checkpoint_seconds = 0.3
"""
BAD_EVERY = 97
COMMAND = [sys.executable, "-c", "from streamkernel.cli import main; main()"]


def records(n: int, seed: int = 0) -> list[Any]:
    """Return events with ids, and here and there bytes that are none."""
    rng = random.Random(seed)
    found: list[Any] = []
    for i in range(n):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        found.append(b"{half" if i % BAD_EVERY == 5 else {"id": i, "a": a, "b": b, "y": a * b > 0})
    return found


class Run:
    """A topic of events, and processes that learn from it as members of a group.

    Parameters
    ----------
    servers, folder
        Where the brokers are, and where states go.
    topic, partitions
        What is read, of how many partitions.
    source, options, delivery, client
        Lines for the tables [source] and [kafka.options], what is promised, and by which client.
    """

    def __init__(
        self,
        servers: str,
        folder: Path,
        topic: str,
        *,
        source: str = 'until = "latest"',
        options: str = "",
        delivery: str = "exactly_once",
        client: str = "kafka-python",
    ) -> None:
        self.servers, self.topic, self._folder = servers, topic, folder
        self.name = uuid.uuid4().hex[:10]
        self.predictions, self.dead_letters = f"{self.name}-out", f"{self.name}-dead"
        self._source, self._options, self._delivery, self._client = source, options, delivery, client
        brokers.make_topics(servers, names=[self.predictions, self.dead_letters])

    def start(self, member: str = "one", client: str | None = None) -> subprocess.Popen[str]:
        """Start a member; one of the same name goes on with its state, with another client if one is given."""
        folder = self._folder / f"{self.name}-{member}"
        folder.mkdir(exist_ok=True)
        config = folder / "run.toml"
        config.write_text(
            CONFIG.format(
                servers=self.servers, group=self.name, topic=self.topic, source=self._source, options=self._options,
                delivery=self._delivery, client=client or self._client, predictions=self.predictions,
                dead_letters=self.dead_letters, state=folder / "state",
            )
        )  # fmt: skip
        words = [*COMMAND, "run", str(config)]
        with (folder / "log").open("a") as log:
            return subprocess.Popen(words, stderr=log, text=True)

    def log(self, member: str = "one") -> str:
        """Return what a member has said."""
        return (self._folder / f"{self.name}-{member}" / "log").read_text()

    def has_state(self, member: str) -> bool:
        """Return whether a member ever made a checkpoint."""
        return any((self._folder / f"{self.name}-{member}" / "state").glob("checkpoint-*"))

    def state(self, member: str = "one") -> dict[str, Any]:
        """Return the newest checkpoint of a member."""
        found = read_newest(self._folder / f"{self.name}-{member}" / "state")
        assert found is not None
        return found

    def model(self, member: str = "one") -> dict[str, bytes]:
        """Return the bits of the model of a member, and what its metric and its counters say."""
        return bits(self.state(member))

    def replayed(self, directory: Path, *words: str, member: str = "one") -> dict[str, Any]:
        """Run what a member has read again, and return the newest checkpoint."""
        config = self._folder / f"{self.name}-{member}" / "run.toml"
        subprocess.run([*COMMAND, "replay", config, directory, *words], check=True, capture_output=True)
        found = read_newest(directory)
        assert found is not None
        return found

    def seen(self) -> list[tuple[bytes, bytes]]:
        """Return the predictions that readers of what is committed see."""
        return [(record.key, record.value) for record in brokers.committed(self.servers, self.predictions)]

    def dead(self) -> list[bytes]:
        """Return the keys of the dead letters that such readers see."""
        return [record.key for record in brokers.committed(self.servers, self.dead_letters)]

    def log_of_all(self) -> str:
        """Return what all members have said."""
        return "".join(path.read_text() for path in self._folder.glob(f"{self.name}-*/log"))


def bits(state: dict[str, Any]) -> dict[str, bytes]:
    """Return the bits of the model in a checkpoint, and what its metric and its counters say."""
    tensors = model_file.describe(list(state["model"].steps.values())[-1])[1]
    found = {name: tensor.tobytes() for name, tensor in tensors.items()}
    return found | {"told": repr((state["metric"].get(), state["outcomes"])).encode()}


def killed(run: Run, kills: int, rng: random.Random, shortest: float = 2.0, longest: float = 6.0) -> int:
    """Kill a member at random moments and let it go on, at last to the end; return how often it was killed in time."""
    times = 0
    for _ in range(kills):
        process = run.start()
        try:
            process.wait(rng.uniform(shortest, longest))
            return times
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            times += 1
    assert run.start().wait(600) == 0, run.log()
    return times


def main() -> None:
    """Kill a run many times, and compare it with one that was left alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broker", choices=["apache", "noida"], default="apache")
    parser.add_argument("--client", choices=CLIENTS, default="kafka-python")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if options.broker == "apache":
            (broker,) = stack.enter_context(brokers.apache(folder / "broker"))
        else:
            broker = stack.enter_context(brokers.noida(folder / "broker"))
        compare(f"127.0.0.1:{broker.port}", folder, options)


def compare(servers: str, folder: Path, options: argparse.Namespace) -> None:
    """Print what is the same in a run that was left alone and in one that was killed."""
    brokers.make_topics(servers, names=["events"])
    brokers.produce(servers, "events", records(options.events))
    print(f"a broker at {servers} with {options.events:,} records; a consumer learns from them, and is left alone")
    calm, hurt = (Run(servers, folder, "events", client=options.client) for _ in range(2))
    began = time.perf_counter()
    assert calm.start().wait() == 0, calm.log()
    alone = time.perf_counter() - began
    print(f"done in {alone:.0f} s; another one is killed with kill -9, up to {options.kills} times")
    longest = max(4.0, alone / max(1, options.kills) + 3.0)
    times = killed(hurt, options.kills, random.Random(options.seed), 2.0, longest)
    predictions = hurt.seen()
    once = len(dict(predictions)) == len(predictions)
    same = {
        "model and quality, to the bit": calm.model() == hurt.model(),
        "predictions, each seen once": calm.seen() == predictions and once,
        "dead letters, each seen once": calm.dead() == hurt.dead(),
    }
    print(f"killed {times} times; {json.dumps(hurt.state()['outcomes'])}")
    for what, is_same in same.items():
        print(f"the same {what}: {'yes' if is_same else 'NO'}")
    if not all(same.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
