"""A Schema Registry: its options and responses, and the decoding of values that begin with the id of their schema."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from streamkernel.connectors.base import UnavailableError, unknown_name
from streamkernel.connectors.json_values import json_object

PREFIX = "STREAMKERNEL_SCHEMA_REGISTRY_"
"""Prefix of environment variables: ``STREAMKERNEL_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO``."""

PATHS = ("ssl.ca.location", "ssl.key.location", "ssl.certificate.location")
"""Options whose value is the path of a file."""

SECRET = ("basic.auth.user.info", "bearer.auth.client.secret", "bearer.auth.token", "proxy", "ssl.key.password")
"""Options whose value is never shown."""

OPTIONS = (
    *PATHS,
    *SECRET,
    "bearer.auth.client.id",
    "bearer.auth.credentials.source",
    "bearer.auth.identity.pool.id",
    "bearer.auth.issuer.endpoint.url",
    "bearer.auth.logical.cluster",
    "bearer.auth.scope",
    "timeout",
)
"""Options of confluent-kafka's client that can be given."""

TIMEOUT = 5.0
"""Seconds that one request may take, unless the option ``timeout`` says otherwise."""

NOT_FOUND = (40400, 40401, 40402, 40403)
"""Error codes for an unknown subject, version or schema."""

T = TypeVar("T")

Read = Callable[[bytes], Any]
"""Decodes the bytes after the id to an object."""

HEAD = struct.Struct(">bI")
"""Header of a value: a zero byte, and the id of its schema."""

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
"""Formats, and their names in registries."""

ReaderOf = Callable[[int, Any], Read]
"""Returns the decoder of values with a schema, given its id and the registry's answer."""


class RegistryUnavailableError(UnavailableError):
    """The registry is unavailable, or rejects the login; the request may be retried."""


