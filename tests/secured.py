"""A broker of Apache Kafka with a listener for each kind of security, its certificates, and an issuer of tokens."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from brokers import PROPERTIES, Broker, cluster_id, format_data, free_port, java, wait_for_all
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

USER, PASSWORD = "alice", "right-horse"
"""Who may log in with a password, and who gets tokens from the issuer for it as a secret."""

LISTENERS = {
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SSL": "SSL",
    "MUTUAL": "SSL",  # which wants a certificate of the client
    "EXPIRED": "SSL",  # whose certificate has expired
    "ELSEWHERE": "SSL",  # whose certificate is for another host
}
"""The protocols of the listeners besides the one without security."""

SECURITY = "org.apache.kafka.common.security"

SECURED = """
listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config={security}.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class={security}.oauthbearer.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwks.endpoint.url={issuer}/keys
sasl.oauthbearer.expected.audience=kafka
ssl.keystore.type=PEM
ssl.truststore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.location={folder}/ca.pem
listener.name.mutual.ssl.client.auth=required
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={folder}/expired.pem
listener.name.elsewhere.ssl.keystore.type=PEM
listener.name.elsewhere.ssl.keystore.location={folder}/elsewhere.pem
"""


class Secured(NamedTuple):
    """A broker that takes clients by each kind of security.

    Parameters
    ----------
    broker
        The broker; a client of its own port needs no password.
    ports
        The ports of `LISTENERS`.
    folder
        The folder with ``ca.pem``, which signed all certificates, and ``client.pem`` and ``client.key``; nobody knows
        the authority of ``stranger.pem`` and ``stranger.key``.
    issuer
        The address of the issuer: ``/token`` has tokens, ``/old`` tokens that have expired.
    """

    broker: Broker
    ports: Mapping[str, int]
    folder: Path
    issuer: str


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run one broker that knows `USER` by `PASSWORD`, and an issuer of tokens that it trusts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_certificates(folder)
    ports, path = {name: free_port() for name in LISTENERS}, folder / "1.properties"
    port, controller = free_port(), free_port()
    with issuer() as url:
        listeners = "".join(f",{name}://127.0.0.1:{number}" for name, number in ports.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in LISTENERS.items())
        told = {"node": 1, "voters": f"1@127.0.0.1:{controller}", "port": port, "controller": controller, "replicas": 1}
        text = PROPERTIES.format(**told, data=folder / "data", listeners=listeners, protocols=protocols)
        login = {"user": USER, "password": PASSWORD, "security": SECURITY}
        path.write_text(text + SECURED.format(folder=folder, issuer=url, **login))
        users = [f"{name}=[name={USER},password={PASSWORD}]" for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        format_data(folder, path, cluster_id(), *(word for user in users for word in ("-S", user)))
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}/keys"
        broker = Broker([*java(allowed), "kafka.Kafka", path], port, folder)
        try:
            broker.wait()
            wait_for_all(broker, 1)
            yield Secured(broker, ports, folder, url)
        finally:
            broker.kill()


def write_certificates(folder: Path) -> None:
    """Write the certificates of the broker and of clients."""
    ours, another = Authority("ca"), Authority("another")
    (folder / "ca.pem").write_bytes(ours.certificate)
    here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    for name, days, names in (
        ("broker", 30, here),
        ("expired", -1, here),
        ("elsewhere", 30, [x509.DNSName("elsewhere.example")]),
    ):
        key, certificate = ours.sign(name, days, names)
        (folder / f"{name}.pem").write_bytes(key + certificate)
    for name, authority in (("client", ours), ("stranger", another)):
        key, certificate = authority.sign(name, 30, [])
        (folder / f"{name}.key").write_bytes(key)
        (folder / f"{name}.pem").write_bytes(certificate)


class Authority:
    """An authority that signs certificates.

    Parameters
    ----------
    name
        Its name.
    """

    def __init__(self, name: str) -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _named(name)
        self.certificate = self._signed(self._name, self._key, 30, [], authority=True)

    def sign(self, name: str, days: int, names: list[x509.GeneralName]) -> tuple[bytes, bytes]:
        """Return a new key and its certificate, which expires after so many days, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return key.private_bytes(*plain), self._signed(_named(name), key, days, names, authority=False)

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        days: int,
        names: list[x509.GeneralName],
        authority: bool,
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=10))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


@contextmanager
def issuer() -> Iterator[str]:
    """Run an issuer of tokens for `USER` as a thread, and yield its address."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    login = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is that of the method
            number = key.public_key().public_numbers().n
            public = {"n": _base64(number.to_bytes(256, "big")), "e": "AQAB"}
            self.reply(200, {"keys": [{"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", **public}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if self.headers["authorization"] != login:
                self.reply(401, {"error": "invalid_client", "error_description": "wrong secret of the client"})
                return
            seconds = -300 if self.path == "/old" else 3600
            self.reply(200, {"access_token": _token(key, seconds), "token_type": "Bearer", "expires_in": seconds})

        def reply(self, status: int, answer: Mapping[str, object]) -> None:
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _token(key: rsa.RSAPrivateKey, seconds: int) -> str:
    """Return a signed token (RFC 7519) that expires after so many seconds."""
    now = int(time.time())
    claims = {"iss": "tests", "sub": USER, "aud": "kafka", "scope": "kafka", "iat": now - 600, "exp": now + seconds}
    parts = [_base64(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "1", "typ": "JWT"}, claims)]
    signature = key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
    return ".".join([*parts, _base64(signature)])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
