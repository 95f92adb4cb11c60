"""Protobuf: messages of a descriptor from the registry, as nested dictionaries."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from streamkernel.connectors.json_values import DEEPEST

KNOWN = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
"""Files of Google's own messages; importing them puts them into the default pool."""

Version = Callable[[str, int], Any]
"""Returns a version of a subject of a registry, which another schema refers to."""


def reader_of(version: Version, number: int, schema: Any) -> Callable[[bytes], Any]:
    """Return the decoder of values with a schema, for any of its messages."""
    pool = descriptor_pool.DescriptorPool()
    name = f"schema-{number}.proto"
    texts: dict[str, str] = {}
    files = _described(version, schema, name, texts)
    _add(files or compiled(texts, name), pool)
    file = pool.FindFileByName(name)
    classes: dict[tuple[int, ...], Any] = {}

    def read(value: bytes) -> Any:
        path, start = message_path(value)
        if path not in classes:
            classes[path] = GetMessageClass(_message(pool, file, path))
        message = classes[path]()
        message.ParseFromString(value[start:])
        return as_dict(message)

    return read


def message_path(value: bytes) -> tuple[tuple[int, ...], int]:
    r"""Return the path of a message in its file, as indexes from the outermost message inwards, and its first byte.

    The path is encoded as the number of indexes and the indexes, all as signed integers of variable length; a single
    ``0`` is the first message.

    Examples
    --------
    >>> message_path(b"\0..."), message_path(b"\x04\x02\x00...")
    (((0,), 1), ((1, 0), 3))
    """
    at = 0

    def integer() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = value[at]
            number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    count = integer()
    if not 0 <= count <= DEEPEST:
        raise ValueError(f"at most {DEEPEST} indexes of messages are expected, got {count}")
    return tuple(integer() for _ in range(count)) or (0,), at


def as_dict(message: Any) -> dict[str, Any]:
    """Return the fields of a message by their names in its schema.

    A field with presence that is not set is ``None``, and so is an empty list; any other unset field has the default of
    its type. An enumeration is the name of its value, a map is an object, and a time stamp and a duration are in
    seconds.
    """
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            fields[field.name] = {str(key): _plain(of, value[key]) for key in value}
        elif field.is_repeated:
            fields[field.name] = [_plain(field, item) for item in value] or None  # an empty one counts as unset
        elif field.has_presence and not message.HasField(field.name):
            fields[field.name] = None
        else:
            fields[field.name] = _plain(field, value)
    return fields


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return value.seconds + 1e-9 * value.nanos
    if name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
        return MessageToDict(value)
    if value.DESCRIPTOR.file.name == wrappers_pb2.DESCRIPTOR.name:
        return value.value
    return as_dict(value)


def _described(version: Version, schema: Any, name: str, texts: dict[str, str]) -> list[Any]:
    """Return the descriptors of files that are registered as such, and collect the texts of others."""
    files = []
    for reference in schema.references or ():
        if reference.name not in texts:
            other = version(reference.subject, reference.version)
            files += _described(version, other, reference.name, texts)
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema_str, validate=True))
    except (ValueError, DecodeError):
        texts[name] = schema.schema_str
        return files
    file.name = name
    return [*files, file]


def compiled(texts: Mapping[str, str], name: str) -> list[Any]:
    """Return the descriptors of files, compiled from their texts by protoc, with `name` and what it imports."""
    with TemporaryDirectory() as folder:
        for path, text in texts.items():
            file = Path(folder, path)
            if not file.resolve().is_relative_to(Path(folder).resolve()):
                raise ValueError(f'Expected the name of a file that is imported, got "{path}"')
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        output = Path(folder, "descriptors")
        words = ["-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={output}", "--include_imports", name]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise ValueError(f"Expected a schema of Protobuf, got an error of protoc: {done.stderr.strip()[-300:]}")
        return list(descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file)


def message_class(files: Iterable[Any], name: str) -> Any:
    """Return the class of a message in some files, by its full name."""
    pool = descriptor_pool.DescriptorPool()
    _add(files, pool)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def _add(files: Iterable[Any], pool: Any) -> None:
    """Add files to a pool, each after Google's own that it imports."""
    for file in files:
        for imported in file.dependency:
            if imported.startswith("google/protobuf/"):
                descriptor = descriptor_pb2.FileDescriptorProto()
                descriptor_pool.Default().FindFileByName(imported).CopyToProto(descriptor)
                _add([descriptor], pool)
        pool.Add(file)


def _message(pool: Any, file: Any, path: tuple[int, ...]) -> Any:
    """Return the descriptor of the message with a path of indexes."""
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    among, names = proto.message_type, [proto.package] if proto.package else []
    for index in path:
        if not 0 <= index < len(among):
            raise ValueError(f"message {index} is named, of {len(among)} in the schema")
        names.append(among[index].name)
        among = among[index].nested_type
    return pool.FindMessageTypeByName(".".join(names))
