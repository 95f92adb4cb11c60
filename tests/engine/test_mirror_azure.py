"""A mirror in Azure's own server for tests, which has its own signatures, conditions and uploads in parts."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import io
import os
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest
from waiting import wait_for

from streamkernel.engine.checkpoint.bucket import Bucket, DamagedError, MirrorError
from streamkernel.engine.checkpoint.mirror import MirroredDirectory

AZURITE = "azurite@3.35.0"
KEY = base64.b64encode(b"hunter22-is-not-for-logs").decode()

pytestmark = pytest.mark.slow


def make_container(url: str) -> None:
    """Make a container, which the library does not, with a request that is signed as Azure's reference says."""
    date = email.utils.formatdate(usegmt=True)
    text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:2021-08-06\n/someone/someone/bucket\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Authorization": f"SharedKey someone:{signature}"}
    urllib.request.urlopen(
        urllib.request.Request(f"{url}/bucket?restype=container", method="PUT", headers=headers)
    ).close()


@pytest.fixture
def azure(tmp_path, monkeypatch):
    if shutil.which("npm") is None:
        pytest.skip("Azurite needs npm: apt-get install npm")
    words = ["npm", "exec", "--yes", f"--package={AZURITE}", "--", "azurite-blob", "--blobPort", "0", "--silent"]
    words += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    log = tmp_path / "azurite.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            words,
            stdout=file,
            stderr=file,
            cwd=tmp_path,
            env=os.environ | {"AZURITE_ACCOUNTS": f"someone:{KEY}"},
            start_new_session=True,
        )
    try:
        found = wait_for(
            lambda: re.search(r"listens on (\S+)", log.read_text()) or process.poll() is not None, what=log.read_text
        )
        assert isinstance(found, re.Match), log.read_text()
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "someone")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{found[1]}/someone")
        monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
        make_container(f"{found[1]}/someone")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_mirror_in_azure(azure, tmp_path, monkeypatch):
    with MirroredDirectory(tmp_path / "one", "az://bucket/runs/one") as one:
        for i in range(1, 6):
            one.write({"learned": i})
            wait_for(lambda: not one.mirror.lag_checkpoints)
    with MirroredDirectory(tmp_path / "two", "az://bucket/runs/one") as two:
        assert two.read_newest() == {"learned": 5, "checkpoint": 5}
        assert two.identity == one.identity
    bucket = Bucket("az://bucket/runs/one")
    assert len(bucket.names()) == 6  # three checkpoints with their manifests
    assert [bucket.create("once", b"1"), bucket.create("once", b"2"), bucket.get("once")] == [True, False, b"1"]
    bucket.put("large", io.BytesIO(bytes(12_000_000)))  # in parts
    assert sum(len(piece) for piece in bucket.stream("large")) == 12_000_000
    bucket.delete(["large", "once", "none"])
    with pytest.raises(DamagedError, match="Expected an object, got none"):
        bucket.get("large")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"another key").decode())
    with pytest.raises(MirrorError, match="403 Forbidden"):
        MirroredDirectory(tmp_path / "three", "az://bucket/runs/one")
