"""Check plain data against a pydantic shape and explain in plain words what does not fit.

A shape may name in `not_built: ClassVar[frozenset[str]]` parts of the format that are not built
yet: a key (`"supervisor"`) or one value of a key (`"on_failure: replan"`).
"""

from __future__ import annotations

import json
import shlex
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from arena_cli.errors import Fault, find_nearest, suggest_nearest
from arena_cli.util.redaction import is_secret_key
from arena_cli.util.text import lazy_pattern
from arena_cli.yamlio import nodes
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import ImportedShape


def is_model(annotation: Any) -> bool:
    """Return True if an annotation is a pydantic model."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def iter_leaf_types(annotation: Any) -> Iterator[Any]:
    """Yield the branches of a union, or the one type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        shapes = [mark.shape for mark in get_args(annotation) if isinstance(mark, ImportedShape)]
        yield from iter_leaf_types(shapes[0] if shapes else get_args(annotation)[0])
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


T = TypeVar("T", bound=BaseModel)

_MAPPING = "a mapping of keys"
_KINDS = {
    "string_type": "a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _MAPPING),
}
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_SUBJECT = lazy_pattern(r"^[\w ]+? should")
_NUMBER = lazy_pattern(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_FLAG_WORDS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_REASONS = (("skip",), ("xfail",))  # their value is a reason, any text


class Origin(Protocol):
    """The place of data: makes the errors of its values, and the fixes of its lines."""

    def fault(self, loc: Loc, problem: str, hint: str = "", *, at_key: bool = False) -> Fault:
        """Return an error of the value, or of the key, at `loc`."""

    def is_reported(self, loc: Loc, *, with_below: bool) -> bool:
        """Return True if reading found an error at `loc`, or around it, or if asked, below it."""

    def raw(self, loc: Loc) -> str | None:
        """Return the value at `loc` as it is written in one line, None if it takes more or none."""

    def hint_with(self, loc: Loc, value: str) -> str:
        """Return the hint to write the line with `value` at `loc`, "" if that is no short line."""


def check(
    data: Any,
    shape: type[T],
    origin: Origin,
    is_pending: Callable[[Any], bool] = lambda _: False,
) -> tuple[T | None, list[Fault]]:
    """Return `data` as `shape`, or None and every error.

    Types are strict as in JSON: no text is a number, no number a text; a list may become a tuple. A
    wrong value that `is_pending` is no error yet.
    """
    data = {} if data is None else data
    explainer = _Explainer(shape, origin)
    if not isinstance(data, dict):
        return None, [explainer.refuse(data)]
    try:
        return shape.model_validate_json(json.dumps(data), strict=True), []
    except ValidationError as error:
        errors = [_Error.locate(raw, data) for raw in error.errors(include_url=False)]
    current = [e for e in errors if e.kind == "extra_forbidden" or not is_pending(e.value)]
    faults: dict[Fault, None] = {}
    for group in _group_by_union(explainer.keep_causes(current)):
        faults.update(dict.fromkeys(explainer.explain(group)))
    return None, list(faults)


def explain_first(error: ValidationError) -> str:
    """Return the first error of data outside YAML files as `path: problem`."""
    first = error.errors(include_url=False)[0]
    path = ".".join(map(str, first["loc"]))
    problem = explain_error(first)
    return f"{path}: {problem}" if path else problem


def explain_error(raw: Any) -> str:
    """Return the problem of one of pydantic's errors, without its path."""
    kind, context = raw["type"], raw.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "union_tag_not_found":
        return "needs a key " + str(context["discriminator"]).replace("'", "`")
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}, not {_describe(raw['input'])}"
    if kind in ("literal_error", "enum"):
        words = ", ".join(_split_words(context.get("expected", "")))
        return f"must be one of {words}, not {_describe(raw['input'])}"
    return _explain_value(_Error(kind, (), None, "", raw), is_secret=False)


def drop_free_keys(data: Any, annotation: Any) -> Any:
    """Return `data` without the `x-...` keys of every mapping that has a known shape."""
    if isinstance(data, list):
        items = [arg for leaf in iter_leaf_types(annotation) for arg in list_item_types(leaf)]
        return [drop_free_keys(item, make_union(items)) for item in data] if items else data
    if not isinstance(data, dict):
        return data
    leaves = list(iter_leaf_types(annotation))
    has_model = any(map(is_model, leaves))
    if not has_model and not {get_origin(leaf) for leaf in leaves} & {dict, Mapping}:
        return data
    declared = {k: v for k, v in data.items() if not (has_model and str(k).startswith("x-"))}
    return {
        key: drop_free_keys(value, make_union(list_types_below(leaves, key)))
        for key, value in declared.items()
    }


