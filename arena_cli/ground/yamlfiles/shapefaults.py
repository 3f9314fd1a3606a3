"""Checks plain data against a pydantic shape and says in plain words what does not fit.

A shape may name in `not_built: ClassVar[frozenset[str]]` what is part of the format but not built
yet: a key (`"supervisor"`) or one value of a key (`"on_failure: replan"`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from arena_cli.ground.errors import Fault
from arena_cli.ground.yamlfiles import shapetypes

if TYPE_CHECKING:
    from arena_cli.ground.yamlfiles.shapeteller import Place

T = TypeVar("T", bound=BaseModel)


def check(
    data: Any,
    shape: type[T],
    place: Place,
    later: Callable[[Any], bool] = lambda _: False,
) -> tuple[T | None, list[Fault]]:
    """`data` as `shape`, or None and every fault.

    Types are strict as in JSON: no text is a number, no number a text; a list may become a tuple.
    What is wrong with a value that is `later` is no fault yet.
    """
    data = {} if data is None else data
    if isinstance(data, dict):
        try:
            return shape.model_validate_json(json.dumps(data), strict=True), []
        except ValidationError as error:
            raw = error.errors(include_url=False)
    from arena_cli.ground.yamlfiles import shapeteller  # noqa: PLC0415 - 2 ms, for faults only

    if not isinstance(data, dict):
        return None, [shapeteller.no_mapping(data, place)]
    return None, shapeteller.told(raw, data, shape, place, later)


def without_free_keys(data: Any, annotation: Any) -> Any:
    """`data` without the `x-...` keys of every mapping that is one of our shapes."""
    if isinstance(data, list):
        inner = [
            arg for leaf in shapetypes.leaves(annotation) for arg in shapetypes.item_types(leaf)
        ]
        return (
            [without_free_keys(item, shapetypes.union(inner)) for item in data] if inner else data
        )
    if not isinstance(data, dict):
        return data
    leaves = list(shapetypes.leaves(annotation))
    models = [leaf for leaf in leaves if shapetypes.is_model(leaf)]
    if not models and not any(get_origin(leaf) in (dict, Mapping) for leaf in leaves):
        return data
    return {
        key: without_free_keys(value, shapetypes.union(shapetypes.below(leaves, key)))
        for key, value in data.items()
        if not (models and str(key).startswith("x-"))
    }
