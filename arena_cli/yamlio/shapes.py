"""The base of the shapes of YAML files, and shapes that are imported when a file has their key."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


def read_keys(text: str) -> frozenset[str]:
    """Return the keys that a text lists, with spaces between them."""
    return frozenset(text.split())


class FileShape(BaseModel):
    """A mapping of a YAML file: unknown keys are errors, but for `x-...`, which the loader drops.

    `not_built` names keys that the format has and arena has not yet, `checked_as` the shapes of
    mappings that are checked when they are put together.
    """

    model_config = ConfigDict(
        frozen=True, defer_build=True, extra="forbid", strict=True, allow_inf_nan=False
    )

    not_built: ClassVar[frozenset[str]] = frozenset()


def omit_default(default: Any = None, **bounds: Any) -> Any:
    """Return a field that records of a session leave out if it has its default."""
    return Field(default=default, exclude_if=lambda value: value == default, **bounds)


def refer_to(schema: CoreSchema) -> CoreSchema:
    """Return a schema of which JSON Schemas have one definition, and refer to it."""
    if "ref" not in schema:
        return schema
    reference = core_schema.definition_reference_schema(schema["ref"])
    return core_schema.definitions_schema(reference, [schema])


class ImportedShape:
    """Mark a field of type `Any` that has the shape `name` of `module`.

    Values, errors and JSON Schemas are those of a field of that shape.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    @property
    def shape(self) -> Any:
        """The shape, which is imported if it was not."""
        return getattr(import_module(self._module), self._name)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.shape)

    def _check(self, value: Any) -> Any:
        return self._adapter.validate_python(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(refer_to(self._adapter.core_schema))
