"""Select scenario files, and scenarios in them."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli import errors
from arena_cli.errors import UsageError
from arena_cli.scenarios import variables
from arena_cli.scenarios.variables import Reader
from arena_cli.util import files as files_module
from arena_cli.util.text import escape_line

FOLDER = "scenarios"
FIXTURES = "fixtures"
SUFFIX = ".yaml"
SUFFIXES = (SUFFIX, ".yml")
"""In upper or lower case."""


class Selected(NamedTuple):
    """Scenario files in the order of selection; `named` are those that were named one by one.

    `folders` are those that were searched. `outside` are links in them that lead out of the
    workspace, and are not followed. `chosen` are files outside the workspace that the user named
    there, not by a link in it.
    """

    paths: tuple[Path, ...]
    named: frozenset[Path] = frozenset()
    folders: tuple[Path, ...] = ()
    outside: tuple[Path, ...] = ()
    chosen: frozenset[Path] = frozenset()


def select(root: Path, names: Sequence[str], start: Path, *, anywhere: bool = False) -> Selected:
    """Return the selected scenario files: all of the workspace's, or those that are named.

    Each of `names` is a file, a folder, or the name of a file in `scenarios/`; paths are relative
    to `start`. Raises UsageError if one does not exist, or if none is left.
    """
    if not names:
        everywhere = everything(root, anywhere=anywhere)
        if not everywhere.paths:
            raise _nothing_in(str(root / FOLDER), everywhere.outside)
        return everywhere
    unique_paths: dict[Path, None] = {}
    named_paths: set[Path] = set()
    chosen: set[Path] = set()
    folders: list[Path] = []
    outside: list[Path] = []
    for name in names:
        path = _resolve_name(root, name, start)
        if path == Path(start, name) and not _leads_through(path, root):
            chosen |= _lying_in(path, root)
        if path.is_dir():
            paths, links = _inside(path, root, anywhere=anywhere)
            if not paths:
                raise _nothing_in(name, links)
            unique_paths.update(dict.fromkeys(paths))
            folders.append(path)
            outside += links
        else:
            named_paths.add(path.resolve())
            unique_paths[path.resolve()] = None
    return Selected(
        tuple(unique_paths),
        frozenset(named_paths),
        tuple(folders),
        tuple(outside),
        frozenset(chosen),
    )


def _leads_through(path: Path, root: Path) -> bool:
    """Return True if a part of a path that a user named is in the workspace."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - with its links as they are
    return any(
        files_module.is_inside(parent, root) for parent in (*absolute.parents, absolute.resolve())
    )


def run_name(relative: str) -> str:
    """Return the name of a scenario file for `arena run`: its path below `scenarios/`."""
    inside = relative.removeprefix(f"{FOLDER}/")
    return shlex.quote(escape_line(relative if inside == relative else stem(inside)))


def _lying_in(path: Path, root: Path) -> set[Path]:
    """Return a file, or the files below a folder, without those outside it that links lead to."""
    if not path.is_dir():
        return {path.resolve()}
    return {
        path_inside
        for path_inside in _inside(path, root)[0]
        if files_module.is_inside(path_inside, path)
    }


def everything(root: Path, *, anywhere: bool = False) -> Selected:
    """Return every scenario of a workspace, with `anywhere` also behind links; may be empty."""
    paths, outside = _inside(root / FOLDER, root, anywhere=anywhere)
    return Selected(tuple(paths), folders=(root / FOLDER,), outside=tuple(outside))


def _nothing_in(scope: str, outside: Sequence[Path]) -> UsageError:
    hint = f"{outside[0]} leads out of the workspace; allow it: --allow-outside" if outside else ""
    return UsageError(f"no scenario is selected: no *{SUFFIX} in {scope}", hint)


