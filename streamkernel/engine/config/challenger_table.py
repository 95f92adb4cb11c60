"""A table of the configuration file with a model that learns beside the model of the run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamkernel.engine.config.build import Spec
from streamkernel.engine.config.schema import ConfigTable, LocalPath

MOST = 16
"""Most challengers of a run."""

_NAME = "a name of at most 64 letters, digits and . _ -"


class ChallengerTable(ConfigTable):
    """A model that learns beside the model of the run."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description=_NAME)]
    model: Spec | None = Field(default=None, description='a table with the "type" of the model')
    preprocessing: tuple[Spec, ...] | None = Field(
        default=None, strict=False, description="one table [[challengers.preprocessing]] per step"
    )
    begin_from: LocalPath | None = Field(
        default=None, alias="from", description="the path of a saved model or a state directory"
    )
