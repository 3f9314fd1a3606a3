"""Which scenario files are meant, and which of their scenarios."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import bounds, nearest, regularfiles
from arena_cli.ground.errors import UsageError
from arena_cli.scenario.load import include
from arena_cli.scenario.load.include import Reader

FOLDER = "scenarios"
FIXTURES = "fixtures"
SUFFIX = ".yaml"
OTHER_SUFFIX = ".yml"


class Selected(NamedTuple):
    """Scenario files in the order of selection; `named` are those that were named one by one.

    `misnamed` lie among them, and are not read for their name's end. `chosen` are those outside the
    workspace that the user named there, not by a link in it.
    """

    paths: tuple[Path, ...]
    named: frozenset[Path] = frozenset()
    misnamed: tuple[Path, ...] = ()
    chosen: frozenset[Path] = frozenset()


def select(root: Path, wanted: Sequence[str], start: Path) -> Selected:
    """The scenario files that are meant: all of the workspace's, or those that are named.

    Each of `wanted` is a file, a folder, or the name of a file in `scenarios/`; paths are relative
    to `start`. Raises UsageError where one is not there, or where none is left.
    """
    if not wanted:
        everywhere = everything(root)
        if not everywhere.paths and not everywhere.misnamed:
            raise UsageError(nothing_in(str(root / FOLDER)))
        return everywhere
    found: dict[Path, None] = {}
    named: set[Path] = set()
    chosen: set[Path] = set()
    misnamed: list[Path] = []
    for name in wanted:
        path = _meant(root, name, start)
        if path == Path(start, name) and not _leads_through(path, root):
            chosen |= _lying_in(path)
        if path.is_dir():
            found.update(dict.fromkeys(_inside(path)))
            misnamed += _inside(path, OTHER_SUFFIX)
        else:
            named.add(path.resolve())
            found[path.resolve()] = None
    if not found and not misnamed:
        raise UsageError(nothing_in(", ".join(wanted)))
    return Selected(tuple(found), frozenset(named), tuple(misnamed), frozenset(chosen))


def _leads_through(path: Path, root: Path) -> bool:
    """Whether a path that a user named has a part that lies in the workspace."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - with its links as they are
    return any(bounds.is_inside(one, root) for one in (*whole.parents, whole.resolve()))


def _lying_in(path: Path) -> set[Path]:
    """A file, or the files below a folder that no link there leads out of it."""
    if not path.is_dir():
        return {path.resolve()}
    return {one for one in _inside(path) if bounds.is_inside(one, path)}


def everything(root: Path) -> Selected:
    """Every scenario of a workspace; there may be none."""
    return Selected(tuple(of_workspace(root)), misnamed=tuple(_inside(root / FOLDER, OTHER_SUFFIX)))


def nothing_in(where: str) -> str:
    """What is said where no file is left."""
    return f"no scenario is selected: no *{SUFFIX} in {where}"


def only_parts(selected: Selected, root: Path) -> UsageError:
    """What is said where every file is one that others include."""
    shown = [Reader(root).shown(path) for path in selected.paths]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return UsageError(
        f"no scenario is selected: only what others include, {', '.join(shown[:3])}{more}",
        "name one that includes it; `arena run --list` shows all that can be played",
    )


def of_workspace(root: Path) -> list[Path]:
    """Every scenario file of a workspace."""
    return _inside(root / FOLDER)


def _meant(root: Path, name: str, start: Path) -> Path:
    for path in (Path(start, name), root / FOLDER / name, root / FOLDER / (name + SUFFIX)):
        if path.is_dir() or regularfiles.is_named(path):
            return path
    by_stem = [path for path in of_workspace(root) if _nfc(path.stem) == _nfc(name)]
    if len(by_stem) == 1:
        return by_stem[0]
    reader = Reader(root)
    played = [path for path in of_workspace(root) if not include.is_part(reader.document(path))]
    known = [path.stem for path in played]
    raise UsageError(f"there is no scenario `{name}`", nearest.hint(name, known))


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _inside(folder: Path, suffix: str = SUFFIX) -> list[Path]:
    """The files with that end below a folder; those in `fixtures` are sent or read by scenarios."""
    paths = (
        path.resolve()
        for path in folder.rglob(f"*{suffix}")
        if regularfiles.is_named(path) and FIXTURES not in path.relative_to(folder).parts[:-1]
    )
    return sorted(paths, key=lambda path: path.as_posix())


def by_words(expression: str) -> Callable[[str], bool]:
    """`-k`: whether a text has the words in it: `login and not slow or triage`, case-folded.

    `and` binds nearer than `or`, `not` stands before a word. Raises UsageError.
    """
    choices = [
        [_term(term, expression) for term in _parted(choice, "and")]
        for choice in _parted(expression.casefold().split(), "or")
    ]

    def holds(text: str) -> bool:
        folded = text.casefold()
        return any(all((word in folded) is wanted for word, wanted in terms) for terms in choices)

    return holds


def _parted(words: Sequence[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _term(words: Sequence[str], expression: str) -> tuple[str, bool]:
    negations = 0
    while words[negations : negations + 1] == ["not"]:
        negations += 1
    rest = words[negations:]
    if not rest or "not" in rest:
        raise UsageError(
            f"-k: cannot read {expression!r}", "write words with `and`, `or` and `not` between them"
        )
    return " ".join(rest), negations % 2 == 0
