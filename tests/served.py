"""Commands of streamkernel as processes that serve HTTP, certificates for them, and a client."""

from __future__ import annotations

import datetime as dt
import http.client
import ipaddress
import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from waiting import LIMIT, wait_for


class ServerProcess:
    """A process that serves HTTP.

    Parameters
    ----------
    words
        The command and its arguments.
    log
        The file for its standard error.
    trusted
        The certificate to trust, if it has TLS.
    """

    def __init__(self, words: list[Any], log: Path, trusted: Path | None = None) -> None:
        self.log, self.trusted = log, trusted
        command = [sys.executable, "-m", "streamkernel", *map(str, words)]
        with log.open("ab") as file:
            began = file.tell()
            self.process = subprocess.Popen(command, stderr=file, stdout=file)

        def address() -> re.Match[bytes] | None:
            assert self.process.poll() is None, log.read_text()
            return re.search(rb"https?://[\w.]+:(\d+)/", log.read_bytes()[began:])

        self.port = int(wait_for(address)[1])

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection."""
        if self.trusted is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        context = ssl.create_default_context(cafile=self.trusted)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LIMIT, context=context)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and body of a response over a connection of its own."""
        connection = self.connect()
        sent = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, raw, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, dict(answer.headers), json.loads(text) if is_json else text.decode()

    def metric(self, name: str) -> float:
        """Return the value of a metric."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("GET", "/metrics")[2], re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def wait_until_ready(self) -> None:
        """Wait until a model can predict."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.ask("GET", "/readyz")[0] == 200

        wait_for(is_ready, what=self.log.read_text)


@contextmanager
def server(*words: Any, log: Path, trusted: Path | None = None) -> Iterator[ServerProcess]:
    """Start a process that serves HTTP, and end it."""
    found = ServerProcess(list(words), log, trusted)
    try:
        yield found
    finally:
        found.process.terminate()
        found.process.wait(LIMIT)


def write_certificate(certificate: Path, key: Path, name: str = "localhost") -> None:
    """Write a certificate for this machine that is signed with its own key."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), dt.datetime.now(dt.UTC)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    found = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(found.public_bytes(serialization.Encoding.PEM))
    plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(private.private_bytes(*plain))
