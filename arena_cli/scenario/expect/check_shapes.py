"""Checks on a text, as shapes: what may be asked of what an agent said."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from arena_cli.scenario.expect import language, patterns, plugged
from arena_cli.scenario.expect.as_json import JsonCheck
from arena_cli.scenario.expect.judging import Judged
from arena_cli.scenario.expect.python import Target
from arena_cli.scenario.expect.similar import Similar
from arena_cli.team.model import FileShape


def _wanted(text: str) -> str:
    if not text:
        raise ValueError("an empty text is found in every text; write what is looked for")
    return text


def _pattern(text: str) -> str:
    try:
        patterns.compiled(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}; quote it with '...'") from error
    return text


def _can_fail(pattern: str) -> str:
    if patterns.holds_of_every_text(pattern):
        raise ValueError("it matches the empty text, which is in every text; write what must stand")
    return pattern


def _language(code: str) -> str:
    if not language.is_code(code):
        raise ValueError("a language is a code of ISO 639-1: zh, en, ja, ...")
    return code


def listed(value: Any) -> Any:
    """A value that may stand where a list is asked, as a list."""
    return value if isinstance(value, list) else [value]


def _without_defaults(schema: dict[str, Any]) -> None:
    """A key that is left out is not checked, whatever its shape has as default."""
    for key in schema["properties"].values():
        key.pop("default", None)


def _with_plugged(schema: dict[str, Any]) -> None:
    """Editors know the checks that are plugged in too."""
    _without_defaults(schema)
    for key in plugged.installed():
        schema["properties"].setdefault(key, {})


Wanted = Annotated[str, AfterValidator(_wanted)]
WantedTexts = Annotated[
    list[Wanted],
    BeforeValidator(listed, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Pattern = Annotated[Wanted, AfterValidator(_pattern)]
CheckPattern = Annotated[Pattern, AfterValidator(_can_fail)]


class Sparse(FileShape):
    """A mapping of which only the keys that are given count (`model_fields_set`)."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class CheckKeys(Sparse):
    """Checks on one text; all that are given must hold."""

    model_config = ConfigDict(json_schema_extra=_with_plugged)
    not_built: ClassVar[frozenset[str]] = frozenset({"tool"})

    contains: WantedTexts = Field(default_factory=list)
    not_contains: WantedTexts = Field(default_factory=list)
    equals: str = ""
    regex: CheckPattern = ""
    starts_with: Wanted = ""
    max_words: int = Field(default=0, ge=0)
    max_chars: int = Field(default=0, ge=0)
    language: Annotated[str, AfterValidator(_language)] = ""
    none_of: Checks = Field(default=None, alias="not")  # type: ignore[assignment]  # Sparse
    any_of: list[Checks] = Field(default_factory=list, min_length=1)
    as_json: JsonCheck = Field(default=None, alias="json")  # type: ignore[assignment]  # Sparse
    similar: Similar = Field(default=None)  # type: ignore[assignment]  # Sparse
    python: Target = ""
    snapshot: Literal[True] = True
    judge: Judged = Field(default=None)  # type: ignore[assignment]  # Sparse
    ignore_case: bool = False
    _plugged: ClassVar[Mapping[str, BaseModel]] = {}

    @model_validator(mode="wrap")
    @classmethod
    def _with_those_of_others(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        """A key that arena does not have may be that of a check that is plugged in."""
        keys = _keys_of(cls)
        if not isinstance(data, dict) or data.keys() <= keys:
            return handler(data)
        unknown = sorted(data.keys() - keys)
        theirs = {key: data[key] for key in unknown if key in plugged.installed()}
        for key in unknown:
            if key not in theirs and (error := plugged.misspelt(key, sorted(keys))):
                raise error
        given = handler({key: value for key, value in data.items() if key not in theirs})
        options = {key: plugged.options(key, value) for key, value in theirs.items()}
        # As a private attribute it would double the time that reading each check takes.
        object.__setattr__(given, "_plugged", options)
        return given

    @property
    def kinds(self) -> list[str]:
        """The checks that are given, in the order of this shape, then those that others plug in."""
        own = self.model_fields_set & _KINDS.keys()
        return [*sorted(own, key=_KINDS.__getitem__), *self._plugged]

    def given(self, kind: str) -> Any:
        """What is given for a check; for one that is plugged in with its key."""
        return (kind, self._plugged[kind]) if kind in self._plugged else getattr(self, kind)


_KINDS = {key: at for at, key in enumerate(CheckKeys.model_fields) if key != "ignore_case"}
"""The fields of `CheckKeys` that are checks, and their order."""


@cache
def _keys_of(shape: type[CheckKeys]) -> frozenset[str]:
    """The keys that arena itself has, built or not."""
    fields = shape.model_fields.items()
    return shape.not_built | {field.alias or name for name, field in fields}


def key_of(kind: str) -> str:
    """The key in the file of a field of `CheckKeys`."""
    field = CheckKeys.model_fields.get(kind)
    return (field.alias if field else None) or kind


_NEEDS_ONE = f"needs one of {', '.join(key_of(kind) for kind in _KINDS)}"


_CASELESS = frozenset({"max_words", "max_chars", "language", "python", "judge"})


def _case_counts(given: CheckKeys) -> None:
    """See that case means something to one of the checks. Raises ValueError."""
    if given.ignore_case and not set(given.kinds) & _KINDS.keys() - _CASELESS:
        both = " and ".join(key_of(kind) for kind in given.kinds)
        raise ValueError(f"`ignore_case` means nothing to {both}; take it out")


class Checks(CheckKeys):
    """One check or several, on one text."""

    @model_validator(mode="after")
    def _is_something(self) -> Checks:
        if not self.kinds:
            raise ValueError(_NEEDS_ONE)
        _case_counts(self)
        return self


class TextCheck(CheckKeys):
    """One check; `ignore_case` and `level` beside it. `warn` reports and does not fail."""

    level: Literal["fail", "warn"] = "fail"

    @model_validator(mode="after")
    def _is_one(self) -> TextCheck:
        if not self.kinds:
            raise ValueError(_NEEDS_ONE)
        if len(self.kinds) > 1:
            both = " and ".join(sorted(key_of(kind) for kind in self.kinds))
            raise ValueError(f"{both} are two checks; write each as an item of its own")
        _case_counts(self)
        return self

    @property
    def kind(self) -> str:
        """The field of the check."""
        return self.kinds[0]


CheckKeys.model_rebuild()  # shapes of other modules inherit it, and do not know `Checks`
