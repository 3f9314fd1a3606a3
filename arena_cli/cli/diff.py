"""`arena diff`: two sessions, recordings or results, side by side."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from arena_cli import errors
from arena_cli.cli import common, complete
from arena_cli.cli.streams import Screen, Stdout
from arena_cli.errors import UsageError
from arena_cli.reports import lines, results
from arena_cli.reports.diff import compare, model, render
from arena_cli.reports.diff.model import Compared, Difference
from arena_cli.reports.diff.runs import between, drawn, read
from arena_cli.scenarios import select
from arena_cli.scenarios.recording import file as file_module
from arena_cli.scenarios.recording.file import path_of
from arena_cli.session import store
from arena_cli.transcript import reader
from arena_cli.util import files
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.diff.model import Conversation
    from arena_cli.reports.diff.runs import RunDifference
    from arena_cli.reports.lines import Line, Words
    from arena_cli.transcript.events import Event


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
                f"{escape_line(name)} may be a {' or a '.join(one.kind for one in found)}",
                f"say which: {ways}",
            )
        if not found:
            raise UsageError(
                self._nothing(name),
                f"did you mean `{escape_line(near)}`?"
                if (near := errors.find_nearest(name, self._known()))
                else "`arena sessions` lists sessions, `arena run --list` scenarios",
            )
        one = found[0]
        if one.parts and one.kind != "recording":
            raise UsageError(
                f"{escape_line(one.shown)} is a {one.kind}",
                f"what stands behind `{WITHIN}` is a case of a recording",
            )
        return one

    def _nothing(self, name: str) -> str:
        with contextlib.suppress(OSError):  # it is too long for a path
            if name and (common.here() / name).is_dir():
                return f"{escape_line(name)} is a folder that holds no session"
        return f"there is no session, recording or file {escape_line(name)!r}"

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

        with contextlib.suppress(UsageError):  # no name that a session can have
            folder = store.existing(store.sessions_of(root), store.checked(name))
            if folder is not None and (folder / TRANSCRIPT).is_file():
                yield "session", folder / TRANSCRIPT, folder.name

    def _scenario(self, root: Path, name: str) -> Iterator[tuple[Kind, Path, str]]:

        for path in select.of_workspace(root):
            if path.stem == name:
                yield self._recording(path.resolve())

    def _file(self, path: Path, name: str) -> tuple[Kind, Path, str]:
        if path.suffix.casefold() in (".yaml", ".yml"):
            return self._recording(path.resolve())
        if not path.is_file():  # a pipe, which can be read once
            try:
                path = self._kept(io.BytesIO(files.read_input(path)))
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

        path = path_of(scenario)
        shown = self._shown(path)
        if not path.is_file():
            raise _Unrecorded(
                f"{escape_line(self._shown(scenario))} has no recording: {escape_line(shown)}",
                f"record it: `arena run --record {escape_line(scenario.stem)}`",
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
        return escape_line((path.relative_to(here) if inside else path).as_posix())

    def _known(self) -> list[str]:

        if self._root is None:
            return []
        recorded = [one for one in select.of_workspace(self._root) if path_of(one).is_file()]
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
        f"{escape_line(shown)}: is no transcript, no recording, and no result",
        "a result is what `arena run --json` prints; a scenario is named by its file, or its name",
    )


def decoded(data: bytes) -> Any:
    """A JSON document; None where it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Sessions, then scenarios."""
    return [
        *complete.complete_sessions(context, incomplete),
        *complete.complete_scenarios(context, incomplete),
    ]


OneSide = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="A session, a scenario whose recording is meant (`NAME::CASE` for one case of it), or "
        "a file: a transcript, a recording, or what `arena run --json` printed.",
        autocompletion=_names,
        show_default=False,
    ),
]
OtherSide = Annotated[
    str,
    typer.Argument(
        metavar="B", help="What it is compared with.", autocompletion=_names, show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what differs as one JSON document.")]


def diff(context: typer.Context, a: OneSide, b: OtherSide, as_json: AsJson = False) -> None:
    """Compare two sessions, recordings, or results of `arena run`. Exits 1 where they differ."""
    with ExitStack() as opened:
        finder = Finder(context, opened)
        ours, theirs = finder.find(a), finder.find(b)
        difference = _difference(ours, theirs)
    if as_json:
        common.say_json(difference.model_dump(mode="json"))
    else:
        _print(difference)
    if not difference.same:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _difference(ours: Found, theirs: Found) -> Difference | RunDifference:

    kinds = (ours.kind, theirs.kind)
    if kinds == ("result", "result"):
        runs = [read(decoded(one.path.read_bytes()), one.shown) for one in (ours, theirs)]
        return between(ours.compared(), theirs.compared(), *runs)
    if "result" in kinds:
        one, other = (ours, theirs) if ours.kind == "result" else (theirs, ours)
        raise UsageError(
            f"{escape_line(one.shown)} is a result, {escape_line(other.shown)} a {other.kind}",
            "a result holds what was checked, not what was said: compare it with another result",
        )
    single = kinds != ("recording", "recording")
    both = [_conversations(one, single=single) for one in (ours, theirs)]
    return render.between(ours.compared(), theirs.compared(), *both)


def _conversations(found: Found, *, single: bool) -> list[Conversation]:
    """Its conversations; `single`: the one that a session is compared with."""

    if found.kind == "session":
        return [model.of_session(_events(found))]

    # What is wrong with one that was merged by hand is what is looked for.
    recording = file_module.read(found.path, found.shown, strict=False)
    try:
        there = model.of_recording(recording)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{escape_line(found.shown)}: a line is none of a recording: "
            f"{type(error).__name__}: {error}",
            "it was edited by hand: record it anew, `arena run --record NAME`",
        ) from error
    chosen = [one for one in there if _named(one)[: len(found.parts)] == found.parts]
    if not chosen:
        part = escape_line(WITHIN.join(found.parts))
        raise UsageError(f"{escape_line(found.shown)} has no {part}", _which(found, there))
    if single and len(chosen) > 1:
        what = f"{escape_line(found.shown)} holds {len(chosen)} conversations, a session is one"
        raise UsageError(what, _which(found, chosen))
    return chosen


def _events(found: Found) -> Iterator[Event]:

    for one in reader.lines(found.path):
        common.warn_of(Path(found.shown), [one.problem] if one.problem else [])
        yield from one.events


def _named(one: Conversation) -> tuple[str, ...]:
    """Its case, if there are cases, and its session; the main one has no name."""
    return (*([one.case] if one.case is not None else ()), one.session or "")


def _which(found: Found, there: Sequence[Conversation]) -> str:
    ways = []
    for one in there:
        alone = sum(other.case == one.case for other in there) == 1
        parts = _named(one)[:-1] if alone else _named(one)
        ways.append(f"`{escape_line(WITHIN.join((found.given, *parts)))}`")
    return f"say which: {', '.join(ways)}"


def _print(difference: Difference | RunDifference) -> None:

    out, say = Stdout(), lines.here()
    screen = Screen(out, say)
    for line in _lines(difference, say):  # one by one: there may be many, and nobody reads on
        screen.show([line])
        if not out.is_read:
            break
    out.check()


def _lines(difference: Difference | RunDifference, say: Words) -> Iterator[Line]:

    if isinstance(difference, Difference):
        return compare.drawn(difference, say)
    width = shutil.get_terminal_size((results.WIDTH, 0)).columns
    return drawn(difference, say, width=width)
