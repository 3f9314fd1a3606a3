"""Compare two sessions, recordings or results: `arena diff`."""

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
from arena_cli.cli import command_line, common, options, streams
from arena_cli.errors import UsageError
from arena_cli.reports import lines, results
from arena_cli.reports.diff import compare, model
from arena_cli.reports.diff.model import Compared, Difference
from arena_cli.reports.diff.runs import between, draw_run_diff, read
from arena_cli.scenarios import select
from arena_cli.scenarios.recording import file as file_module
from arena_cli.scenarios.recording.file import path_of
from arena_cli.session import store
from arena_cli.transcript import reader
from arena_cli.util import files
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.diff.model import ComparedConversation
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
class DiffSide:
    """A file that is named on the command line, directly or as a session or scenario.

    `path` is the file to read, `shown` its name for the user; `parts` are the case and session of a
    recording, `given` is the name without them.
    """

    kind: Kind
    path: Path
    shown: str
    given: str
    parts: tuple[str, ...] = ()

    def compared(self) -> Compared:
        return Compared(name=WITHIN.join((self.shown, *self.parts)), kind=self.kind)


class Finder:
    """A finder of files by name: a path, a session, or a scenario with a recording."""

    def __init__(self, context: typer.Context, opened: ExitStack) -> None:
        self._context = context
        self._opened = opened
        self._root = self._workspace()

    def find(self, name: str) -> DiffSide:
        """Return the file that `name` refers to. Raises UsageError if there is none, or several."""
        matches = self._meant(name, ())
        if not matches and WITHIN in name:
            base, *inner = name.split(WITHIN)
            matches = self._meant(base, tuple(inner))
            matches = [match for match in matches if match.kind == "recording"] or matches
        if len(matches) > 1:
            ways = ", or ".join(f"`{self._way(match)}`" for match in matches)
            kinds = " or a ".join(match.kind for match in matches)
            raise UsageError(f"{escape_line(name)} may be a {kinds}", f"name one: {ways}")
        if not matches:
            raise self._nothing(name)
        match = matches[0]
        if match.parts and match.kind != "recording":
            raise UsageError(
                f"{escape_line(match.shown)} is a {match.kind}",
                f"the part after `{WITHIN}` names a case of a recording",
            )
        return match

    def _nothing(self, name: str) -> UsageError:
        near = errors.find_nearest(name, self._known())
        hint = "`arena sessions` lists sessions, `arena run --list` scenarios"
        hint = f"did you mean `{escape_line(near)}`?" if near else hint
        problem = f"there is no session, recording or file {escape_line(name)!r}"
        with contextlib.suppress(OSError):  # it is too long for a path
            if name and (common.current_folder() / name).is_dir():
                problem = f"{escape_line(name)} is a folder without a session"
        return UsageError(problem, hint)

    def _workspace(self) -> Path | None:
        """Return the workspace's folder, or None: files can be compared without one, too."""
        try:
            return common.find_root(self._context)
        except UsageError:
            if self._context.obj.workspace is not None:
                raise
            return None

    def _meant(self, name: str, inner: tuple[str, ...]) -> list[DiffSide]:
        """Return all files that the name may refer to, each once."""
        by_path: dict[Path, DiffSide] = {}
        try:
            for kind, path, label in self._candidates(name):
                by_path.setdefault(path.resolve(), DiffSide(kind, path, label, name, inner))
        except _Unrecorded:
            if not by_path:
                raise
        return list(by_path.values())

    def _candidates(self, name: str) -> Iterator[tuple[Kind, Path, str]]:
        if name == STDIN:
            path = self._kept(sys.stdin.buffer)
            yield _kind(path, name), path, name
            return
        with contextlib.suppress(OSError):  # it is too long for a path
            path = common.current_folder() / name
            if (path / TRANSCRIPT).is_file():
                yield "session", path / TRANSCRIPT, name
            elif path.exists() and not path.is_dir():
                yield self._file(path, name)
        if self._root is None:
            return
        with contextlib.suppress(UsageError):  # no name that a session can have
            stored = common.find_existing(self._root, name)
            if stored is not None:
                yield "session", stored.transcript, stored.name
        for path in select.of_workspace(self._root):
            if path.stem == name:
                yield self._recording(path.resolve())

    def _file(self, path: Path, name: str) -> tuple[Kind, Path, str]:
        if path.suffix.casefold() in (".yaml", ".yml"):
            return self._recording(path.resolve())
        if not path.is_file():  # a pipe, which can be read once
            try:
                path = self._kept(io.BytesIO(files.read_input(path)))
            except OSError as error:
                reason = error.strerror or error
                raise UsageError(f"{name}: cannot read this file: {reason}") from error
        return _kind(path, name), path, name

    def _kept(self, source: BinaryIO) -> Path:
        """Return a temporary copy of piped data."""
        import tempfile

        folder = self._opened.enter_context(tempfile.TemporaryDirectory())
        copy = Path(folder) / "piped"
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        return copy

    def _recording(self, scenario: Path) -> tuple[Kind, Path, str]:
        path = path_of(scenario)
        label = self._shown(path)
        if not path.is_file():
            raise _Unrecorded(
                f"{escape_line(self._shown(scenario))} has no recording: {escape_line(label)}",
                f"record it: `arena run --record {escape_line(scenario.stem)}`",
            )
        return "recording", path, label

    def _shown(self, path: Path) -> str:
        root = self._root
        inside = root is not None and path.is_relative_to(root.resolve())
        return (path.relative_to(root.resolve()) if root and inside else path).as_posix()

    def _way(self, match: DiffSide) -> str:
        """Return an unambiguous name of a file."""
        path = match.path.parent if match.kind == "session" else match.path
        here = common.current_folder()
        inside = path.is_relative_to(here)
        return escape_line((path.relative_to(here) if inside else path).as_posix())

    def _known(self) -> list[str]:
        if self._root is None:
            return []
        recorded = [entry for entry in select.of_workspace(self._root) if path_of(entry).is_file()]
        return [
            *(entry.name for entry in store.stored(self._root)),
            *(entry.stem for entry in recorded),
        ]


