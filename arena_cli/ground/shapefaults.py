"""Checks plain data against a pydantic shape and says in plain words what does not fit.

A shape may name in `not_built: ClassVar[frozenset[str]]` what is part of the format but not built
yet: a key (`"supervisor"`) or one value of a key (`"on_failure: replan"`).
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from arena_cli.ground import nearest, yamlnodes
from arena_cli.ground.errors import Fault
from arena_cli.ground.yamlnodes import Loc

T = TypeVar("T", bound=BaseModel)
Written = Callable[[Loc], str | None]


class Tell(Protocol):
    """Makes a fault of what stands at a place."""

    def __call__(self, loc: Loc, what: str, mend: str = "") -> Fault: ...


_KINDS = {
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
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_FLAG_WORDS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def check(
    data: Any,
    shape: type[T],
    tell: Tell,
    written: Written,
    later: Callable[[Any], bool] = lambda _: False,
) -> tuple[T | None, list[Fault]]:
    """`data` as `shape`, or None and every fault; `written` gives a scalar as its file has it.

    Types are strict as in JSON: no text is a number, no number a text; a list may become a tuple.
    What is wrong with a value that is `later` is no fault yet.
    """
    data = {} if data is None else data
    if not isinstance(data, dict):
        return None, [tell((), f"the file must be a mapping of keys, not {_kind_of(data)}")]
    try:
        return shape.model_validate_json(json.dumps(data), strict=True), []
    except ValidationError as error:
        found = [_Error.of(raw, data) for raw in error.errors(include_url=False)]
    teller = _Teller(shape, tell, written)
    faults: dict[Fault, None] = {}
    now = [error for error in found if error.kind == "extra_forbidden" or not later(error.value)]
    for group in _groups(now):
        faults.update(dict.fromkeys(teller.faults(group)))
    return None, list(faults)


def without_free_keys(data: Any, annotation: Any) -> Any:
    """`data` without the `x-...` keys of every mapping that is one of our shapes."""
    if isinstance(data, list):
        inner = [arg for leaf in _leaves(annotation) for arg in _item_types(leaf)]
        return [without_free_keys(item, _union(inner)) for item in data] if inner else data
    if not isinstance(data, dict):
        return data
    leaves = list(_leaves(annotation))
    models = [leaf for leaf in leaves if _is_model(leaf)]
    if not models and not any(get_origin(leaf) in (dict, Mapping) for leaf in leaves):
        return data
    return {
        key: without_free_keys(value, _union(_below(leaves, key)))
        for key, value in data.items()
        if not (models and str(key).startswith("x-"))
    }


class _Error:
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

    @classmethod
    def of(cls, raw: Any, data: Any) -> _Error:
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


def _groups(errors: Sequence[_Error]) -> Iterator[list[_Error]]:
    """The errors of one union together, all others alone."""
    unions: dict[Loc, list[_Error]] = {}
    for error in errors:
        if error.union is None:
            yield [error]
        else:
            unions.setdefault(error.union, []).append(error)
    yield from unions.values()


class _Teller:
    """Says what pydantic's errors mean."""

    def __init__(self, shape: type[BaseModel], tell: Tell, written: Written) -> None:
        self._shape = shape
        self._tell = tell
        self._written = written

    def faults(self, group: Sequence[_Error]) -> list[Fault]:
        """The faults of one error, or of a union's errors: those of the branch that was meant."""
        branches: dict[str, list[_Error]] = {}
        for error in group:
            branches.setdefault(error.branch, []).append(error)
        if len(branches) == 1:
            return [self._fault(error) for error in group]
        place = group[0].union or ()
        meant = [
            errors
            for errors in branches.values()
            if not any(error.path == place and _is_type_error(error) for error in errors)
        ]
        if meant:
            return [self._fault(error) for error in min(meant, key=len)]
        asked = dict.fromkeys(
            self._asked(error) for error in group if error.path == place and _is_type_error(error)
        )
        wanted = " or ".join(word for word in asked if word)
        return [self._wrong_kind(place, wanted, group[0].value)]

    def _asked(self, error: _Error) -> str:
        if error.kind in ("literal_error", "enum"):
            return " or ".join(_words(error.context.get("expected", "")))
        if error.kind == "none_required":
            return ""
        asked = _KINDS[error.kind]
        if asked == "a mapping of keys" and (keys := self._known_keys(error.path)):
            return f"a mapping with {', '.join(f'`{key}`' for key in keys[:6])}"
        return asked

    def _fault(self, error: _Error) -> Fault:
        kind, path = error.kind, error.path
        if kind == "missing":
            parent = self._tell(path[:-1], "is missing")
            field = f"{parent.field}.{path[-1]}" if parent.field else str(path[-1])
            return replace(parent, field=field)
        if kind == "extra_forbidden":
            return self._unknown_key(path)
        if kind in ("literal_error", "enum", "union_tag_invalid"):
            return self._wrong_word(error)
        if kind in _KINDS:
            return self._wrong_kind(path, _KINDS[kind], error.value)
        return self._tell(path, _other(error))

    def _unknown_key(self, path: Loc) -> Fault:
        key = str(path[-1])
        if key in self._not_built(path[:-1]):
            return self._tell(path, "is not built yet", "take it out")
        return self._tell(path, "unknown key", nearest.hint(key, self._known_keys(path[:-1])))

    def _wrong_word(self, error: _Error) -> Fault:
        path, value = error.path, error.value
        if path and f"{path[-1]}: {value}" in self._not_built(path[:-1]):
            return self._tell(path, f"`{value}` is not built yet")
        if error.kind == "union_tag_invalid":
            key = str(error.context["discriminator"]).strip("'")
            path, value = (*path, key), error.context["tag"]
        words = _words(error.context.get("expected") or error.context["expected_tags"])
        listed = ", ".join(words)
        if not isinstance(value, str):
            return self._wrong_kind(path, f"one of {listed}", value)
        near = nearest.of(value, words)
        mend = f"did you mean `{near}`?" if near else ""
        return self._tell(path, f"must be one of {listed}, not `{value[:60]}`", mend)

    def _wrong_kind(self, path: Loc, asked: str, value: Any) -> Fault:
        got = "; nothing stands here" if value is None else f", not {_kind_of(value)}"
        if asked.startswith("a text") and isinstance(value, bool | int | float | None):
            written = self._written(path)
            mend = f"quote it: '{written}'" if written else "write a text, or leave the key out"
        elif asked == "true or false" and str(value).lower() in _FLAG_WORDS:
            mend = f"write {_FLAG_WORDS[str(value).lower()]}"
        elif asked in ("a number", "a whole number") and isinstance(value, str) and _number(value):
            mend = "take the quotes away"
        elif asked == "a list" and isinstance(value, str | int | float):
            mend = f"write [{value}]"
        else:
            mend = ""
        return self._tell(path, f"must be {asked}{got}", mend)

    def _models(self, path: Loc) -> list[type[BaseModel]]:
        annotations: list[Any] = [self._shape]
        for part in path:
            leaves = [leaf for annotation in annotations for leaf in _leaves(annotation)]
            annotations = _below(leaves, part)
        leaves = [leaf for annotation in annotations for leaf in _leaves(annotation)]
        return [leaf for leaf in leaves if _is_model(leaf)]

    def _known_keys(self, path: Loc) -> list[str]:
        keys: dict[str, None] = {}
        for model in self._models(path):
            for name, field in model.model_fields.items():
                keys[field.alias or name] = None
        return list(keys)

    def _not_built(self, path: Loc) -> set[str]:
        return {word for model in self._models(path) for word in getattr(model, "not_built", ())}


