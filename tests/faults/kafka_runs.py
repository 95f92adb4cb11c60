"""Runs of the command line against Kafka with injected faults, and checks of their results.

``python tests/faults/kafka_runs.py --kills 50 --events 200000`` is a long one: kill -9 at random moments, and proof.
With ``--partitions 4`` an audit shows that the model holds each event once, and with ``--order deterministic`` besides
it is the same to the bit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import brokers
from forked import COMMAND, Forked, Process
from kafka import KafkaAdminClient
from states import named
from waiting import LIMIT, T, wait_for

from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.estimators import model_file

CONFIG = """
label = "y"
{ignore}
[kafka]
servers = "{servers}"
client = "{client}"
group = "{group}"
processing_guarantee = "{processing_guarantee}"
{kafka}
options = {{ {options} }}
[source]
topics = ["{topic}"]
{source}
{recorder}
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
[http]
port = 0
"""
N = 6000
"""Records in the topic of a test."""

BAD_EVERY = 97
RECORDER = """
[[preprocessing]]
type = "OrdinalEncoder"
on = ["id"]
"""
"""A step of the pipeline that keeps each id it has learned, in the order of their coming."""


def records(n: int, seed: int = 0) -> list[Any]:
    """Return events with ids, and occasionally invalid bytes."""
    rng = random.Random(seed)
    found: list[Any] = []
    for i in range(n):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        found.append(b"{half" if i % BAD_EVERY == 5 else {"id": i, "a": a, "b": b, "y": a * b > 0})
    return found


def ids(n: int) -> list[int]:
    """Return the ids of the events among `n` records."""
    return [i for i in range(n) if i % BAD_EVERY != 5]


class Run:
    """A topic of events, and processes that learn from it as members of a group.

    Parameters
    ----------
    servers, folder
        Where the brokers are, and where states go.
    topic, partitions
        What is read, of how many partitions.
    source, options, processing_guarantee, client, kafka
        Lines for the tables [source] and [kafka.options], what is promised, by which client, and lines for [kafka].
    audited
        Whether the model records the ids of the events that it learns, for `learned`.
    topics
        Topics to make; by default, those that it writes to.
    """

    template = CONFIG
    program = COMMAND
    is_new = False
    """Whether each process imports everything for itself, as those of other programs do."""

    started: ClassVar[list[Process]] = []
    """All processes of all runs, for `kill_all`."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        topic: str,
        *,
        source: str = 'until = "latest"',
        options: str = "",
        processing_guarantee: str = "exactly_once",
        client: str = "kafka-python",
        kafka: str = "",
        audited: bool = False,
        topics: Iterable[str] | None = None,
    ) -> None:
        self.servers, self.topic, self._folder = servers, topic, folder
        self.name = uuid.uuid4().hex[:10]
        self.predictions, self.dead_letters = f"{self.name}-out", f"{self.name}-dead"
        self.source, self._options, self._client = source, options, client
        self._processing_guarantee = processing_guarantee
        self._kafka = kafka
        self._members: dict[str, Process] = {}
        self._extra = {"ignore": "", "recorder": RECORDER} if audited else {"ignore": 'ignore = ["id"]', "recorder": ""}
        wanted = [self.predictions, self.dead_letters] if topics is None else list(topics)
        if wanted:
            brokers.make_topics(servers, names=wanted)

    def start(self, member: str = "one", client: str | None = None) -> Process:
        """Start a member; one of the same name resumes from its state, with another client if one is given."""
        folder = self._folder / f"{self.name}-{member}"
        folder.mkdir(exist_ok=True)
        log, words = folder / "log", ["run", str(self.write(folder, client))]
        process = self._members[member] = self._started(log, words)
        self.started.append(process)
        return process

    def _started(self, log: Path, words: list[str]) -> Process:
        if not self.is_new:
            return Forked(words, log, self.program)
        with log.open("a") as file:
            return subprocess.Popen([sys.executable, "-c", self.program, *words], stderr=file, text=True)

    def wait_for(self, condition: Callable[[], T], seconds: float = LIMIT) -> T:
        """Return what a condition returns as soon as that is true.

        Raises
        ------
        AssertionError
            With the logs, if it is not true before the limit, or after a member has failed or all have ended.
        """

        def found() -> T:
            codes = [process.poll() for process in self._members.values()]
            value = condition()  # evaluated once more after the end
            assert value or (None in codes and not any(codes)), f"exit codes {codes}: {self.log_of_all()}"
            return value

        return wait_for(found, seconds, self.log_of_all)

    @classmethod
    def kill_all(cls) -> None:
        """Kill the processes of all runs that have not ended."""
        while cls.started:
            process = cls.started.pop()
            process.kill()
            process.wait()

    def write(self, folder: Path, client: str | None = None) -> Path:
        """Write the configuration of a member."""
        named(folder / "state", folder.name.removeprefix(self.name))  # of the same name as in a run to compare with
        config = folder / "run.toml"
        config.write_text(
            self.template.format(
                servers=self.servers, group=self.name, topic=self.topic, source=self.source, options=self._options,
                processing_guarantee=self._processing_guarantee, client=client or self._client, kafka=self._kafka,
                predictions=self.predictions, dead_letters=self.dead_letters, state=folder / "state", **self._extra,
            )
        )  # fmt: skip
        return config

    def log(self, member: str = "one") -> str:
        """Return the log of a member."""
        return (self._folder / f"{self.name}-{member}" / "log").read_text()

    def answer(self, path: str, question: Any = None, member: str = "one") -> str:
        """Return the HTTP response of a running member, an empty one if it is unavailable."""
        at = re.findall(r"live page at (\S+)/,", self.log(member))
        data = None if question is None else json.dumps(question).encode()
        try:
            asked = urllib.request.Request(at[-1] + path, data, {"content-type": "application/json"})
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return str(answer.read().decode())
        except (IndexError, OSError):
            return ""

    def metrics(self, member: str = "one") -> dict[str, float]:
        """Return the metrics of a running member, ``{}`` if it is not yet available."""
        lines = self.answer("/metrics", member=member).splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def state_directory(self, member: str = "one") -> Path:
        """Return the state directory of a member."""
        return self._folder / f"{self.name}-{member}" / "state"

    def checkpoints(self, member: str = "one") -> list[str]:
        """Return the names of a member's checkpoints, including prepared ones."""
        return sorted(path.name for path in self.state_directory(member).glob("[cp]*-*"))

    def has_state(self, member: str) -> bool:
        """Return whether a member has made a checkpoint."""
        return any(self.state_directory(member).glob("checkpoint-*"))

    def state(self, member: str = "one") -> dict[str, Any]:
        """Return the newest checkpoint of a member."""
        found = read_newest(self.state_directory(member))
        assert found is not None
        return found

    def model(self, member: str = "one") -> dict[str, bytes]:
        """Return the bits of a member's model, its metric and its counters."""
        return bits(self.state(member))

    def replayed(self, directory: Path, *words: str, member: str = "one") -> dict[str, Any]:
        """Run again over the records that a member has read, and return the newest checkpoint."""
        config = self._folder / f"{self.name}-{member}" / "run.toml"
        log = config.with_name("log of the replay")
        assert self._started(log, ["replay", str(config), str(directory), *words]).wait(LIMIT) == 0, log.read_text()
        found = read_newest(directory)
        assert found is not None
        return found

    def learned(self, member: str = "one") -> list[int]:
        """Return the ids that the durable model of an audited member holds, and -1 for each step that is not one."""
        if not self.has_state(member):
            return []
        recorder, *_, last = self.state(member)["model"].steps.values()
        found = list(recorder.transformer.values["id"])
        return found + [-1] * abs(last.n_steps - len(found))

    def members(self) -> int:
        """Return how many members the group has."""
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            return len(admin.describe_groups([self.name])[self.name]["members"])

    def committed(self) -> int:
        """Return how many records of the topic the group has committed."""
        asked = Options(self.servers).consumer(self.name)
        parts = asked.partitions_of(self.topic)
        found = sum(asked.committed(part) or 0 for part in parts)
        asked.close()
        return found

    def seen(self) -> list[tuple[bytes, bytes]]:
        """Return the predictions that read_committed consumers see."""
        return [(record.key, record.value) for record in brokers.committed(self.servers, self.predictions)]

    def dead(self) -> list[bytes]:
        """Return the keys of the dead letters that such consumers see."""
        return [record.key for record in brokers.committed(self.servers, self.dead_letters)]

    def log_of_all(self) -> str:
        """Return the logs of all members."""
        return "".join(path.read_text() for path in self._folder.glob(f"{self.name}-*/log"))


