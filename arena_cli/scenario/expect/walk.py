"""All checks on a text of an `expect`, wherever they stand in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from arena_cli.scenario.expect.check_shapes import CheckKeys, key_of
from arena_cli.scenario.expect.shapes import Expect
from arena_cli.team.model import FileShape
from arena_cli.yamlio.nodes import Loc


class Given(NamedTuple):
    """A check: its place below `expect`, its field, and what stands there."""

    loc: Loc
    kind: str
    value: Any


def given(expect: Expect) -> Iterator[Given]:
    """Every check, those within `not` and `any_of` too."""
    yield from _in(expect, ())


def _in(value: Any, loc: Loc) -> Iterator[Given]:
    if isinstance(value, CheckKeys):
        for kind in value.kinds:
            here, given = (*loc, key_of(kind)), value.given(kind)
            yield Given(here, kind, given)
            yield from _in(given, here)
    elif isinstance(value, FileShape):
        for name in type(value).model_fields:
            if name in value.model_fields_set:
                yield from _in(getattr(value, name), (*loc, name))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _in(one, (*loc, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _in(one, (*loc, index))
