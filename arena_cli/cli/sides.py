"""What `arena diff` is given: a name or a path, and which session, recording or result it is."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import typer

from arena_cli.cli import common
from arena_cli.ground import nearest, regularfiles
from arena_cli.ground.errors import UsageError
from arena_cli.ground.text import shown_line

if TYPE_CHECKING:
    from arena_cli.report.diffshapes import Compared

Kind = Literal["session", "recording", "result"]

WITHIN = "::"
"""Parts the name of a recording from the case, or session, of it that is meant."""

TRANSCRIPT = "transcript.jsonl"
STDIN = "-"

_LONGEST_FIRST_LINE = 1 << 20


@dataclass(frozen=True)
class Found:
    """What a name stands for. `parts` are a recording's case and session, as they were named.

    `path` is what is read, `shown` what the user knows it as; `given` is the name without `parts`.
    """

    kind: Kind
    path: Path
    shown: str
    given: str
    parts: tuple[str, ...] = ()

    def compared(self) -> Compared:
        from arena_cli.report.diffshapes import Compared

        return Compared(name=WITHIN.join((self.shown, *self.parts)), kind=self.kind)


class Finder:
    """Finds what a name stands for: a path, a session, a scenario with a recording."""

    def __init__(self, context: typer.Context, opened: ExitStack) -> None:
        self._context = context
        self._opened = opened
        self._root = self._workspace()

    def find(self, name: str) -> Found:
        """Raises UsageError where it stands for nothing, or for several things."""
        found = self._meant(name, ())
        if not found and WITHIN in name:
            whole, *parts = name.split(WITHIN)
            found = self._meant(whole, tuple(parts))
            found = [one for one in found if one.kind == "recording"] or found
        if len(found) > 1:
            ways = ", or ".join(f"`{self._way(one)}`" for one in found)
            raise UsageError(
                f"{shown_line(name)} may be a {' or a '.join(one.kind for one in found)}",
                f"say which: {ways}",
            )
        if not found:
            raise UsageError(
                self._nothing(name),
                f"did you mean `{shown_line(near)}`?"
                if (near := nearest.of(name, self._known()))
                else "`arena sessions` lists sessions, `arena run --list` scenarios",
            )
        one = found[0]
        if one.parts and one.kind != "recording":
            raise UsageError(
                f"{shown_line(one.shown)} is a {one.kind}",
                f"what stands behind `{WITHIN}` is a case of a recording",
            )
        return one

    def _nothing(self, name: str) -> str:
        with contextlib.suppress(OSError):  # it is too long for a path
            if name and (common.here() / name).is_dir():
                return f"{shown_line(name)} is a folder that holds no session"
        return f"there is no session, recording or file {shown_line(name)!r}"

    def _workspace(self) -> Path | None:
        """Files are compared without one, too."""
        try:
            return common.root_of(self._context)
        except UsageError:
            if self._context.obj.workspace is not None:
                raise
            return None

    def _meant(self, name: str, parts: tuple[str, ...]) -> list[Found]:
        """All that it may stand for, each once."""
        by_path: dict[Path, Found] = {}
        unrecorded: UsageError | None = None
        try:
            for kind, path, shown in self._candidates(name):
                by_path.setdefault(path.resolve(), Found(kind, path, shown, name, parts))
        except _Unrecorded as error:
            unrecorded = error
        if unrecorded is not None and not by_path:
            raise unrecorded
        return list(by_path.values())

    def _candidates(self, name: str) -> Iterator[tuple[Kind, Path, str]]:
        if name == STDIN:
            path = self._kept(sys.stdin.buffer)
            yield _kind(path, name), path, name
            return
        with contextlib.suppress(OSError):  # it is too long for a path
            path = common.here() / name
            if (path / TRANSCRIPT).is_file():
                yield "session", path / TRANSCRIPT, name
            elif path.exists() and not path.is_dir():
                yield self._file(path, name)
        if self._root is not None:
            yield from self._session(self._root, name)
            yield from self._scenario(self._root, name)

    def _session(self, root: Path, name: str) -> Iterator[tuple[Kind, Path, str]]:
        from arena_cli.session import names, store

        with contextlib.suppress(UsageError):  # no name that a session can have
            folder = names.existing(store.sessions_of(root), names.checked(name))
            if folder is not None and (folder / TRANSCRIPT).is_file():
                yield "session", folder / TRANSCRIPT, folder.name

    def _scenario(self, root: Path, name: str) -> Iterator[tuple[Kind, Path, str]]:
        from arena_cli.scenario.load import select

        for path in select.of_workspace(root):
            if path.stem == name:
                yield self._recording(path.resolve())

    def _file(self, path: Path, name: str) -> tuple[Kind, Path, str]:
        if path.suffix.casefold() in (".yaml", ".yml"):
            return self._recording(path.resolve())
        if not path.is_file():  # a pipe, which can be read once
            try:
                path = self._kept(io.BytesIO(regularfiles.read_input(path)))
            except OSError as error:
                why = error.strerror or error
                raise UsageError(f"{name}: cannot read this file: {why}") from error
        return _kind(path, name), path, name

    def _kept(self, source: BinaryIO) -> Path:
        """A copy of what comes by a pipe."""
        import tempfile

        folder = self._opened.enter_context(tempfile.TemporaryDirectory())
        copy = Path(folder) / "piped"
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        return copy

    def _recording(self, scenario: Path) -> tuple[Kind, Path, str]:
        from arena_cli.scenario.recording import files

        path = files.path_of(scenario)
        shown = self._shown(path)
        if not path.is_file():
            raise _Unrecorded(
                f"{shown_line(self._shown(scenario))} has no recording: {shown_line(shown)}",
                f"record it: `arena run --record {shown_line(scenario.stem)}`",
            )
        return "recording", path, shown

    def _shown(self, path: Path) -> str:
        root = self._root
        inside = root is not None and path.is_relative_to(root.resolve())
        return (path.relative_to(root.resolve()) if root and inside else path).as_posix()

    def _way(self, one: Found) -> str:
        """How to name it so that it is nothing else."""
        path = one.path.parent if one.kind == "session" else one.path
        here = common.here()
        inside = path.is_relative_to(here)
        return shown_line((path.relative_to(here) if inside else path).as_posix())

    def _known(self) -> list[str]:
        from arena_cli.scenario.load import select
        from arena_cli.scenario.recording import files
        from arena_cli.session import store

        if self._root is None:
            return []
        recorded = [one for one in select.of_workspace(self._root) if files.path_of(one).is_file()]
        return [*(one.name for one in store.stored(self._root)), *(one.stem for one in recorded)]


class _Unrecorded(UsageError):
    """A scenario has no recording."""


def _kind(path: Path, shown: str) -> Kind:
    """What a file is, by its first line. Raises UsageError."""
    try:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except OSError as error:
        raise UsageError(f"{shown}: cannot read this file: {error.strerror or error}") from error
    if path.name == TRANSCRIPT:
        return "session"
    record = decoded(first)
    if isinstance(record, dict) and record.get("type") == "recording":
        return "recording"
    if isinstance(record, dict) and "seq" in record and "type" in record:
        return "session"
    document = record if isinstance(record, dict) else decoded(path.read_bytes())
    if isinstance(document, dict) and "scenarios" in document:
        return "result"
    raise UsageError(
        f"{shown_line(shown)}: is no transcript, no recording, and no result",
        "a result is what `arena run --json` prints; a scenario is named by its file, or its name",
    )


def decoded(data: bytes) -> Any:
    """A JSON document; None where it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