class RunInBatches(Run):
    """A run whose model predicts and learns several events in a call."""

    template = CONFIG.replace('[[preprocessing]]\ntype = "StandardScaler"\n', "")
    n_records = N


class FastRunInBatches(RunInBatches):
    """A run whose model predicts and learns many events in one call."""

    template = RunInBatches.template.replace("max_features = 64", 'max_features = 64\nlearner = "dsg"')
    n_records = 4 * N


def bits(state: dict[str, Any]) -> dict[str, bytes]:
    """Return the bits of the model in a checkpoint, its metric and its counters."""
    model = state["model"]
    tensors = model_file.describe(list(model.steps.values())[-1] if hasattr(model, "steps") else model)[1]
    found = {name: tensor.tobytes() for name, tensor in tensors.items()}
    return found | {"told": repr((state["metric"].get(), state["outcomes"])).encode()}


def assert_same(run: Run, calm: Run) -> None:
    """Raise an error if a run has not produced the same result as an undisturbed one."""
    assert run.seen() == calm.seen()
    assert run.dead() == calm.dead()
    assert run.model() == calm.model()


def killed(
    run: Run, kills: int, rng: random.Random, longest: float = 0.4, clients: Sequence[str | None] = (None,)
) -> int:
    """Kill a member at random moments and restart it, at last until its end; return the number of kills before the end.

    A moment is a random time after a checkpoint, at most `longest` seconds, or sometimes after the start. If clients
    are given, the starts have them in turn.
    """
    times = 0
    for i in range(kills):
        known = run.checkpoints()
        process = run.start(client=clients[i % len(clients)])
        if rng.random() < 0.8:
            wait_for(lambda known=known, process=process: run.checkpoints() != known or process.poll() is not None)
        try:
            process.wait(rng.uniform(0.0, longest))
            return times
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            times += 1
    assert run.start().wait(LIMIT) == 0, run.log()
    return times


