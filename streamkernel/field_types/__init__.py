"""Types of fields: declared ones and their conversions, markers of missing values, numbers that are written as text."""

from streamkernel.field_types.fields import Fields

__all__ = ["Fields"]
