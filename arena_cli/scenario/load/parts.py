"""What stands at a place of a scenario, and what is told of it when it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from arena_cli.ground.errors import Fault, FileFaults, UsageError
from arena_cli.yamlio.document import Part, find_holder
from arena_cli.yamlio.nodes import Loc

T = TypeVar("T")


def below(part: Part, loc: Loc) -> Part:
    """The part at `loc` of a part."""
    return Part(part.document, (*part.loc, *loc))


def below_all(parts: Sequence[Part], loc: Loc) -> list[Part]:
    """The parts at `loc` of several."""
    return [below(part, loc) for part in parts]


def tried(make: Callable[[], T], parts: Sequence[Part], loc: Loc, faults: list[Fault]) -> T | None:
    """What `make` gives, or None and what was wrong, told at `loc` where it tells no place."""
    try:
        return make()
    except FileFaults as error:
        faults += error.faults
    except UsageError as error:
        place = find_holder(parts, loc)
        faults.append(place.fault(loc, error.what, error.mend))
    return None
