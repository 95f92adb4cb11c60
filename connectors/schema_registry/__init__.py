"""Values whose schemas are in a Schema Registry: Avro, Protobuf and JSON with a schema, read and written."""

from streamkernel.connectors.schema_registry.registry import Registry, registry_reader
from streamkernel.connectors.schema_registry.writing import ValueWriter, record_writer

__all__ = ["Registry", "ValueWriter", "record_writer", "registry_reader"]
