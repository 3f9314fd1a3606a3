"""Check values by JSON Schemas that others wrote: no pattern takes long, and nothing is fetched.

Imported when a schema is first used, since `jsonschema` takes a while to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import jsonschema
import referencing.jsonschema
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from arena_cli.util.user_pattern import UserPattern

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema that names none."""


def make_validator(kind: type[Validator], schema: Mapping[str, Any]) -> Validator:
    """Return the validator of a schema; it raises PatternTimeout for a slow `pattern`."""
    return _limit_patterns(kind)(schema, registry=Registry())


def list_resources(schema: Any, dialect: str = DIALECT) -> Iterator[tuple[Any, Any]]:
    """Yield a schema and all schemas in it, each with the resolver of its references."""
    specification = referencing.jsonschema.specification_with(dialect)
    root = Resource.from_contents(schema, default_specification=specification)
    resources = [(root, Registry().resolver_with_root(root))]
    for resource, resolver in resources:
        yield resource, resolver
        resources += [(sub, resolver.in_subresource(sub)) for sub in resource.subresources()]


def find_unresolved(schema: Any, dialect: str = DIALECT) -> str:
    """Return why a reference of a schema leads nowhere, "" if all resolve."""
    for resource, resolver in list_resources(schema, dialect):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = resource.contents.get(key) if isinstance(resource.contents, dict) else None
            if isinstance(target, str):
                try:
                    resolver.lookup(target)
                except Unresolvable:
                    return f"its {key} {target} cannot be resolved (nothing is fetched)"
    return ""


def check_names(schema: Any, value: Any) -> None:
    """Search every property name for every pattern of a name. Raises PatternTimeout.

    `unevaluatedProperties` of jsonschema does that without a limit; the other keywords have one.
    """
    patterns = {
        name for mapping in _mappings(schema) for name in _names(mapping.get("patternProperties"))
    }
    names = {name for mapping in _mappings(value) for name in mapping} if patterns else set()
    for pattern in patterns:
        for name in names:
            _compile(pattern).search(name)


@lru_cache(maxsize=16)
def _limit_patterns(kind: type[Validator]) -> type[Validator]:
    extend: Any = jsonschema.validators.extend
    checks: dict[str, Any] = {
        "pattern": _check_pattern,
        "patternProperties": _check_matching,
        "additionalProperties": partial(_check_additional, kind.VALIDATORS["additionalProperties"]),
    }
    limited: type[Validator] = extend(kind, checks)
    return limited


def _check_pattern(
    _validator: Validator, pattern: str, instance: object, _schema: object
) -> Iterator[jsonschema.ValidationError]:
    """Check `pattern` as jsonschema does, within the time limit. Raises PatternTimeout."""
    if isinstance(instance, str) and _compile(pattern).search(instance) is None:
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_matching(
    validator: Any, patterns: Mapping[str, Any], instance: object, _schema: object
) -> Iterator[jsonschema.ValidationError]:
    """Check `patternProperties` within the time limit. Raises PatternTimeout."""
    for name, value in instance.items() if isinstance(instance, dict) else ():
        for pattern, schema in patterns.items():
            if _compile(pattern).search(name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _check_additional(
    check: Any, validator: Any, additional: Any, instance: object, schema: Mapping[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    """Check `additionalProperties` within the time limit. Raises PatternTimeout."""
    patterns = schema.get("patternProperties") or {}
    if isinstance(instance, dict) and patterns:
        known = [name for name in instance if any(_compile(p).search(name) for p in patterns)]
        instance = {name: value for name, value in instance.items() if name not in known}
        schema = {key: value for key, value in schema.items() if key != "patternProperties"}
    yield from check(validator, additional, instance, schema) or ()


@lru_cache(maxsize=256)
def _compile(pattern: str) -> UserPattern:
    return UserPattern(pattern, where="`pattern` of the schema")


def _names(value: Any) -> Iterable[str]:
    return value if isinstance(value, dict) else ()


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in nested data."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack += item.values()
        elif isinstance(item, list):
            stack += item
