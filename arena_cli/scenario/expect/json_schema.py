"""JSON Schemas: read, checked, and held against a value; nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from arena_cli.ground import nearest, regularfiles
from arena_cli.ground.bounds import OutsideError
from arena_cli.ground.userpattern import PatternTimeout, UserPattern
from arena_cli.scenario.expect import checks, json_values
from arena_cli.scenario.expect.folders import Folders

if TYPE_CHECKING:
    import jsonschema
    from jsonschema.protocols import Validator


_DIALECT = "https://json-schema.org/draft/2020-12/schema"  # of a schema that names none

# Keywords that no validator of `jsonschema` stands for: what others read, or what only describes.
_OTHERS = frozenset(
    {
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
        *("$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType"),
        *("contentSchema", "then", "else", "minContains", "maxContains"),
    }
)


class NotASchema(Exception):
    """What was given as a schema is none; the message says why not."""


class CannotTell(Exception):
    """A value cannot be held against a schema; the message says why not."""


def of(schema: str | Mapping[str, Any], folders: Folders) -> Validator:
    """What checks by the schema, or by the file. Raises NotASchema, which names the file."""
    if not isinstance(schema, str):
        return _checked(json.dumps(schema))
    try:
        path = folders.located(schema)
    except OutsideError as error:
        raise NotASchema(error.what) from error
    if path is None:
        raise NotASchema(f"there is no file `{schema}`")
    try:
        return _checked(regularfiles.read(path).decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        line = f"{folders.shown(path)}:{error.lineno}"
        raise NotASchema(f"{line}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise NotASchema(f"{folders.shown(path)}: is not UTF-8") from error
    except OSError as error:
        raise NotASchema(f"{folders.shown(path)}: cannot be read: {error.strerror}") from error
    except (NotASchema, ValueError) as error:
        raise NotASchema(f"{folders.shown(path)}: {error}") from error


@lru_cache(maxsize=64)
def _checked(text: str) -> Validator:
    """What checks by the schema that a text is; nothing is fetched. Raises NotASchema."""
    try:
        return _of(json.loads(text))
    except RecursionError as error:
        raise NotASchema("it is nested too deep") from error


def _of(schema: Any) -> Validator:
    import jsonschema  # noqa: PLC0415 - few scenarios have a schema
    from referencing import Registry  # noqa: PLC0415 - as above

    if not isinstance(schema, dict):
        raise NotASchema(f"a JSON Schema is a mapping, not {json_values.shown(schema)}")
    dialect = _dialect(schema)
    known = jsonschema.validators.validator_for
    kind = known({"$schema": dialect}, default=None)  # type: ignore[arg-type]  # None is given back
    if kind is None:
        raise NotASchema(f"the JSON Schema of {json_values.shown(dialect)} is not known")
    try:
        kind.check_schema(schema)
        _resolve(schema, dialect)
    except jsonschema.SchemaError as error:
        place = json_values.dotted(error.absolute_path)
        raise NotASchema(f"no JSON Schema: {_told(place, error.message)}") from error
    extend: Any = jsonschema.validators.extend
    timed: type[Validator] = extend(kind, {"pattern": _pattern})
    return timed(schema, registry=Registry())


def _pattern(
    _validator: Validator, pattern: str, instance: object, _schema: object
) -> Iterator[jsonschema.ValidationError]:
    """Check `pattern` as jsonschema does, within the time limit. Raises PatternTimeout."""
    import jsonschema  # noqa: PLC0415 - as above

    if isinstance(instance, str) and _compiled(pattern).search(instance) is None:
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> UserPattern:
    return UserPattern(pattern, where="`pattern` of the schema")


def _check_names(schema: Any, value: Any) -> None:
    """Look for every pattern of a property's name in every name. Raises PatternTimeout.

    Several keywords do that by themselves, without a limit.
    """
    patterns = {name for one in _mappings(schema) for name in _names(one.get("patternProperties"))}
    names = {name for one in _mappings(value) for name in one} if patterns else set()
    for pattern in patterns:
        for name in names:
            _compiled(pattern).search(name)


def _names(value: Any) -> Iterable[str]:
    return value if isinstance(value, dict) else ()


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in nested data."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


def unknown_keywords(validator: Validator) -> list[tuple[str, str]]:
    """Return the keywords that nobody reads, each with the one that it may be meant for, if any.

    Names that begin with `x-` are free.
    """
    known = {*type(validator).VALIDATORS, *_OTHERS}
    found: dict[str, str] = {}
    schema = validator.schema
    assert isinstance(schema, Mapping)  # `of` takes no other
    for resource, _ in _resources(schema, _dialect(schema)):
        contents = resource.contents
        for key in contents if isinstance(contents, dict) else ():
            if key not in known and not key.startswith("x-"):
                found[key] = nearest.of(key, known) or ""
    return list(found.items())


def _dialect(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$schema", _DIALECT))


def _resolve(schema: Mapping[str, Any], dialect: str) -> None:
    """See that every reference leads somewhere. Raises NotASchema."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above

    for resource, resolver in _resources(schema, dialect):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = resource.contents.get(key) if isinstance(resource.contents, dict) else None
            if isinstance(target, str):
                try:
                    resolver.lookup(target)
                except Unresolvable as error:
                    what = f"its {key} {target} leads nowhere (nothing is fetched)"
                    raise NotASchema(what) from error


def _resources(schema: Mapping[str, Any], dialect: str) -> Iterator[tuple[Any, Any]]:
    """Yield a schema and all schemas in it, each with what resolves its references."""
    from referencing import Registry, Resource, jsonschema  # noqa: PLC0415 - as above

    root = Resource.from_contents(
        schema, default_specification=jsonschema.specification_with(dialect)
    )
    resources = [(root, Registry().resolver_with_root(root))]
    for resource, resolver in resources:
        yield resource, resolver
        resources += [(sub, resolver.in_subresource(sub)) for sub in resource.subresources()]


def against(value: Any, validator: Validator) -> str:
    """What the first place of a value has against it by the schema; empty if nothing has.

    Raises CannotTell.
    """
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - few scenarios have a schema

    try:
        _check_names(validator.schema, value)
        errors = sorted(validator.iter_errors(value), key=lambda one: _order(one.absolute_path))
    except RecursionError as error:
        raise CannotTell("the schema leads back to itself, or both are nested too deep") from error
    except PatternTimeout as error:
        raise CannotTell(str(error)) from error
    except OverflowError as error:
        raise CannotTell(f"a number in it is too large: {error}") from error
    first = best_match(errors[:1])
    return "" if first is None else _told(json_values.dotted(first.absolute_path), first.message)


def _order(steps: Iterable[str | int]) -> list[tuple[bool, str | int]]:
    return [(isinstance(step, int), step) for step in steps]


def _told(place: str, message: str) -> str:
    return f"{place}: {checks.shortened(message)}" if place else checks.shortened(message)