class _Unrecorded(UsageError):
    """A scenario has no recording."""


def _kind(path: Path, label: str) -> Kind:
    """Return the kind of a file, by its first line. Raises UsageError."""
    try:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except OSError as error:
        raise UsageError(f"{label}: cannot read this file: {error.strerror or error}") from error
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
        f"{escape_line(label)}: not a transcript, a recording or a result",
        "a result is the output of `arena run --json`; name a scenario by its file or its name",
    )


def decoded(data: bytes) -> Any:
    """Parse a JSON document; return None if it is invalid."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names to complete: sessions, then scenarios."""
    return [
        *command_line.complete_sessions(context, incomplete),
        *command_line.complete_scenarios(context, incomplete),
    ]


OneSide = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="Compare this session, scenario (its recording; `NAME::CASE` selects one "
        "case), or a file: a transcript, a recording, or the output of `arena run "
        "--json`.",
        autocompletion=_names,
        show_default=False,
    ),
]
OtherSide = Annotated[
    str,
    typer.Argument(
        metavar="B",
        help="Compare it with this session, scenario or file.",
        autocompletion=_names,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the differences as one JSON document.")]


def diff(
    context: typer.Context,
    a: OneSide,
    b: OtherSide,
    as_json: AsJson = False,
    no_pager: options.NoPager = False,
) -> None:
    """Compare two sessions, recordings, or results of `arena run`. Exits 1 if they differ."""
    with ExitStack() as opened:
        finder = Finder(context, opened)
        ours, theirs = finder.find(a), finder.find(b)
        difference = _difference(ours, theirs)
    if as_json:
        common.print_json(difference.model_dump(mode="json"))
    else:
        pages = context.obj.pager and not no_pager
        streams.show(_lines(difference, lines.user_words()), pages=pages)
    if not difference.same:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def _difference(ours: DiffSide, theirs: DiffSide) -> Difference | RunDifference:
    kinds = (ours.kind, theirs.kind)
    if kinds == ("result", "result"):
        runs = [
            read(decoded(result_side.path.read_bytes()), result_side.shown)
            for result_side in (ours, theirs)
        ]
        return between(ours.compared(), theirs.compared(), *runs)
    if "result" in kinds:
        result_side, other_side = (ours, theirs) if ours.kind == "result" else (theirs, ours)
        raise UsageError(
            f"{escape_line(result_side.shown)} is a result, "
            f"{escape_line(other_side.shown)} a {other_side.kind}",
            "a result contains checks, not messages: compare it with another result",
        )
    single = kinds != ("recording", "recording")
    both = [_conversations(result_side, single=single) for result_side in (ours, theirs)]
    return compare.between(ours.compared(), theirs.compared(), *both)


def _conversations(side: DiffSide, *, single: bool) -> list[ComparedConversation]:
    """Return the conversations of a side; `single`: exactly one, to compare with a session."""
    if side.kind == "session":
        return [model.of_session(_events(side))]

    # What is wrong with one that was merged by hand is what is looked for.
    recording = file_module.read(side.path, side.shown, strict=False)
    try:
        available = model.of_recording(recording)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{escape_line(side.shown)}: not a valid line of a recording: "
            f"{type(error).__name__}: {error}",
            "it was edited by hand: record it again with `arena run --record NAME`",
        ) from error
    chosen = [
        conversation
        for conversation in available
        if _name_parts(conversation)[: len(side.parts)] == side.parts
    ]
    if not chosen:
        label = escape_line(WITHIN.join(side.parts))
        raise UsageError(f"{escape_line(side.shown)} has no {label}", _which(side, available))
    if single and len(chosen) > 1:
        problem = (
            f"{escape_line(side.shown)} contains {len(chosen)} conversations, but a session is one"
        )
        raise UsageError(problem, _which(side, chosen))
    return chosen


def _events(side: DiffSide) -> Iterator[Event]:
    for line in reader.read_lines(side.path):
        common.warn_of_problems(Path(side.shown), [line.problem] if line.problem else [])
        yield from line.events


def _name_parts(conversation: ComparedConversation) -> tuple[str, ...]:
    """Return the case, if there are cases, and the session; the main one has the name ""."""
    return (
        *([conversation.case] if conversation.case is not None else ()),
        conversation.session or "",
    )


def _which(side: DiffSide, available: Sequence[ComparedConversation]) -> str:
    ways = []
    for conversation in available:
        alone = sum(sibling.case == conversation.case for sibling in available) == 1
        inner = _name_parts(conversation)[:-1] if alone else _name_parts(conversation)
        ways.append(f"`{escape_line(WITHIN.join((side.given, *inner)))}`")
    return f"name one: {', '.join(ways)}"


def _lines(difference: Difference | RunDifference, say: Words) -> Iterator[Line]:
    if isinstance(difference, Difference):
        return compare.draw_difference(difference, say)
    width = shutil.get_terminal_size((results.WIDTH, 0)).columns
    return draw_run_diff(difference, say, width=width)