def _other(error: _Error) -> str:
    if error.kind in _BOUNDS:
        key, words = _BOUNDS[error.kind]
        return f"{words} {error.context[key]:g}, not {error.value}"
    if error.kind == "finite_number":
        return "must be a finite number"
    if error.kind in ("too_short", "string_too_short"):
        return f"needs at least {error.context['min_length']}"
    if error.kind in ("too_long", "string_too_long"):
        return f"may have at most {error.context['max_length']}"
    message = error.message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message.replace("Input should", "must")


def _is_type_error(error: _Error) -> bool:
    return error.kind in _KINDS or error.kind in ("literal_error", "enum", "none_required")


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else value[:39] + "…"
        return f"the text `{shown}`"
    return "a list" if isinstance(value, list) else "a mapping"


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _words(listed: str) -> list[str]:
    """Pydantic's `'skip', 'retry' or 'abort'` as words."""
    return [word.strip().strip("'") for word in listed.replace(" or ", ", ").split(",")]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _leaves(annotation: Any) -> Iterator[Any]:
    """The branches of a union, or the one type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _leaves(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for branch in get_args(annotation):
            yield from _leaves(branch)
    else:
        yield annotation


def _item_types(leaf: Any) -> list[Any]:
    if get_origin(leaf) in (list, tuple, set, frozenset, Sequence):
        return [arg for arg in get_args(leaf) if arg is not Ellipsis]
    return []


def _below(leaves: Sequence[Any], part: str | int) -> list[Any]:
    """The types that may stand at a key or index."""
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(part, int):
            found += _item_types(leaf)
        elif _is_model(leaf):
            for name, field in leaf.model_fields.items():
                if part in (name, field.alias):
                    found.append(field.annotation)
        elif get_origin(leaf) in (dict, Mapping):
            found.append(get_args(leaf)[1])
    return found


def _union(annotations: Sequence[Any]) -> Any:
    return Union[tuple(annotations)] if annotations else Any  # noqa: UP007 - of a list
