"""Check the profile of an agent that acts: its templates, its inputs, the schema of its output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema

from arena_cli import errors
from arena_cli.errors import Fault
from arena_cli.util import json_schemas
from arena_cli.util.text import cut_text, list_placeholders
from arena_cli.workspace.acting import OutputSpec
from arena_cli.workspace.inputs import INPUT_NAME, fits_type
from arena_cli.workspace.models import AgentProfile
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Fragment
from arena_cli.yamlio.nodes import Loc

if TYPE_CHECKING:
    from arena_cli.workspace.agents import ProfileSource

_LONGEST_PROBLEM = 200


def check_acting(
    profile: AgentProfile, role_prompt: str, source: ProfileSource, root: Path, *, anywhere: bool
) -> tuple[AgentProfile, list[Fault]]:
    """Return the profile with the schema of its output read from its file, and all errors."""
    faults = [*_check_inputs(profile, source)]
    if profile.inputs:
        faults += _check_templates(profile, role_prompt, source)
    if profile.output is not None:
        output, problems = _read_output(profile.output, source, root, anywhere=anywhere)
        profile = profile.model_copy(update={"output": output})
        faults += problems
    return profile, faults


def _check_inputs(profile: AgentProfile, source: ProfileSource) -> Iterator[Fault]:
    for name, spec in profile.inputs.items():
        if not INPUT_NAME.fullmatch(name):
            hint = "use letters from a to z, digits and `_`"
            yield source.fault(("inputs", name), f"`{name}` cannot be the name of an input", hint)
        if spec.default is not None and not fits_type(spec, spec.default):
            yield source.fault(("inputs", name, "default"), f"is not of the type {spec.type}")


def _check_templates(
    profile: AgentProfile, role_prompt: str, source: ProfileSource
) -> Iterator[Fault]:
    """Yield the errors of `${name}` without an input."""
    for name in _list_unknown(profile.query, profile):
        yield source.fault(("query",), *_explain_unknown(name, profile))
    is_file = not isinstance(profile.role_prompt, str)
    for name in _list_unknown(role_prompt, profile):
        fault = source.fault(("role_prompt",), *_explain_unknown(name, profile))
        if is_file:
            line = role_prompt[: role_prompt.find(f"${{{name}}}")].count("\n") + 1
            path = source.data["role_prompt"]["file"]
            fault = replace(fault, file=path, line=line, field="", source="", column=None)
        yield fault


def _list_unknown(text: str, profile: AgentProfile) -> list[str]:
    names = dict.fromkeys(list_placeholders(text))
    return [name for name in names if name not in profile.inputs]


def _explain_unknown(name: str, profile: AgentProfile) -> tuple[str, str]:
    nearest = errors.suggest_nearest(name, profile.inputs)
    return f"there is no input `{name}`", f"{nearest}\na literal `${{` is `$${{`"


def _read_output(
    output: OutputSpec, source: ProfileSource, root: Path, *, anywhere: bool
) -> tuple[OutputSpec, list[Fault]]:
    """Return the output with its schema, which may be in a file, and the errors in it."""
    schema, loc = output.schema_, ("output", "schema")
    if schema is None:
        return output, []
    fragment: Fragment | None = None
    if isinstance(schema, dict) and schema.keys() == {"file"} and isinstance(schema["file"], str):
        document, faults = loader.load_named(
            schema["file"],
            root,
            partial(source.fault, (*loc, "file")),
            anywhere=anywhere,
        )
        if document is None or document.faults:
            return output, [*faults, *(document.faults if document else ())]
        fragment, schema = Fragment(document), document.data
        output = output.model_copy(update={"schema_": schema})
    problem = _find_schema_problem(schema)
    if problem is None:
        return output, []
    path, text = problem
    fault = fragment.fault(path, text) if fragment else source.fault((*loc, *path), text)
    return output, [fault]


def _find_schema_problem(schema: Any) -> tuple[Loc, str] | None:
    """Return the place and the problem of what is no JSON Schema; None for one that is."""
    if not isinstance(schema, (dict, bool)):
        return (), "is no JSON Schema: it must be a mapping of keys"
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        text = json_schemas.find_unresolved(schema)
    except jsonschema.SchemaError as error:
        text = cut_text(error.message.replace("\n", " "), _LONGEST_PROBLEM)
        return tuple(error.path), f"is no JSON Schema: {text}"
    except RecursionError:
        return (), "is no JSON Schema: it is nested too deep"
    return ((), f"is no JSON Schema: {text}") if text else None
