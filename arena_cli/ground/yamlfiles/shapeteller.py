"""Says in plain words what pydantic's errors mean, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel

from arena_cli.ground import nearest
from arena_cli.ground.errors import Fault
from arena_cli.ground.yamlfiles import (
    excerpt,
    shapeerrors,
    shapetypes,
    shapewords,
    yamllines,
    yamlnodes,
)
from arena_cli.ground.yamlfiles.shapeerrors import Error
from arena_cli.ground.yamlfiles.yamlnodes import Loc

_BESIDE_CHECKS = ("ignore_case", "level")
_REASONS = (("skip",), ("xfail",))  # a text under them says why, whatever it says


class Place(Protocol):
    """Where data stands: makes the faults of what is wrong with it, and the mends of its lines."""

    def fault(self, loc: Loc, what: str, mend: str = "", *, at_key: bool = False) -> Fault:
        """A fault of the value, or of the key, at `loc`."""

    def is_told(self, loc: Loc, *, with_below: bool) -> bool:
        """Whether reading found a fault at `loc`, or around it, or if asked, below it."""

    def is_mended(self, loc: Loc) -> bool:
        """Whether the line of `loc` was mended to be read."""

    def raw(self, loc: Loc) -> str | None:
        """The value at `loc` as it stands in one line, None where it takes more or none."""

    def rewritten(self, loc: Loc, value: str) -> str:
        """What to do so that the value at `loc` is `value`, "" where that is no short line."""


def no_mapping(data: Any, place: Place) -> Fault:
    """The fault of a file that is no mapping of keys."""
    mend = "its keys stand at the left edge, without `- `" if isinstance(data, list) else ""
    what = f"the file must be a mapping of keys, not {shapewords.kind_of(data)}"
    return place.fault((), what, mend)


def told(
    raw: Sequence[Any],
    data: Any,
    shape: type[BaseModel],
    place: Place,
    later: Callable[[Any], bool],
) -> list[Fault]:
    """The faults that pydantic's errors come to, but for values that are `later`."""
    errors = [Error.of(one, data) for one in raw]
    now = [error for error in errors if error.kind == "extra_forbidden" or not later(error.value)]
    teller = Teller(shape, place)
    faults: dict[Fault, None] = {}
    for group in shapeerrors.groups(teller.causes(now)):
        faults.update(dict.fromkeys(teller.faults(group)))
    return list(faults)


