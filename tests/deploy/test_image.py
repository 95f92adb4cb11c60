"""The image of deploy/Containerfile, built and run without a daemon and without another image."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT, wait_for

from streamkernel import __version__

pytestmark = pytest.mark.image

TOP = Path(__file__).resolve().parents[2]
STATE = "/var/lib/streamkernel"
UID = 10001
CONFIG = f"""
label = "y"
[source]
path = "{STATE}/events.jsonl"
[model]
type = "KernelClassifier"
[sink]
predictions = "{STATE}/predictions.jsonl"
dead_letters = "{STATE}/dead.jsonl"
[state]
directory = "{STATE}/state"
checkpoint_seconds = 0.2
[http]
port = 9464
"""
EVENTS = "".join(
    json.dumps({"a": a, "b": b, "y": a * b > 0}) + "\n"
    for a, b in ((((i * 37) % 101 - 50) / 25, ((i * 53) % 89 - 44) / 22) for i in range(6000))
)


@dataclass(frozen=True)
class Image:
    """An image: its root folder, and what it says of itself."""

    root: Path
    config: dict[str, Any]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the image's user can read, which pytest's are not."""
    assert os.getuid() == 0, "expected root, or an ordinary user's `buildah unshare make image`"
    folder = Path(tempfile.mkdtemp(prefix="streamkernel-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def image(folder: Path) -> Iterator[Image]:
    """The image on a base of Debian's packages, built with this machine's certificates and settings of pip."""
    settings = {"driver": "vfs", "graphroot": str(folder / "graph"), "runroot": str(folder / "run")}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (folder / "storage.conf").write_text("\n".join(["[storage]", *lines]))
    (folder / "Base").write_text("FROM scratch\nADD base.tar /\n")
    environment = os.environ | {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}

    def do(*words: object) -> str:
        told = [str(word) for word in words]
        done = subprocess.run(told, env=environment, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, f"{told}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        return done.stdout.strip()

    build = ["buildah", "build", "--format", "docker", "--isolation", "chroot", "--network", "host"]
    packages = "python3,python3-venv,ca-certificates"
    do(
        "mmdebstrap",
        "--variant=minbase",
        f"--include={packages}",
        "bookworm",
        "base.tar",
        "http://deb.debian.org/debian",
    )
    do(*build, "--tag", "localhost/base", "--file", "Base", folder)
    (folder / "base.tar").unlink()
    ours = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
    volumes = [f"--volume={path}:{path}:ro" for path in ours]
    options = [*volumes, "--build-arg", "BASE=localhost/base", "--tag", "localhost/streamkernel"]
    do(*build, *options, "--file", TOP / "deploy" / "Containerfile", TOP)
    config = json.loads(do("buildah", "inspect", "--type", "image", "localhost/streamkernel"))["Docker"]["config"]
    container = do("buildah", "from", "--pull-never", "localhost/streamkernel")
    root = Path(do("buildah", "mount", container))
    for parent in root.parents:
        if folder in parent.parents:
            parent.chmod(0o711)  # the image's user has to get there
    yield Image(root, config)
    do("buildah", "rm", "--all")


class Volume:
    """A volume for the state, with a configuration and events, and containers that run with it.

    Parameters
    ----------
    image
        What they are made of.
    folder
        The folder for the volume and for logs.
    """

    def __init__(self, image: Image, folder: Path) -> None:
        self.image, self.state, self.log = image, folder / "volume", folder / "log"
        self.config = folder / "streamkernel.toml"
        self.state.mkdir(parents=True)
        self.config.write_text(CONFIG)
        (self.state / "events.jsonl").write_text(EVENTS)
        for path in (self.state, self.state / "events.jsonl"):
            os.chown(path, UID, UID)

    @property
    def predictions(self) -> Path:
        """The predictions of the run."""
        return self.state / "predictions.jsonl"

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a container: a root that cannot be written, no capabilities, a network and processes of its own.

        Parameters
        ----------
        *command
            What runs instead of the image's command.
        **environment
            Variables besides those of the image.
        """
        config = self.image.config
        given = dict(line.split("=", 1) for line in config["Env"]) | environment
        inside = [word for name, value in given.items() for word in ("--setenv", name, value)]
        mounts = ["--ro-bind", str(self.image.root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        mounts += ["--tmpfs", "/etc/streamkernel", "--ro-bind", str(self.config), config["Cmd"][-1]]
        mounts += ["--bind", str(self.state), STATE]
        limits = ["--unshare-all", "--die-with-parent", "--uid", str(UID), "--gid", str(UID), "--cap-drop", "ALL"]
        words = ["bwrap", *limits, "--clearenv", *inside, *mounts, *(command or config["Entrypoint"] + config["Cmd"])]
        with self.log.open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, user=UID, group=UID, extra_groups=[])

    def wait_for(self, lines: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process has written at least `lines` predictions."""

        def are_there() -> bool:
            assert process.poll() is None, self.log.read_text()[-3000:]
            return self.predictions.exists() and self.predictions.read_bytes().count(b"\n") >= lines

        wait_for(are_there, what=lambda: self.log.read_text()[-3000:])

    def results(self) -> str:
        """Return the predictions without the name of the state."""
        identity = (self.state / "state" / "identity").read_text()
        return self.predictions.read_text().replace(identity, "")


@pytest.fixture
def volume(image: Image, folder: Path, request: pytest.FixtureRequest) -> Volume:
    return Volume(image, folder / request.node.name[:20])


def test_the_image_declares_user_volume_command_title_and_health_check(image: Image) -> None:
    config = image.config
    assert config["User"] == "streamkernel"
    assert config["Volumes"].keys() == {STATE}
    assert config["Entrypoint"] + config["Cmd"] == ["streamkernel", "run", "/etc/streamkernel/streamkernel.toml"]
    assert config["Labels"]["org.opencontainers.image.title"] == "streamkernel"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert re.search(rf"^streamkernel:x:{UID}:.*nologin$", (image.root / "etc" / "passwd").read_text(), re.MULTILINE)


def test_the_user_can_write_state_and_compiled_code_alone_and_nothing_of_the_build_is_left(image: Image) -> None:
    settings = image.root / "etc" / "pip.conf"
    assert not settings.exists() or settings.stat().st_size == 0  # the place where the build's was mounted
    assert not [*image.root.glob("opt/streamkernel/lib/*/site-packages/pip")]
    owned = {
        path
        for folder, names, files in os.walk(image.root)
        for path in (Path(folder, name) for name in (*names, *files))
        if path.lstat().st_uid == UID
        or ((path.is_dir() or path.is_file()) and not path.is_symlink() and path.stat().st_mode & 0o1002 == 0o002)
    }
    allowed = {image.root / "var/lib/streamkernel", image.root / "var/cache/streamkernel"}
    assert {path for path in owned if not allowed & {path, *path.parents}} == set()


def test_the_bill_of_materials_lists_the_locked_packages(image: Image) -> None:
    bill = json.loads((image.root / "usr/share/doc/streamkernel/packages.cdx.json").read_text())
    listed = {re.sub(r"[-_.]+", "-", part["name"].lower()): part["version"] for part in bill["components"]}
    pattern = r"^([\w.-]+)==(\S+)(?: ; (.*?))? \\$"
    locked = {name for name, *_ in re.findall(pattern, (TOP / "requirements/run.txt").read_text(), re.MULTILINE)}
    ours = listed.pop("streamkernel", None)
    assert ours in (None, __version__)
    assert listed.keys() <= locked
    for name in ("river", "numpy", "numba", "kafka-python", "prometheus-client"):
        assert name in listed
    assert bill["metadata"]["component"]["name"] == "streamkernel"


def test_another_container_continues_after_a_kill_with_the_same_predictions(volume: Volume, image: Image) -> None:
    whole = Volume(image, volume.state.parent / "whole")
    whole.start().wait(LIMIT)
    for lines in (500, 2500):
        process = volume.start()
        volume.wait_for(lines, process)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT)
    assert volume.start().wait(LIMIT) == 0, volume.log.read_text()[-3000:]
    assert volume.results() == whole.results()
    assert volume.results().count("\n") == 6000
    assert "compiling" not in whole.log.read_text()  # the image has the code


def test_the_health_check_passes_while_a_container_runs_and_fails_otherwise(volume: Volume) -> None:
    (volume.state / "events.jsonl").write_text(EVENTS * 1000)
    check = shlex.join(volume.image.config["Healthcheck"]["Test"][1:])
    run = shlex.join(volume.image.config["Entrypoint"] + volume.image.config["Cmd"])
    assert volume.start("sh", "-c", check).wait(LIMIT) == 1
    script = f"{run} & until {check}; do sleep 0.2; done; kill $!; wait $!"
    assert volume.start("sh", "-c", script).wait(LIMIT) == 0, volume.log.read_text()[-3000:]


def test_another_kind_of_processor_compiles_again_and_predicts_the_same(volume: Volume) -> None:
    assert volume.start().wait(LIMIT) == 0
    other = Volume(volume.image, volume.state.parent / "other")
    assert other.start(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="").wait(LIMIT) == 0, other.log.read_text()[-3000:]
    assert "compiling" in other.log.read_text()
    ours, theirs = ([json.loads(line) for line in one.predictions.open()] for one in (volume, other))
    assert len(ours) == len(theirs) == 6000
    same = sum(a["prediction"] == b["prediction"] for a, b in zip(ours, theirs, strict=True))
    assert same >= 5990