class _Error:
    """An error of pydantic, at `path` of the data.

    In one branch of a union, `union` is the union's place and `branch` the branch's label.
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
        """True if it is the type of the value, or its word, that is wrong."""
        return self.kind in _KINDS or self.kind in ("literal_error", "enum", "none_required")

    @classmethod
    def locate(cls, raw: Any, data: Any) -> _Error:
        """Separate keys from names of union branches in pydantic's locations, by the data."""
        kind, loc = raw["type"], raw["loc"]
        path: list[str | int] = []
        union: Loc | None = None
        branch = ""
        value = data
        for position, step in enumerate(loc):
            is_missing = kind == "missing" and position == len(loc) - 1
            inner = nodes.find_value(value, (step,))
            if inner is not nodes.MISSING or is_missing:
                value = inner
                path.append(step)
            elif union is None:
                union, branch = tuple(path), str(step)
        return cls(kind, tuple(path), union, branch, raw)


def _group_by_union(errors: Sequence[_Error]) -> Iterator[list[_Error]]:
    """Yield the errors of one union together, all others alone."""
    unions: dict[Loc, list[_Error]] = {}
    for error in errors:
        if error.union is None:
            yield [error]
        else:
            unions.setdefault(error.union, []).append(error)
    yield from unions.values()


class _Explainer:
    """Explains pydantic's errors about the data of one shape."""

    def __init__(self, shape: type[BaseModel], origin: Origin) -> None:
        self._shape = shape
        self._origin = origin

    def refuse(self, data: Any) -> Fault:
        """Return the error of a file that is no mapping."""
        hint = "write its keys at the left edge, without `- `" if isinstance(data, list) else ""
        if isinstance(data, str):
            hint = self._as_mapping((), data, "")
        problem = f"the file must be a mapping of keys, not {_describe(data)}"
        return self._origin.fault((), problem, hint)

    def keep_causes(self, errors: Sequence[_Error]) -> list[_Error]:
        """Return the errors without those that another one explains.

        Such are a required key that is misspelt, a value that reading reported, an empty key whose
        values are less indented.
        """
        misspelt, left_out = self._find_meant(errors)
        is_reported = self._origin.is_reported
        new = [e for e in errors if not is_reported(e.path, with_below=e.kind == "value_error")]
        # Of a union one branch was meant; if that is reported, it fits no other either.
        reported = {e.union for e in errors if e not in new and e.union is not None}

        def is_explained(error: _Error) -> bool:
            if error.path == error.union and error.is_of_type and error.union in reported:
                return True
            return error.path in (misspelt if error.kind == "missing" else left_out)

        return [error for error in new if not is_explained(error)]

    def _find_meant(self, errors: Sequence[_Error]) -> tuple[set[Loc], set[Loc]]:
        """Return the keys that unknown keys are meant as, and the empty ones they belong below."""
        empty = {error.path for error in errors if error.value is None}
        misspelt: set[Loc] = set()
        left_out: set[Loc] = set()
        for path in (error.path for error in errors if error.kind == "extra_forbidden"):
            key, above = str(path[-1]), path[:-1]
            if near := find_nearest(key, self._keys(above)):
                misspelt.add((*above, near))
            left_out.update((*above, parent) for parent in self._parents(key, above))
        return misspelt, left_out & empty

    def explain(self, group: Sequence[_Error]) -> list[Fault]:
        """Return the errors for one problem, or for a union: those of the branch that was meant."""
        branches: dict[str, list[_Error]] = {}
        for error in group:
            branches.setdefault(error.branch, []).append(error)
        if len(branches) == 1:
            return [self._fault(error) for error in _innermost(group)]
        return self._explain_union(group, branches)

    def _explain_union(
        self, group: Sequence[_Error], branches: Mapping[str, list[_Error]]
    ) -> list[Fault]:
        union_path = group[0].union or ()
        wrong_kinds = [error for error in group if error.path == union_path and error.is_of_type]
        if any(error.kind == "list_type" and self._is_item(error) for error in wrong_kinds):
            return [self._wrong_kind(union_path, "a list", wrong_kinds[0].value)]
        wrong_branches = {error.branch for error in wrong_kinds}
        plausible = [errors for name, errors in branches.items() if name not in wrong_branches]
        if plausible:
            return [self._fault(error) for error in _innermost(min(plausible, key=len))]
        return [self._no_branch(union_path, wrong_kinds, group[0].value)]

    def _no_branch(self, path: Loc, wrong_kinds: Sequence[_Error], value: Any) -> Fault:
        """Return the error of a value that is of the kind of no branch of a union."""
        words = [error for error in wrong_kinds if error.kind == "literal_error"]
        others = {error.kind for error in wrong_kinds if error not in words}
        if len(words) == 1 and isinstance(words[0].value, str) and others <= {"model_type"}:
            return self._wrong_word(words[0])
        kinds = dict.fromkeys(map(self._expected, wrong_kinds))
        return self._wrong_kind(path, " or ".join(filter(None, kinds)), value)

    def _keys(self, path: Loc) -> list[str]:
        return list_keys(self._shape, path)

    def _is_item(self, error: _Error) -> bool:
        """Return True if a mapping is an item of the list that is expected, without the list."""
        if not isinstance(error.value, dict) or not error.value:
            return False
        item, mapping = self._keys((*error.path, 0)), self._keys(error.path)
        return all(key in item and key not in mapping for key in error.value)

    def _expected(self, error: _Error) -> str:
        if error.kind in ("literal_error", "enum"):
            return " or ".join(_split_words(error.context.get("expected", "")))
        if error.kind == "none_required":
            return ""
        expected = _KINDS[error.kind]
        if expected == _MAPPING and (keys := self._keys(error.path)):
            return f"a mapping with {', '.join(f'`{key}`' for key in keys[:6])}"
        return expected

    def _fault(self, error: _Error) -> Fault:
        kind, path = error.kind, error.path
        if kind == "missing":
            key = str(path[-1])
            parent = self._origin.fault(path[:-1], "is missing", f"add a line `{key}: ...`")
            field = f"{parent.field}.{key}" if parent.field else key
            return replace(parent, field=field, column=None)
        if kind == "extra_forbidden":
            return self._unknown_key(path)
        if kind in ("literal_error", "enum", "union_tag_invalid"):
            return self._wrong_word(error)
        if kind in _KINDS:
            return self._wrong_kind(path, _KINDS[kind], error.value)
        return self._origin.fault(path, _explain_value(error, is_secret=_is_secret(path)))

    def _unknown_key(self, path: Loc) -> Fault:
        key = str(path[-1])
        if key in self._not_built(path[:-1]):
            return self._origin.fault(path, "is not implemented yet", "remove it", at_key=True)
        known_keys = self._keys(path[:-1])
        hint = suggest_nearest(key, known_keys)
        if not find_nearest(key, known_keys):
            if home := self._home(key, path[:-1]):
                hint = f"`{key}` belongs {home}"
            elif later := [k for k in known_keys if key in self._not_built((*path[:-1], k))]:
                hint = f"`{key}` belongs under `{later[0]}`, and is not implemented yet; remove it"
        return self._origin.fault(path, "unknown key", hint, at_key=True)

    def _home(self, key: str, path: Loc) -> str:
        """Return the place of a key that is not known at `path`: below a key there, or above."""
        parents = self._parents(key, path)
        if parents:
            return f"under {' or '.join(f'`{parent}`' for parent in parents[:3])}, indented more"
        for end in range(len(path) - 1, -1, -1):
            if key in self._keys(path[:end]):
                above = nodes.format_loc(path[:end])
                return f"in `{above}`, indented less" if above else "at the left edge"
        return ""

    def _parents(self, key: str, path: Loc) -> list[str]:
        """Return the keys known at `path` below which `key` is known."""
        return [
            sibling
            for sibling in self._keys(path)
            if key in self._keys((*path, sibling)) + self._keys((*path, sibling, 0))
        ]

    def _wrong_word(self, error: _Error) -> Fault:
        path, value = error.path, error.value
        if error.kind == "union_tag_invalid":
            key = str(error.context["discriminator"]).strip("'")
            path, value = (*path, key), error.context["tag"]
        words = _split_words(error.context.get("expected") or error.context["expected_tags"])
        listed = ", ".join(words)
        if not isinstance(value, str):
            return self._wrong_kind(path, f"one of {listed}", value)
        near = find_nearest(value, words)
        hint = f"did you mean `{near}`?" if near else ""
        return self._origin.fault(path, f"must be one of {listed}, not `{value[:60]}`", hint)

    def _wrong_kind(self, path: Loc, expected: str, value: Any) -> Fault:
        raw = self._origin.raw(path)
        empty = f", not `{raw}`" if raw else "; the value is empty"
        actual = empty if value is None else f", not {_describe(value)}"
        problem = f"must be {expected}{actual}"
        if _is_secret(path) and value is not None:
            return self._origin.fault(path, f"must be {expected}")
        is_filled = raw and "${" in raw and not isinstance(value, str)  # the line itself is right
        hint = "" if is_filled else self._kind_hint(path, expected, value, raw)
        return self._origin.fault(path, problem, hint)

    def _kind_hint(self, path: Loc, expected: str, value: Any, raw: str | None) -> str:
        if value is None:
            return "write a value, or leave the key out"
        if isinstance(value, bool) and path[-1:] in _REASONS:
            return "write why, as a text" if value else "leave the key out"
        if hint := self._as_mapping(path, value, raw) if "a mapping" in expected else "":
            return hint
        key = path[-1] if path else ""
        fix = self._as_check(path, value, raw) or _as_expected(expected, value, raw or "", key)
        if fix:
            return self._origin.hint_with(path, fix) or f"write {fix}"
        return _suggest_dash(expected, value)

    def _as_mapping(self, path: Loc, value: Any, raw: str | None) -> str:
        """Return the hint for `send:hello`, `send "hello"`: a key without its colon, or space."""
        error = nodes.find_bad_key(value) if isinstance(value, str) else None
        if error is None or error.fixed.partition(":")[0] not in self._keys(path):
            return ""
        if raw is None:
            return error.problem
        return self._origin.hint_with(path, error.fixed) or f"write `{error.fixed}`"

    def _as_check(self, path: Loc, value: Any, raw: str | None) -> str:
        """Return a text in place of checks on a text as the check `contains`."""
        if not raw or isinstance(value, bool) or not isinstance(value, str | int | float):
            return ""
        text = raw if raw[0] in "'\"" else nodes.quote(raw)
        for place, form in (((*path, 0), "[{{contains: {}}}]"), (path, "{{contains: {}}}")):
            keys = self._keys(place)
            if "contains" in keys and "agent" not in keys:  # else it is a row with its agent
                return form.format(text)
        return ""

    def _not_built(self, path: Loc) -> set[str]:
        models = list_models(self._shape, path)
        return {word for model in models for word in getattr(model, "not_built", ())}


