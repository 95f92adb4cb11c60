"""JSON that is validated against its schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from referencing import Registry as Resources
from referencing import Resource
from referencing.jsonschema import DRAFT7

from streamkernel.connectors.json_values import json_object
from streamkernel.connectors.schema_registry.registry import Registry


def reader_of(registry: Registry, number: int, schema: Any, reader_schema: None) -> Callable[[bytes], Any]:
    """Return the decoder of values with a schema."""
    wanted = json.loads(schema.schema_str)
    kind = validator_for(wanted)
    kind.check_schema(wanted)
    validator = kind(wanted, registry=_others(registry, schema.references, Resources()))

    def read(value: bytes) -> Any:
        fields = json_object(value)
        error = best_match(validator.iter_errors(fields))
        if error is not None:
            raise ValueError(f"{error.message[:300]} - at {error.json_path}")
        return fields

    return read


def _others(registry: Registry, references: Any, schemas: Any) -> Any:
    """Return the schemas that another one refers to."""
    for reference in references or ():
        other = registry.version(reference.subject, reference.version)
        resource = Resource.from_contents(json.loads(other.schema_str), default_specification=DRAFT7)
        schemas = _others(registry, other.references, schemas.with_resource(reference.name, resource))
    return schemas