def only_parts(selected: Selected, root: Path) -> UsageError:
    """Return the error for a selection that has only files that others include."""
    names = shorten_list([Reader(root).shown(path) for path in selected.paths])
    return UsageError(
        f"no scenario is selected: only what others include, {names}",
        "name one that includes it; `arena run --list` shows all that can be played",
    )


def shorten_list(names: Sequence[str]) -> str:
    """Return the first three names, and the number of the others."""
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{suffix}"


def of_workspace(root: Path) -> list[Path]:
    """Return every scenario file of a workspace."""
    return list(everything(root).paths)


def _resolve_name(root: Path, name: str, start: Path) -> Path:
    inside = root / FOLDER
    for path in (Path(start, name), inside / name, *(inside / (name + end) for end in SUFFIXES)):
        if path.is_dir() or files_module.is_file_or_refused(path):
            return path
    by_stem = [path for path in of_workspace(root) if _nfc(path.stem) == _nfc(name)]
    if len(by_stem) == 1:
        return by_stem[0]
    reader = Reader(root)
    played = [path for path in of_workspace(root) if not variables.is_part(reader.document(path))]
    stems = [path.stem for path in played]
    raise UsageError(f"there is no scenario `{name}`", errors.suggest_nearest(name, stems))


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def stem(path: str) -> str:
    """Return the path of a scenario's file without its suffix."""
    end = next((end for end in SUFFIXES if path.casefold().endswith(end)), "")
    return path.removesuffix(path[len(path) - len(end) :]) if end else path


def _inside(folder: Path, root: Path, *, anywhere: bool = False) -> tuple[list[Path], list[Path]]:
    """Return the scenario files below a folder, sorted, and the links that lead out of `root`.

    Files in `fixtures` are sent or read by scenarios. Links are followed, each folder once;
    with `anywhere` out of `root` too.
    """
    paths: set[Path] = set()
    outside: list[Path] = []
    seen = {folder.resolve()}
    real_root = root.resolve()
    is_inside = not anywhere and folder.resolve().is_relative_to(real_root)
    for directory, folders, files in os.walk(folder, followlinks=True):
        subfolders = []
        for name in sorted(folders):
            target = Path(directory, name).resolve()
            if (
                name == FIXTURES
                or target in seen
                or Path(directory).resolve().is_relative_to(target)
            ):
                continue
            if is_inside and not target.is_relative_to(real_root):
                outside.append(Path(directory, name))
                continue
            seen.add(target)
            subfolders.append(name)
        folders[:] = subfolders
        for name in files:
            path = Path(directory, name)
            if not name.casefold().endswith(SUFFIXES) or not files_module.is_file_or_refused(path):
                continue
            target = path.resolve()
            if is_inside and not target.is_relative_to(real_root):
                outside.append(path)
            else:
                paths.add(target)
    return sorted(paths, key=lambda path: path.as_posix()), sorted(outside)


def by_words(expression: str) -> Callable[[str], bool]:
    """Return a test for `-k`: whether a text has the words, as `login and not slow or triage`.

    Case is ignored. `and` binds tighter than `or`; `not` precedes a word. Raises UsageError.
    """
    choices = [
        [_term(term.split(), expression) for term in _split(choice, "and")]
        for choice in _split(expression.casefold(), "or")
    ]

    def holds(text: str) -> bool:
        folded = text.casefold()
        return any(
            all((word in folded) is is_wanted for word, is_wanted in terms) for terms in choices
        )

    return holds


def _split(text: str, word: str) -> list[str]:
    return re.split(rf"(?<!\S){word}(?!\S)", text)


def _term(words: Sequence[str], expression: str) -> tuple[str, bool]:
    negations = 0
    while words[negations : negations + 1] == ["not"]:
        negations += 1
    remaining = words[negations:]
    if not remaining or "not" in remaining:
        raise UsageError(
            f"-k: cannot read {expression!r}", "write words with `and`, `or` and `not` between them"
        )
    return " ".join(remaining), negations % 2 == 0