class Registry:
    """A Schema Registry behind confluent-kafka's client, which caches schemas.

    Requests raise `RegistryUnavailableError` if the registry is unavailable. `url` are the addresses,
    ``"https://host:8081"``, separated by commas. `given` are options of confluent-kafka's client, by name. A variable
    of the environment that is called ``STREAMKERNEL_SCHEMA_REGISTRY_`` and an option's name in capitals, with
    underscores, takes precedence. `folder` is the base of relative paths in options.

    Examples
    --------
    >>> Registry("http://localhost:8081", {"basic.auth.user.info": "me:s3cret"})
    Registry('http://localhost:8081', basic.auth.user.info='***')
    >>> Registry("http://localhost:8081", {"basic.auth.userinfo": "me:s3cret"})
    Traceback (most recent call last):
    ValueError: Expected an option among ssl.ca.location, ..., got "basic.auth.userinfo" - did you mean
    "basic.auth.user.info"?
    """

    def __init__(self, url: str, given: Mapping[str, Any] | None = None, folder: Path = Path()) -> None:
        self.url, self.given = url, {**(given or {}), **_of_environment(os.environ)}
        for one in url.split(","):
            _check_url(one.strip())
        for name, value in self.given.items():
            if name not in OPTIONS:
                raise unknown_name("an option among", name, OPTIONS)
            if name in PATHS:
                path = folder / str(value)
                if not path.exists():
                    raise ValueError(f'Expected a file that can be read as "{name}", got none - at {path}')
                self.given[name] = str(path)
        from confluent_kafka.schema_registry.schema_registry_client import SchemaRegistryClient

        settings = {"timeout": TIMEOUT, **self.given, "url": url, "max.retries": 0}  # the engine retries
        try:
            self._client: Any = SchemaRegistryClient.new_client(settings)
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"Expected options that can be combined, got an error: {error}") from error

    def schema(self, number: int) -> Any:
        """Return the schema with an id; raise a `ValueError` if the registry has none."""
        return self._ask(lambda: self._client.get_schema(number), f"schema {number}")

    def version(self, subject: str, version: int) -> Any:
        """Return a version of a subject, which another schema refers to; errors are those of `schema`."""
        what = f'version {version} of subject "{subject}"'
        return self._ask(lambda: self._client.get_version(subject, version), what).schema

    def register(self, subject: str, text: str, kind: str) -> int:
        """Register a schema under a subject, if it is not there yet, and return its id.

        Raise `ValueError` if the registry refuses it, because it is not compatible with earlier ones.
        """
        from confluent_kafka.schema_registry import Schema

        number = self._ask(
            lambda: self._client.register_schema(subject, Schema(text, kind)), f'a schema for subject "{subject}"'
        )
        return int(number)

    def check(self) -> None:
        """Raise a `RegistryUnavailableError` if the registry is unavailable or rejects the login."""
        self._ask(self._client.get_subjects, "its subjects")

    def _ask(self, call: Callable[[], T], what: str) -> T:
        from confluent_kafka.schema_registry.common._httpx_compat import httpx
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        where = f"of the schema registry at {self.url}"
        try:
            return call()
        except SchemaRegistryError as error:
            status, reason = error.http_status_code, error.error_message
            if (status == 404 and error.error_code in NOT_FOUND) or status in (409, 422):
                raise ValueError(f"Expected {what} {where}, got: {reason}") from error
            cause = f"HTTP status {status}: {reason}"
        except (httpx.HTTPError, OAuthTokenError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise RegistryUnavailableError(f"Expected {what} {where}, got {cause}") from error
        except ValueError as error:  # the server is not a registry
            raise RegistryUnavailableError(f"Expected {what} {where}, got an answer that is not JSON") from error
        raise RegistryUnavailableError(f"Expected {what} {where}, got {cause[:300]}")

    def __repr__(self) -> str:
        shown = (f", {name}={'***' if name in SECRET else value!r}" for name, value in self.given.items())
        return f"Registry({self.url!r}{''.join(shown)})"


def _check_url(url: str) -> None:
    """Raise a `ValueError` if a text is not an address, or contains a password, which logs would show."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            'Expected an address without a login, got one with it; the option "basic.auth.user.info" or the variable '
            f"{PREFIX}BASIC_AUTH_USER_INFO is for that"
        )
    if parts.scheme not in ("http", "https", "mock") or not parts.netloc:
        raise ValueError(f'Expected an address, "https://host:8081", got "{url}"')


def _of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options from environment variables."""
    return {
        variable.removeprefix(PREFIX).lower().replace("_", "."): text
        for variable, text in environ.items()
        if variable.startswith(PREFIX)
    }


def registry_reader(registry: Registry, form: str, reader_schema: str | None = None) -> Read:
    """Return a function from the bytes of a value to an object.

    The schema of each id is requested once, and its decoder is kept. `reader_schema` is the schema of Avro, as JSON,
    into which values are read: a field that a value lacks gets its default, and one that this schema lacks is left out.
    By default all fields are read that a value was written with. The result raises a `ValueError` if the value or its
    schema cannot be read, and `RegistryUnavailableError` if the registry is unavailable.
    """
    if form == "avro":
        reader_of = _avro(registry, reader_schema)
    else:
        reader_of = _json_schema(registry) if form == "json-schema" else _protobuf(registry)
    readers: dict[int, Read] = {}

    def make(number: int) -> Read:
        schema = registry.schema(number)
        kind = schema.schema_type or "AVRO"
        if kind != KINDS[form]:
            raise ValueError(f"Expected a schema of {form}, got {kind} - schema {number}")
        rules = schema.rule_set
        if rules is not None and (rules.domain_rules or rules.encoding_rules):
            raise ValueError(
                f"Expected a schema without rules, got one with rules, as for encryption - schema {number}"
            )
        try:
            return reader_of(number, schema)
        except (OSError, ValueError, MemoryError):
            raise
        except Exception as error:  # any error of the format's library
            raise ValueError(f"Expected a schema, got {type(error).__name__}: {error} - schema {number}") from error

    def read(value: bytes) -> Any:
        if len(value) < HEAD.size or value[0]:
            raise ValueError(
                f"Expected a zero byte and the id of a schema in front, got {value[: HEAD.size].hex(' ') or 'nothing'}"
            )
        number: int = HEAD.unpack_from(value)[1]
        reader = readers.get(number)
        if reader is None:
            reader = readers[number] = make(number)
        try:
            return reader(value[HEAD.size :])
        except (OSError, MemoryError):
            raise
        except Exception as error:
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            raise ValueError(f"Expected a value of schema {number}, got an error: {kind}{error}") from error

    return read


def _avro(registry: Registry, reader_schema: str | None) -> ReaderOf:
    """Return the decoders of Avro, which read values with their writer's schema, or into a reader's schema."""
    import fastavro

    def named(references: Any, schemas: dict[str, Any]) -> dict[str, Any]:
        """Return the schemas that another one refers to, by name."""
        for reference in references or ():
            if reference.name not in schemas:
                other = registry.version(reference.subject, reference.version)
                parsed_avro(other.schema_str, named(other.references, schemas))
        return schemas

    def reader_of(number: int, schema: Any) -> Read:
        written = parsed_avro(schema.schema_str, named(schema.references, {}))
        wanted = None if reader_schema is None else parsed_avro(reader_schema)

        def read(value: bytes) -> Any:
            stream = BytesIO(value)
            decoded = fastavro.schemaless_reader(stream, written, wanted)
            if rest := len(value) - stream.tell():
                raise ValueError(f"{rest} bytes are left behind the record")
            return decoded

        return read

    return reader_of


def parsed_avro(text: str, named: dict[str, Any] | None = None) -> Any:
    """Return a schema as parsed by fastavro; raise a `ValueError` if it is invalid.

    Examples
    --------
    >>> parsed_avro('{"type": "record"}')
    Traceback (most recent call last):
    ValueError: Expected a schema of Avro, got SchemaParseException: "name" is a required field missing ...
    """
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(text), named_schemas={} if named is None else named)
    except Exception as error:
        raise ValueError(f"Expected a schema of Avro, got {type(error).__name__}: {error}") from error


def _json_schema(registry: Registry) -> ReaderOf:
    """Return the decoders of JSON, which validate values against their schema."""
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry as Resources
    from referencing import Resource
    from referencing.jsonschema import DRAFT7

    def others(references: Any, schemas: Any) -> Any:
        """Return the schemas that another one refers to."""
        for reference in references or ():
            other = registry.version(reference.subject, reference.version)
            resource = Resource.from_contents(json.loads(other.schema_str), default_specification=DRAFT7)
            schemas = others(other.references, schemas.with_resource(reference.name, resource))
        return schemas

    def reader_of(number: int, schema: Any) -> Read:
        wanted = json.loads(schema.schema_str)
        kind = validator_for(wanted)
        kind.check_schema(wanted)
        validator = kind(wanted, registry=others(schema.references, Resources()))

        def read(value: bytes) -> Any:
            fields = json_object(value)
            error = best_match(validator.iter_errors(fields))
            if error is not None:
                raise ValueError(f"{error.message[:300]} - at {error.json_path}")
            return fields

        return read

    return reader_of


def _protobuf(registry: Registry) -> ReaderOf:
    from streamkernel.connectors.schema_registry.protobuf import reader_of

    return partial(reader_of, registry.version)