def _suggest_dash(expected: str, value: Any) -> str:
    """Return the hint for a list in place of a mapping, or an item in place of a list."""
    if expected == _MAPPING and isinstance(value, list):
        return "remove the `- `"
    is_item = "a list" in expected and isinstance(value, (str, dict))
    return "write `- ` before each item" if is_item else ""


def _as_expected(expected: str, value: Any, raw: str, key: str | int) -> str:
    """Return a value as it is written in the kind that is expected, "" if that is unknown."""
    if expected.startswith("a text") and raw:
        return nodes.quote(raw)
    if expected == "true or false":
        return _FLAG_WORDS.get(str(value).lower(), "")
    if "number" in expected and isinstance(value, str):
        bare = value.rstrip(",;")
        return bare if _NUMBER.fullmatch(bare) else ""
    if "a list" not in expected or not raw:
        return ""
    if key == "command" and isinstance(value, str):
        return _as_command(value)
    is_bare = value == raw and any(mark in raw for mark in "[]{}")
    return f"[{nodes.quote(raw) if is_bare else raw}]"


def _as_command(line: str) -> str:
    """Return a program and its arguments in one text as the list that is expected."""
    try:
        words = line.split() if "\\" in line else shlex.split(line)
    except ValueError:
        words = line.split()
    return f"[{', '.join(w if w.isalnum() else nodes.quote(w) for w in words)}]"


