"""The types that a pydantic shape has at a place: through unions, lists and mappings."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from arena_cli.ground.yamlfiles.yamlnodes import Loc


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def leaves(annotation: Any) -> Iterator[Any]:
    """The branches of a union, or the one type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from leaves(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for branch in get_args(annotation):
            yield from leaves(branch)
    else:
        yield annotation


def item_types(leaf: Any) -> list[Any]:
    if get_origin(leaf) in (list, tuple, set, frozenset, Sequence):
        return [arg for arg in get_args(leaf) if arg is not Ellipsis]
    return []


def below(leaves: Sequence[Any], part: str | int) -> list[Any]:
    """The types that may stand at a key or index."""
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(part, int):
            found += item_types(leaf)
        elif is_model(leaf):
            for name, field in leaf.model_fields.items():
                if part in (name, field.alias):
                    found.append(field.annotation)
        elif get_origin(leaf) in (dict, Mapping):
            found.append(get_args(leaf)[1])
    return found


def union(annotations: Sequence[Any]) -> Any:
    return Union[tuple(annotations)] if annotations else Any  # noqa: UP007 - `|` joins no list


def required(shape: type[BaseModel]) -> list[str]:
    """The keys that must stand in a shape."""
    fields = shape.model_fields.items()
    return [field.alias or name for name, field in fields if field.is_required()]


def models(shape: type[BaseModel], path: Loc) -> list[type[BaseModel]]:
    """The shapes that may stand at a place of a shape.

    What a shape takes as it comes and has checked later, it may name in `checked_as`.
    """
    annotations: list[Any] = [shape]
    for part in path:
        found = [leaf for annotation in annotations for leaf in leaves(annotation)]
        later = [leaf.checked_as for leaf in found if hasattr(leaf, "checked_as")]
        annotations = below(found, part) + [shapes[part] for shapes in later if part in shapes]
    found = [leaf for annotation in annotations for leaf in leaves(annotation)]
    return [leaf for leaf in found if is_model(leaf)]


def keys(shape: type[BaseModel], path: Loc) -> list[str]:
    """The keys that are known at a place of a shape."""
    found: dict[str, None] = {}
    for model in models(shape, path):
        for name, field in model.model_fields.items():
            found[field.alias or name] = None
    return list(found)