def main() -> None:
    """Kill a run many times, and compare it with an undisturbed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--order", choices=["arrival", "deterministic"], default="arrival")
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
        tell(compare(f"127.0.0.1:{broker.port}", folder, options))


def compare(servers: str, folder: Path, options: argparse.Namespace) -> dict[str, bool]:
    """Return the comparisons between an undisturbed run and one that was killed."""
    brokers.make_topics(servers, names=["events"], partitions=options.partitions)
    brokers.produce(servers, "events", records(options.events), options.partitions)
    print(f"a broker at {servers} with {options.events:,} records; a consumer learns from them, and is left alone")
    is_audited = options.partitions > 1 and options.order == "arrival"
    told = {"source": f'until = "latest"\norder = "{options.order}"', "audited": is_audited, "client": options.client}
    calm, hurt = (Run(servers, folder, "events", **told) for _ in range(2))
    began = time.perf_counter()
    assert calm.start().wait() == 0, calm.log()
    alone = time.perf_counter() - began
    print(f"done in {alone:.0f} s; another one is killed with kill -9, up to {options.kills} times")
    longest = max(1.0, 2.0 * alone / max(1, options.kills))
    times = killed(hurt, options.kills, random.Random(options.seed), longest)
    print(f"killed {times} times; {json.dumps(hurt.state()['outcomes'])}")
    if is_audited:
        return audited(hurt, ["one"], options.events)
    predictions = hurt.seen()
    once = len(dict(predictions)) == len(predictions)
    return {
        "the same model and quality, to the bit": calm.model() == hurt.model(),
        "the same predictions, each seen once": calm.seen() == predictions and once,
        "the same dead letters, each seen once": calm.dead() == hurt.dead(),
    }


def audited(run: Run, members: Iterable[str], n: int) -> dict[str, bool]:
    """Return the checks of all members' models and of their output, after `n` records."""
    good, learned = ids(n), [i for name in members for i in run.learned(name)]
    return {
        "each event learned, in one durable model, once": sorted(learned) == good,
        "each prediction seen once": sorted(int(key) for key, _ in run.seen()) == good,
        "each dead letter seen once": sorted(map(int, run.dead())) == list(range(5, n, BAD_EVERY)),
    }


def tell(found: dict[str, bool]) -> None:
    """Print the result of each check, and end with an error if one failed."""
    for what, is_so in found.items():
        print(f"{what}: {'yes' if is_so else 'NO'}")
    if not all(found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