class Teller:
    """Says what pydantic's errors mean."""

    def __init__(self, shape: type[BaseModel], place: Place) -> None:
        self._shape = shape
        self._place = place

    def causes(self, errors: Sequence[Error]) -> list[Error]:
        """The errors without those that another one explains: a required key misspelt, a value
        of which reading could make nothing, what should stand below an empty key.
        """
        meant = {
            (
                *error.path[:-1],
                nearest.of(str(error.path[-1]), shapetypes.keys(self._shape, error.path[:-1])),
            )
            for error in errors
            if error.kind == "extra_forbidden"
        }
        left_out = {
            (*error.path[:-1], parent)
            for error in errors
            if error.kind == "extra_forbidden"
            for parent in self._parents(str(error.path[-1]), error.path[:-1])
        }
        untold = [error for error in errors if not self._is_told(error)]
        # Of a union one branch was meant; where that is told, it fits no other either.
        told = {error.union for error in errors if error not in untold and error.union is not None}
        return [
            error
            for error in untold
            if not (error.kind == "missing" and error.path in meant)
            and not (error.value is None and error.path in left_out)
            and not (error.union in told and error.path == error.union and error.is_of_type)
        ]

    def _is_told(self, error: Error) -> bool:
        """Whether reading found what makes the error."""
        is_value = error.kind == "value_error"
        if (error.is_of_type or is_value) and self._place.is_mended(error.path):
            return True
        return self._place.is_told(error.path, with_below=is_value)

    def faults(self, group: Sequence[Error]) -> list[Fault]:
        """The faults of one error, or of a union's errors: those of the branch that was meant."""
        branches: dict[str, list[Error]] = {}
        for error in group:
            branches.setdefault(error.branch, []).append(error)
        if len(branches) == 1:
            return [self._fault(error) for error in _innermost(group)]
        place = group[0].union or ()
        for error in group:
            if error.path == place and error.kind == "list_type" and self._is_item(error):
                return [self._wrong_kind(place, "a list", error.value)]
        meant = [
            errors
            for errors in branches.values()
            if not any(error.path == place and error.is_of_type for error in errors)
        ]
        if meant:
            return [self._fault(error) for error in _innermost(min(meant, key=len))]
        asked = dict.fromkeys(
            self._asked(error) for error in group if error.path == place and error.is_of_type
        )
        wanted = " or ".join(word for word in asked if word)
        return [self._wrong_kind(place, wanted, group[0].value)]

    def _is_item(self, error: Error) -> bool:
        """Whether a mapping, where a list or another mapping is asked, is an item of that list."""
        item = shapetypes.keys(self._shape, (*error.path, 0))
        other = shapetypes.keys(self._shape, error.path)
        if not isinstance(error.value, dict) or not error.value:
            return False
        return all(key in item and key not in other for key in error.value)

    def _asked(self, error: Error) -> str:
        if error.kind in ("literal_error", "enum"):
            return " or ".join(shapewords.words(error.context.get("expected", "")))
        if error.kind == "none_required":
            return ""
        asked = shapeerrors.KINDS[error.kind]
        if asked == "a mapping of keys" and (keys := shapetypes.keys(self._shape, error.path)):
            return f"a mapping with {', '.join(f'`{key}`' for key in keys[:6])}"
        return asked

    def _fault(self, error: Error) -> Fault:
        kind, path = error.kind, error.path
        if kind == "missing":
            key = str(path[-1])
            parent = self._place.fault(path[:-1], "is missing", f"add a line `{key}: ...`")
            field = f"{parent.field}.{key}" if parent.field else key
            return replace(parent, field=field, column=None)
        if kind == "extra_forbidden":
            return self._unknown_key(path)
        if kind in ("literal_error", "enum", "union_tag_invalid"):
            return self._wrong_word(error)
        if kind in shapeerrors.KINDS:
            return self._wrong_kind(path, shapeerrors.KINDS[kind], error.value)
        return self._place.fault(path, shapewords.other(error, is_secret=_is_secret(path)))

    def _unknown_key(self, path: Loc) -> Fault:
        key = str(path[-1])
        if key in self._not_built(path[:-1]):
            return self._place.fault(path, "is not built yet", "take it out", at_key=True)
        known = shapetypes.keys(self._shape, path[:-1])
        if nearest.of(key, known):
            return self._place.fault(path, "unknown key", nearest.hint(key, known), at_key=True)
        mend = nearest.hint(key, known)
        if home := self._home(key, path[:-1]):
            mend = f"`{key}` stands {home}"
        elif later := [one for one in known if key in self._not_built((*path[:-1], one))]:
            mend = f"`{key}` stands under `{later[0]}`, and is not built yet; take it out"
        fault = self._place.fault(path, "unknown key", mend, at_key=True)
        if re.search(rf"{re.escape(key)}:\s+&", fault.source):
            fault = replace(fault, mend=f"call it `x-{key}`: a key of your own starts with `x-`")
        return fault

    def _home(self, key: str, path: Loc) -> str:
        """Where a key that is not known at `path` is known: below a key beside it, or above."""
        below = self._parents(key, path)
        if below:
            return f"under {' or '.join(f'`{parent}`' for parent in below[:3])}, indented more"
        for end in range(len(path) - 1, -1, -1):
            if key in shapetypes.keys(self._shape, path[:end]):
                above = yamlnodes.dotted(path[:end])
                return f"in `{above}`, indented less" if above else "at the left edge"
        return ""

    def _parents(self, key: str, path: Loc) -> list[str]:
        """The keys known at `path` below which `key` is known."""
        return [
            beside
            for beside in shapetypes.keys(self._shape, path)
            if key
            in shapetypes.keys(self._shape, (*path, beside))
            + shapetypes.keys(self._shape, (*path, beside, 0))
        ]

    def _wrong_word(self, error: Error) -> Fault:
        path, value = error.path, error.value
        if path and f"{path[-1]}: {value}" in self._not_built(path[:-1]):
            return self._place.fault(path, f"`{value}` is not built yet")
        if error.kind == "union_tag_invalid":
            key = str(error.context["discriminator"]).strip("'")
            path, value = (*path, key), error.context["tag"]
        words = shapewords.words(error.context.get("expected") or error.context["expected_tags"])
        listed = ", ".join(words)
        if not isinstance(value, str):
            return self._wrong_kind(path, f"one of {listed}", value)
        near = nearest.of(value, words)
        mend = f"did you mean `{near}`?" if near else ""
        return self._place.fault(path, f"must be one of {listed}, not `{value[:60]}`", mend)

    def _wrong_kind(self, path: Loc, asked: str, value: Any) -> Fault:
        raw = self._place.raw(path)
        nothing = f", not `{raw}`" if raw else "; nothing stands here"
        got = nothing if value is None else f", not {shapewords.kind_of(value)}"
        if asked == "a list" and isinstance(value, dict) and value:
            return self._no_items(path, f"must be {asked}{got}", value)
        if _is_secret(path) and value is not None:
            return self._place.fault(path, f"must be {asked}")
        return self._place.fault(
            path, f"must be {asked}{got}", self._kind_mend(path, asked, value, raw)
        )

    def _no_items(self, path: Loc, what: str, value: Mapping[str, Any]) -> Fault:
        """A mapping where a list is asked: told at its first key, which lacks its `- `."""
        first = next(iter(value))
        fault = self._place.fault(path, what, "write `- ` before the first key of each item")
        below = self._place.fault((*path, first), what, at_key=True)
        if below.line <= fault.line or not below.source:
            items = self._items(path, value)
            return replace(fault, mend=self._place.rewritten(path, items) or fault.mend)
        mend = f"write: - {below.source.strip()}"
        if len(value) > 1 or self._place.raw((*path, first)) is None:
            mend = "write `- ` before it, and indent the lines of this item below it by two more"
        return replace(below, field=fault.field, mend=mend)

    def _items(self, path: Loc, value: Mapping[str, Any]) -> str:
        """A mapping as the list that it should be; each check is an item of its own."""
        raws = {key: self._place.raw((*path, key)) or "..." for key in value}
        beside = [f"{key}: {raws.pop(key)}" for key in _BESIDE_CHECKS if key in raws]
        if not self._is_check((*path, 0)) or len(raws) == 1:
            return f"[{self._place.raw(path)}]"
        items = [", ".join([f"{key}: {raw}", *beside]) for key, raw in raws.items()]
        return f"[{', '.join(f'{{{item}}}' for item in items)}]"

    def _kind_mend(self, path: Loc, asked: str, value: Any, raw: str | None) -> str:
        if value is None:
            wanted = asked.partition(" or ")[0] if asked != "true or false" else asked
            must = any(path[-1:] == (key,) for key in self._required(path[:-1]))
            return f"write {wanted}" + ("" if must else ", or leave the key out")
        return self._value_mend(path, asked, value, raw) or self._other_mend(
            path, asked, value, raw
        )

    def _value_mend(self, path: Loc, asked: str, value: Any, raw: str | None) -> str:
        """The value as it was meant, where it tells that."""
        if isinstance(value, bool) and path[-1:] in _REASONS:
            return "write why, as a text" if value else "leave the key out"
        check = self._as_check(path, asked, value, raw)
        if check:
            return self._place.rewritten(path, check) or f"write {check}"
        meant = shapewords.as_asked(asked, value, raw or "", key=next(reversed(path), ""))
        if meant is not None:
            return self._place.rewritten(path, meant[0]) or meant[1]
        return ""

    def _other_mend(self, path: Loc, asked: str, value: Any, raw: str | None) -> str:
        if "a list" in asked and isinstance(value, str):
            return "write `- ` before each item"
        if "a mapping" in asked and isinstance(value, str):
            return self._mapping_mend(path, value, raw)
        if asked == "a mapping of keys" and isinstance(value, list):
            return "take the `- ` away"
        return ""

    def _as_check(self, path: Loc, asked: str, value: Any, raw: str | None) -> str:
        """A text in the place of checks on one: that it is contained."""
        if "a list" in asked and self._is_check((*path, 0)):
            check = shapewords.as_check(value, raw)
            return f"[{check}]" if check else ""
        if (
            "a mapping" in asked
            and self._is_check(path)
            and not self._mapping_mend(path, value, raw)
        ):
            return shapewords.as_check(value, raw)
        return ""

    def _is_check(self, path: Loc) -> bool:
        """Whether checks on a text stand there; what has an agent is a row, told by its agent."""
        keys = shapetypes.keys(self._shape, path)
        return "contains" in keys and "agent" not in keys

    def _mapping_mend(self, path: Loc, value: Any, raw: str | None) -> str:
        """`send:hello`, `send "hello"`: a key whose colon, or its space, is not there."""
        if not isinstance(value, str):
            return ""
        slip = yamllines.bad_key(value) or yamllines.no_colon(value)
        key = slip.fixed.partition(":")[0] if slip else ""
        if slip is None or key not in shapetypes.keys(self._shape, path):
            return ""
        if raw is None:
            return slip.what
        return self._place.rewritten(path, slip.fixed) or f"write `{slip.fixed}`"

    def _required(self, path: Loc) -> list[str]:
        return [
            key
            for model in shapetypes.models(self._shape, path)
            for key in shapetypes.required(model)
        ]

    def _not_built(self, path: Loc) -> set[str]:
        return {
            word
            for model in shapetypes.models(self._shape, path)
            for word in getattr(model, "not_built", ())
        }


def _innermost(errors: Sequence[Error]) -> list[Error]:
    """The errors without that a value is of the wrong kind where something within it is wrong."""
    # Of a union within a union, as a list of words or mappings, the branches are not told apart.
    return [
        error
        for error in errors
        if not error.is_of_type
        or not any(
            len(one.path) > len(error.path) and one.path[: len(error.path)] == error.path
            for one in errors
        )
    ]


def _is_secret(path: Loc) -> bool:
    return any(isinstance(part, str) and excerpt.is_secret(part) for part in path)