def _describe(value: Any) -> str:
    """Return a value in a few words: `the number 3`, `a list`."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text `{value if len(value) <= 40 else value[:39] + '…'}`"
    return "a list" if isinstance(value, list) else "a mapping"


def _explain_value(error: _Error, *, is_secret: bool) -> str:
    """Return the problem of a value whose type is right, without repeating a secret."""
    if error.kind in _BOUNDS:
        key, words = _BOUNDS[error.kind]
        actual = "" if is_secret else f", not {error.value}"
        return f"{words} {error.context[key]:g}{actual}"
    if error.kind == "finite_number":
        return "must be a finite number"
    if error.kind in ("too_short", "string_too_short"):
        return f"needs at least {error.context['min_length']}"
    if error.kind in ("too_long", "string_too_long"):
        return f"may have at most {error.context['max_length']}"
    message = error.message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message if message != error.message else _SUBJECT.sub("must", message)


def _split_words(listed: str) -> list[str]:
    """Return pydantic's `'skip', 'retry' or 'abort'` as words."""
    return [word.strip().strip("'") for word in listed.replace(" or ", ", ").split(",")]


def _innermost(errors: Sequence[_Error]) -> list[_Error]:
    """Return the errors except a wrong kind of value that has another error within it."""
    # In a union within a union, as a list of words or mappings, branches have no label.
    return [
        error
        for error in errors
        if not error.is_of_type
        or not any(
            len(inner.path) > len(error.path) and inner.path[: len(error.path)] == error.path
            for inner in errors
        )
    ]


def _is_secret(path: Loc) -> bool:
    return any(isinstance(step, str) and is_secret_key(step) for step in path)
