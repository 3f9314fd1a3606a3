"""Look up the types that a pydantic shape has at a place, through unions, lists and mappings."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from arena_cli.yamlio.nodes import Loc


def is_model(annotation: Any) -> bool:
    """Return True if an annotation is a pydantic model."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def iter_leaf_types(annotation: Any) -> Iterator[Any]:
    """Yield the branches of a union, or the one type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from iter_leaf_types(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for branch in get_args(annotation):
            yield from iter_leaf_types(branch)
    else:
        yield annotation


def list_item_types(leaf: Any) -> list[Any]:
    """Return the types of the items if a type is a list or a tuple."""
    if get_origin(leaf) in (list, tuple, set, frozenset, Sequence):
        return [arg for arg in get_args(leaf) if arg is not Ellipsis]
    return []


def list_types_below(parents: Sequence[Any], step: str | int) -> list[Any]:
    """Return the types of the value at a key or index of any of some types."""
    below: list[Any] = []
    for parent in parents:
        if isinstance(step, int):
            below += list_item_types(parent)
        elif is_model(parent):
            for name, field in parent.model_fields.items():
                if step in (name, field.alias):
                    below.append(field.annotation)
        elif get_origin(parent) in (dict, Mapping):
            below.append(get_args(parent)[1])
    return below


def make_union(annotations: Sequence[Any]) -> Any:
    """Return the union of some types, `Any` if there are none."""
    return Union[tuple(annotations)] if annotations else Any  # noqa: UP007 - `|` joins no list


def list_required_keys(shape: type[BaseModel]) -> list[str]:
    """Return the keys that a shape requires."""
    fields = shape.model_fields.items()
    return [field.alias or name for name, field in fields if field.is_required()]


def list_models(shape: type[BaseModel], path: Loc) -> list[type[BaseModel]]:
    """Return the shapes that a place of a shape may have.

    Values that a shape accepts unchecked may have their shapes, by key, in `checked_as`.
    """
    leaf_types = list(iter_leaf_types(shape))
    for step in path:
        later = [leaf.checked_as for leaf in leaf_types if hasattr(leaf, "checked_as")]
        below = list_types_below(leaf_types, step) + [
            by_key[step] for by_key in later if step in by_key
        ]
        leaf_types = [leaf for annotation in below for leaf in iter_leaf_types(annotation)]
    return [leaf for leaf in leaf_types if is_model(leaf)]


def list_keys(shape: type[BaseModel], path: Loc) -> list[str]:
    """Return the keys that are known at a place of a shape."""
    keys: dict[str, None] = {}
    for model in list_models(shape, path):
        for name, field in model.model_fields.items():
            keys[field.alias or name] = None
    return list(keys)
