"""Pydantic's errors, each with its place in the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from arena_cli.ground.yamlfiles import yamlnodes
from arena_cli.ground.yamlfiles.yamlnodes import Loc

KINDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}


class Error:
    """One of pydantic's errors. `path` is its place in the data; where it lies in one branch of a
    union, `union` is the union's place and `branch` the branch's label.
    """

    def __init__(self, kind: str, path: Loc, union: Loc | None, branch: str, raw: Any) -> None:
        self.kind = kind
        self.path = path
        self.union = union
        self.branch = branch
        self.value = raw["input"]
        self.context: dict[str, Any] = raw.get("ctx", {})
        self.message: str = raw["msg"]

    @property
    def is_of_type(self) -> bool:
        """Whether it is the type of the value, or its word, that is wrong."""
        return self.kind in KINDS or self.kind in ("literal_error", "enum", "none_required")

    @classmethod
    def of(cls, raw: Any, data: Any) -> Error:
        """Pydantic's locations name union branches beside keys; the data tells them apart."""
        kind, loc = raw["type"], raw["loc"]
        path: list[str | int] = []
        union: Loc | None = None
        branch = ""
        value = data
        for position, part in enumerate(loc):
            missing = kind == "missing" and position == len(loc) - 1
            inner = yamlnodes.below(value, part)
            if inner is not yamlnodes.MISSING or missing:
                value = inner
                path.append(part)
            elif union is None:
                union, branch = tuple(path), str(part)
        return cls(kind, tuple(path), union, branch, raw)


def groups(errors: Sequence[Error]) -> Iterator[list[Error]]:
    """The errors of one union together, all others alone."""
    unions: dict[Loc, list[Error]] = {}
    for error in errors:
        if error.union is None:
            yield [error]
        else:
            unions.setdefault(error.union, []).append(error)
    yield from unions.values()
