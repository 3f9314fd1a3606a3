"""The base of the shapes of YAML files."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


def read_keys(text: str) -> frozenset[str]:
    """Return the keys that a text lists, with spaces between them."""
    return frozenset(text.split())


class FileShape(BaseModel):
    """A mapping of a YAML file: unknown keys are errors, but for `x-...`, which the loader drops.

    `not_built` names keys, or `key: value` pairs, that the format has and arena has not yet
    (`key:{}` is a mapping);
    `checked_as` the shapes of mappings that are checked when they are put together.
    """

    model_config = ConfigDict(
        frozen=True, defer_build=True, extra="forbid", strict=True, allow_inf_nan=False
    )

    not_built: ClassVar[frozenset[str]] = frozenset()
