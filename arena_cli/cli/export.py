"""Write the conversations of sessions, or their audit, as md, csv or json: `arena export`.

`arena send --attach-audit` attaches the same audit, so that an agent reports from the real record.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from arena_cli import errors
from arena_cli.adapters.http import MOST_TEXT_BYTES
from arena_cli.cli import common, options, streams, trust
from arena_cli.errors import DiskRefused, UsageError
from arena_cli.protocol import Attachment
from arena_cli.reports.approvals import read_requests
from arena_cli.reports.audit import (
    AuditRecord,
    write_json,
    write_json_list,
    write_markdown,
    write_newest,
    write_table,
    write_tables,
)
from arena_cli.reports.lines import user_words
from arena_cli.session import store
from arena_cli.transcript import queries, reader
from arena_cli.transcript.events import parse
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.util import files
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.session.store import Stored
    from arena_cli.transcript.events import Event
    from arena_cli.util.redaction import Redactor


STDOUT = "-"
_CHUNK = 65_536  # characters that are written at once

Sessions = Annotated[
    list[str] | None,
    options.session_argument(
        metavar="SESSION", help="Write these sessions; by default the last one."
    ),
]
EverySession = Annotated[
    bool, typer.Option("--all", help="Write all sessions of the workspace, the oldest first.")
]
Format = Literal["md", "csv", "json"]
Audit = Annotated[
    bool,
    typer.Option(
        "--audit",
        help="Write the audit: for every call its agent, prompt (as a hash), notes, "
        "tokens, cost, latency, status and answer.",
    ),
]
InFormat = Annotated[
    Format | None,
    options.output_option(
        "--format",
        metavar="md|csv|json",
        case_sensitive=False,
        help="Use this format; by default the one that the name of --output ends in, else md.",
    ),
]
Output = Annotated[
    Path | None,
    options.output_option(
        "--output", "-o", metavar="FILE", help="Write to this file instead of stdout."
    ),
]


Parents = Annotated[
    bool, typer.Option("--parents", "-p", help="Create the missing folders of --output.")
]


def export(
    context: typer.Context,
    sessions: Sessions = None,
    all_sessions: EverySession = False,
    audit: Audit = False,
    as_format: InFormat = None,
    output: Output = None,
    parents: Parents = False,
) -> None:
    """Write conversations, or the audit of every call, for people and programs."""
    chosen = as_format or _by_ending(output)
    stored_sessions = _choose_sessions(context, sessions or [], all_sessions=all_sessions)
    redactor = common.make_redactor(context.obj)
    if output is not None and str(output) != STDOUT:
        _check_folder(output, may_make=parents)
    records = (
        _record(stored, audit=audit, redactor=redactor, reports=True) for stored in stored_sessions
    )
    if all_sessions or len(stored_sessions) > 1:
        pieces = _write_several(records, chosen, audit=audit)
    else:
        pieces = _write_one(next(records), chosen)
    if output is None or str(output) == STDOUT:
        streams.print_pieces(_in_chunks(pieces))
        return
    _write(output, pieces, stored_sessions)


def _check_folder(output: Path, *, may_make: bool) -> None:
    """Ask whether a missing folder of the file may be created; a misspelt path may name one.

    Without a terminal, raises UsageError.
    """
    folder = Path(os.path.realpath(output)).parent
    if may_make or folder.exists():
        return
    label = escape_line(str(output.parent))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"--output: there is no folder {label}; nothing was written",
            "Create it, or add --parents (-p).",
        )
    if not trust.agrees(f"There is no folder {label}. Create it?"):
        raise typer.Exit(errors.EXIT_USAGE)


def _choose_sessions(
    context: typer.Context, names: list[str], *, all_sessions: bool
) -> list[Stored]:
    """Return the sessions of these names, each once, in that order. Raises UsageError."""
    if not all_sessions:
        wanted: list[str | None] = [*names] or [None]
        chosen = [common.find_session(context, name, or_archived=True) for name in wanted]
        return list({stored.name: stored for stored in chosen}.values())
    if names:
        raise UsageError(f"--all was given with {escape_line(names[0])}", "Give one of them.")
    stored_sessions = store.stored(common.find_root(context))
    stored_sessions += common.read_archived(context)
    stored_sessions.sort(key=lambda stored: -stored.changed)
    if not stored_sessions:
        raise UsageError("there is no session to export", "Start one: `arena send MESSAGE`.")
    return stored_sessions[::-1]


def _write_several(records: Iterable[AuditRecord], chosen: Format, *, audit: bool) -> Iterator[str]:
    if chosen == "json":
        return write_json_list(records)
    if chosen == "csv":
        return write_tables(records, audit=audit)
    return (piece for record in records for piece in write_markdown(record, user_words()))


def _by_ending(output: Path | None) -> Format:
    ending = output.suffix[1:].casefold() if output else ""
    formats: tuple[Format, ...] = get_args(Format)
    return next((name for name in formats if name == ending), "md")


def _write_one(record: AuditRecord, chosen: Format) -> Iterator[str]:
    if chosen == "md":
        return write_markdown(record, user_words())
    return write_table(record) if chosen == "csv" else write_json(record)


def _record(
    stored: Stored,
    *,
    audit: bool,
    redactor: Redactor | None = None,
    reports: bool = False,
) -> AuditRecord:
    """Return the record of a session, read lazily; current secrets are redacted.

    It `reports` on stderr each line that cannot be read. Only an audit has what a rewind skips, and
    the originals of corrected messages.
    """
    revisions = NO_REVISIONS if audit else reader.read_revisions(stored.transcript)

    def redact(event: Event) -> Event:
        return _redacted(event, redactor) if redactor else event

    def events() -> Iterator[Event]:
        for line in reader.read_lines(stored.transcript):
            if line.problem:
                if reports:
                    common.warn_of_problems(stored.transcript, [line.problem])
                record.unreadable += not line.problem.is_mended
            for event in line.events:
                if revisions.is_skipped(event.seq):
                    continue
                yield redact(revisions.correct(event))

    opening = queries.read_session_event(stored.transcript)
    record = AuditRecord(stored.name, opening, events(), audit=audit)
    if audit:
        record.approvals = list(read_requests(stored.transcript, redact=redact))
    return record


def _redacted(event: Event, redactor: Redactor) -> Event:
    """Return the event without secrets: one that became a secret later is in the transcript."""
    record = event.model_dump(mode="json")
    changed = redactor.value(record)
    if changed == record:
        return event
    try:
        return parse(changed) or event
    except ValueError as error:
        raise UsageError(
            f"event {event.seq} cannot be redacted: {error}",
            "make the `redact` patterns of arena.yaml match less",
        ) from error


def _in_chunks(pieces: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


def _write(path: Path, pieces: Iterable[str], sessions: Iterable[Stored]) -> None:
    """Write a file completely, or leave it unchanged. Raises UsageError and DiskRefused."""
    target = Path(os.path.realpath(path))
    label = escape_line(str(path))
    if target.is_dir():
        raise UsageError(f"--output: {label} is a folder", "Name a file in it.")
    if target.exists() and any(target.samefile(stored.transcript) for stored in sessions):
        raise UsageError(
            f"--output: {label} is the transcript itself", "Name another file; nothing was written."
        )
    is_device = target.exists() and not target.is_file()
    temporary = target if is_device else files.temporary_path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", errors="replace", newline="") as file:
            file.writelines(_in_chunks(pieces))
        if not is_device:
            temporary.replace(target)
            files.remove_leftovers(target.parent, target.name)
    except OSError as error:
        raise DiskRefused(f"{label}: could not write: {error.strerror or error}") from error
    finally:
        if not is_device:
            with contextlib.suppress(OSError):  # what went wrong is told by its first error
                temporary.unlink(missing_ok=True)


def attachment(stored: Stored, most_tokens: int) -> Attachment:
    """Return the audit of a session as a file to attach to a message.

    If it exceeds the largest text that an agent is sent, or `most_tokens` by arena's estimate, it
    contains the newest entries that fit.
    """
    content = write_newest(_record(stored, audit=True), MOST_TEXT_BYTES, most_tokens)
    return Attachment(type="file", name=f"audit-{stored.name}.md", data=content)
