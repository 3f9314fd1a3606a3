"""The typed inputs of an agent: read and check their values, fill them into its texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from arena_cli.errors import UsageError, suggest_nearest
from arena_cli.protocol import FALSE_WORDS, TRUE_WORDS
from arena_cli.util.text import cut_text, fill_template
from arena_cli.workspace.acting import InputSpec, InputType
from arena_cli.workspace.models import Member

INPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_MOST_SHOWN = 60


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class _TypeFacts(NamedTuple):
    """A type of inputs in words, with a sample; `fits` is True for a value, or item, of it."""

    name: str
    sample: Any
    fits: Callable[[Any], bool]


_TYPES: Mapping[InputType, _TypeFacts] = {
    "string": _TypeFacts("a text", "test", _is_text),
    "number": _TypeFacts("a number", 1, _is_number),
    "integer": _TypeFacts("a whole number", 1, _is_integer),
    "boolean": _TypeFacts("true or false", True, lambda value: isinstance(value, bool)),
    "string[]": _TypeFacts("a list of texts", ["test"], _is_text),
    "number[]": _TypeFacts("a list of numbers", [1], _is_number),
}


def fits_type(spec: InputSpec, value: Any) -> bool:
    """Return True if a value has the type of an input."""
    fits = _TYPES[spec.type].fits
    if spec.type.endswith("[]"):
        return isinstance(value, list) and all(map(fits, value))
    return fits(value)


def is_required(spec: InputSpec) -> bool:
    """Return True if a call must give the input a value."""
    return spec.default is None and spec.required is not False


def make_input_schema(specs: Mapping[str, InputSpec]) -> dict[str, Any]:
    """Return the JSON Schema of the inputs of an agent."""
    properties: dict[str, Any] = {}
    for name, spec in specs.items():
        kind, is_list = spec.type.removesuffix("[]"), spec.type.endswith("[]")
        schema: dict[str, Any] = {"type": kind}
        if is_list:
            schema = {"type": "array", "items": schema}
        if spec.description:
            schema["description"] = spec.description
        if spec.default is not None:
            schema["default"] = spec.default
        properties[name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, spec in specs.items() if is_required(spec)],
        "additionalProperties": False,
    }


class Inputs(NamedTuple):
    """The values of an agent's inputs, with defaults, and what is wrong with them."""

    values: Mapping[str, Any]
    problems: Sequence[str]
    missing: Sequence[str]


def check_inputs(specs: Mapping[str, InputSpec], raw_values: Mapping[str, Any]) -> Inputs:
    """Return the values of all inputs, and every problem with the given ones."""
    problems = []
    for name in raw_values:
        if name not in specs:
            hint = suggest_nearest(name, specs) if specs else "the agent has no inputs"
            problems.append(f"there is no input `{name}` ({hint})")
    values: dict[str, Any] = {}
    missing: list[str] = []
    for name, spec in specs.items():
        value = raw_values.get(name, spec.default)
        if value is None:
            missing += [name] if is_required(spec) else []
        elif not fits_type(spec, value):
            excerpt = cut_text(json.dumps(value, ensure_ascii=False), _MOST_SHOWN)
            problems.append(f"`{name}` must be {_TYPES[spec.type].name}, not {excerpt}")
        else:
            values[name] = value
    return Inputs(values, problems, missing)


def describe_missing(agent: str, specs: Mapping[str, InputSpec], missing: Sequence[str]) -> str:
    """Return the problem of a call without these inputs."""
    names = ", ".join(f"{name} ({specs[name].type})" for name in missing)
    return f"{agent} needs inputs: {names}"


def require_inputs(
    agent: str,
    specs: Mapping[str, InputSpec],
    raw_values: Mapping[str, Any],
    unreadable: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[str, Any]:
    """Return the values of all inputs. Raises UsageError, which names all that is wrong.

    `unreadable` are the problems of those whose values could not be read.
    """
    checked = check_inputs(specs, raw_values)
    missing = [name for name in checked.missing if name not in unreadable]
    problems = [describe_missing(agent, specs, missing)] if missing else []
    problems += [*unreadable.values(), *checked.problems]
    if problems:
        hint = "give each as --input NAME=VALUE" if missing else ""
        raise UsageError("\n".join(problems), hint)
    return checked.values


def read_input(name: str, spec: InputSpec, text: str) -> Any:
    """Return the value of an input that is written as a text. Raises UsageError."""
    if spec.type == "string":
        return text
    word = text.strip().casefold()
    if spec.type == "boolean":
        if word in TRUE_WORDS or word in FALSE_WORDS:
            return word in TRUE_WORDS
    else:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if fits_type(spec, value):
            return value
    example = ", for example [1, 2]" if spec.type == "number[]" else ""
    example = ', for example ["a", "b"]' if spec.type == "string[]" else example
    excerpt = cut_text(text, _MOST_SHOWN)
    raise UsageError(f"--input {name}: must be {_TYPES[spec.type].name}{example}, not {excerpt}")


def fill_text(text: str, specs: Mapping[str, InputSpec], values: Mapping[str, Any]) -> str:
    """Return a text with each `${name}` of an input replaced by its value, "" without one."""

    def value_of(name: str) -> str | None:
        return _format_value(values.get(name)) if name in specs else None

    return fill_template(text, value_of)


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value))
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)


def fill_role(member: Member, raw_values: Mapping[str, Any]) -> Member:
    """Return a member with the inputs filled into its role prompt; missing ones are empty."""
    specs = member.profile.inputs
    values = check_inputs(specs, raw_values).values
    return replace(member, role_prompt=fill_text(member.role_prompt, specs, values))


def make_samples(specs: Mapping[str, InputSpec]) -> dict[str, Any]:
    """Return a value for each required input, for a test of the connection."""
    return {name: _TYPES[spec.type].sample for name, spec in specs.items() if is_required(spec)}


def explain_unfilled(member: Member, raw_values: Mapping[str, Any]) -> str:
    """Return why a member cannot be called with these inputs, "" if it can."""
    specs = member.profile.inputs
    missing = check_inputs(specs, raw_values).missing
    if not missing:
        return ""
    problem = describe_missing(member.id, specs, missing)
    return f"{problem}; call it with `arena agents run {member.id}`, or as a tool"


def make_query(member: Member, raw_values: Mapping[str, Any]) -> str:
    """Return the message for an agent that is called with these inputs, by its `query`."""
    profile = member.profile
    values = check_inputs(profile.inputs, raw_values).values
    if profile.query:
        is_template = bool(profile.inputs)
        return fill_text(profile.query, profile.inputs, values) if is_template else profile.query
    return "\n".join(f"{name}: {_format_value(value)}" for name, value in values.items())
