"""Serve a function of the user as a tool, in a process of its own: JSON lines in, and out.

A line is `{"describe": true}`, answered by `{"name", "description", "schema"}`, or
`{"arguments": {...}}`, answered by `{"text": ...}` (null for nothing), with `"typed": true` by
`{"value": ...}`. Errors are as those of `arena_cli.adapters.python_worker`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))

import pydantic
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from arena_cli.adapters import python_worker
from arena_cli.adapters.python_worker import Wait

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):\s*$")
_ARGUMENTS = ("Args", "Arguments", "Parameters")
_ARGUMENT = re.compile(r"^\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def answer(function: Callable[..., Any], line: bytes, wait: Wait) -> Any:
    """Return the output for a line; see the module."""
    request = json.loads(line)
    signature = _read(function)
    if request.get("describe"):
        name = getattr(function, "__name__", "")
        return {"name": name, "description": signature.summary, "schema": signature.schema()}
    value = wait(signature.call(request["arguments"]))
    try:
        if request.get("typed"):
            return {"value": to_jsonable_python(value)}
        if value is None or isinstance(value, str):
            return {"text": value}
        return {"text": json.dumps(to_jsonable_python(value), ensure_ascii=False)}
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"the function returned a value that JSON cannot represent: {error}"
        raise python_worker.ReturnedError(problem) from error


@cache
def _read(function: Callable[..., Any]) -> Signature:
    try:
        return Signature(function)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        problem = f"no schema can be made of its signature: {reason}"
        raise python_worker.ReturnedError(problem) from error


class _PlainSchema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


class Signature:
    """The arguments of a function. Raises TypeError, or what its annotations raise."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        hints = _read_hints(function)
        self.summary, described = _read_docstring(inspect.getdoc(function) or "")
        self._parameters: dict[str, inspect.Parameter] = {}
        self._takes_any = False
        fields: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                self._takes_any = True
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                field = f"p{len(fields)}"
                self._parameters[field] = parameter
                hint = hints.get(parameter.name, Any)
                fields[field] = _make_field(parameter, hint, described.get(parameter.name, ""))
        config = pydantic.ConfigDict(
            extra="allow" if self._takes_any else "forbid", arbitrary_types_allowed=True
        )
        self._shape = pydantic.create_model("Arguments", __config__=config, **fields)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        schema: dict[str, Any] = self._shape.model_json_schema(schema_generator=_PlainSchema)
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function with values of the types that it asks for. Raises ReturnedError."""
        try:
            values = self._shape.model_validate(arguments)
        except pydantic.ValidationError as error:
            raise python_worker.ReturnedError(_explain(error)) from None
        positional, keywords = [], dict(values.model_extra or {})
        for field, parameter in self._parameters.items():
            if field not in values.model_fields_set and parameter.default is not parameter.empty:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(getattr(values, field))
            else:
                keywords[parameter.name] = getattr(values, field)
        return self._function(*positional, **keywords)


def _read_hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    return typing.get_type_hints(target, include_extras=True)


def _make_field(parameter: inspect.Parameter, hint: Any, described: str) -> tuple[Any, FieldInfo]:
    texts = [
        annotation
        for annotation in getattr(hint, "__metadata__", ())
        if isinstance(annotation, str)
    ]
    default = ... if parameter.default is parameter.empty else parameter.default
    description = texts[0] if texts else described or None
    field = pydantic.Field(default, alias=parameter.name, description=description)
    return (Annotated[hint, field] if default is ... else hint), field


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return a docstring in Google style: its text, and the descriptions of its arguments."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section, name, indent = "", "", 0
    for line in text.splitlines():
        if match := _SECTION.match(line):
            section, name, indent = match[1], "", 0
        elif not section:
            summary.append(line)
        elif section in _ARGUMENTS and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            match = _ARGUMENT.match(line.strip()) if depth <= indent else None
            if match:
                name, described[match[1]] = match[1], match[2].strip()
            elif name:
                described[name] = f"{described[name]} {line.strip()}".strip()
    return "\n".join(summary).strip(), described


def _explain(error: pydantic.ValidationError) -> str:
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)
    ]
    return "; ".join(problems)


if __name__ == "__main__":
    python_worker.serve(sys.argv[1], answer)
