"""An S3 server of this process, moto's, whose answers can be delayed, replaced and cut off.

It also answers clients of Google Cloud Storage: its XML interface has the paths, queries and answers of S3, and other
headers for credentials and conditions, which are translated here.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

SECRET = "hunter22-is-not-for-logs"

GOOGLE = {"client_email": "someone", "private_key": SECRET, "private_key_id": "1", "disable_oauth": True}
ANYONE = "AWS4-HMAC-SHA256 Credential=someone/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"

Fault = Callable[[str, str], int | None]
"""A function of method and path that returns a status in place of an answer, or None; it may wait."""


class ObjectStore:
    """A server with one bucket.

    Attributes
    ----------
    fault : Fault
        What happens to requests.
    environment : dict
        The variables of a process that uses it.
    """

    def __init__(self) -> None:
        self.fault: Fault = lambda method, path: None
        self._application = DomainDispatcherApplication(create_backend_app)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._url = f"http://127.0.0.1:{self._server.port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(GOOGLE | {"gcs_base_url": self._url}),
        }
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        urllib.request.urlopen(urllib.request.Request(f"{self._url}/bucket", method="PUT")).close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        status = self.fault(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if status is None:
            if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS4"):
                environ["HTTP_AUTHORIZATION"] = ANYONE
            if environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH") == "0":
                environ["HTTP_IF_NONE_MATCH"] = "*"
            return self._application(environ, start_response)
        start_response(f"{status} NO", [("content-type", "application/xml")])
        key = environ.get("HTTP_AUTHORIZATION", "")
        return [f"<Error><Code>Refused</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>".encode()]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run a server, whose variables are those of this process too."""
    store, before = ObjectStore(), dict(os.environ)
    os.environ |= store.environment
    try:
        yield store
    finally:
        for name in store.environment:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
        store.close()


def files(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())
