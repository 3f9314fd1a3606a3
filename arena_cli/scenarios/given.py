"""The past of a scenario (`given`): the conversation of a session, messages, and notes."""

from __future__ import annotations

import hashlib
import random
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from arena_cli.errors import DiskRefused, Fault, UsageError
from arena_cli.notes import markdown
from arena_cli.notes.listing import SUFFIX
from arena_cli.notes.model import Note
from arena_cli.protocol import Attachment, Message, parse_seq
from arena_cli.scenarios.model import Given, try_making
from arena_cli.scenarios.variables import Reader
from arena_cli.session import outgoing
from arena_cli.session.outgoing import USER, PastPart, Planted, PlantedSummary
from arena_cli.transcript.events import VERSION, Compacted, Event, SessionEvent
from arena_cli.transcript.reader import parsed, read_lines, tail
from arena_cli.transcript.revisions import list_visible
from arena_cli.transcript.state import Fold
from arena_cli.util import files, text
from arena_cli.workspace.models import Language, Team
from arena_cli.yamlio.loader import Fragment, find_holder

_GIVEN = "given ("
_MEND = "expected a session's transcript; `arena path SESSION` prints its path"


class Unread(NamedTuple):
    """A line that cannot be read; `after` is the number of the last event before it."""

    line: int
    what: str
    after: int


class Past(NamedTuple):
    """A transcript as read: its events in order, and each line that could not be read."""

    path: Path
    events: tuple[Event, ...]
    unread: tuple[Unread, ...]


def read_past(path: Path, until: int | None = None) -> Past:
    """Read a transcript as far as that event.

    Raises UsageError if it is none, or one of a later arena.
    """
    try:
        past = _read_events(path, until)
    except OSError as error:
        raise UsageError(f"cannot read {path.name}: {error.strerror or error}") from error
    versions = [event.version for event in past.events if isinstance(event, SessionEvent)]
    if not versions:
        content = files.read_regular(path)
        is_empty = b"\n" not in content and not content.strip()
        problem = "is empty" if is_empty else "is not a transcript of a session"
        raise UsageError(f"{path.name} {problem}", _MEND)
    if max(versions) > VERSION:
        raise UsageError(
            f"{path.name} is of version {max(versions)}; this arena reads version {VERSION}",
            "a newer arena wrote it: update this one",
        )
    return past


def _read_events(path: Path, until: int | None) -> Past:
    events: list[Event] = []
    unread: list[Unread] = []
    number = last = 0
    for number, line in enumerate(read_lines(path), 1):
        if line.problem and not line.problem.is_mended:
            unread.append(Unread(number, line.problem.what, last))
        events += line.events
        last = max([last, *(event.seq for event in line.events)])
        if until is not None and last >= until:
            return Past(path, tuple(events), tuple(unread))
    unread_tail = tail(path)[0]
    if unread_tail.strip():  # an editor may have taken the last line end
        parsed_events, problem = parsed(unread_tail)
        events += parsed_events
        unread += [Unread(number + 1, problem, last)] if problem and not parsed_events else []
    return Past(path, tuple(events), tuple(unread))


def upto(past: Past, seq: int | None) -> list[Event]:
    """Return its events up to and including that number; all if it is None.

    Raises UsageError if it has no event of that number, or if a line before it cannot be read: its
    text would be missing in the inputs of agents.
    """
    last = max(event.seq for event in past.events)
    if seq is not None and seq > last:
        raise UsageError(f"{past.path.name} has no event {seq}: its last is {last}")
    unread = [line for line in past.unread if seq is None or line.after < seq]
    if unread:
        suffix = f" (and {len(unread) - 1} more such lines)" if len(unread) > 1 else ""
        raise UsageError(
            f"{past.path.name}:{unread[0].line} cannot be read: {unread[0].what}{suffix}",
            "remove the line, or copy the transcript again from its session",
        )
    events = [event for event in past.events if seq is None or event.seq <= seq]
    return list_visible(events)  # a rewind after that event does not count


def messages(events: Iterable[Event]) -> list[Message]:
    """Return the messages of these events, in the order in which agents see them.

    Of a phase that is not over, these are the answers so far.
    """
    messages: list[Message] = []
    fold = Fold(messages.append)
    for event in events:
        fold.apply(event)
    if fold.open and fold.open.turns:
        message_ids = {message.id for message in messages}
        ended = [done.message for done in fold.open.turns[-1].successes()]
        messages += [reply for reply in ended if reply is not None and reply.id not in message_ids]
    return messages


def planted(past: Past, until: int | None, root: Path) -> list[PastPart]:
    """Return its messages for another session of the workspace `root`, and the last summary.

    The summary keeps its position, so the next one is made after the same number of further
    messages.

    An attachment keeps its content if that still exists: next to the transcript, as in a session's
    folder, or at its original path. Raises UsageError.
    """
    events = upto(past, until)
    history = messages(events)
    if not history:
        scope = "" if until is None else f" up to event {until}"
        raise UsageError(f"no message in {past.path.name}{scope}")
    past_parts: list[PastPart] = [
        Planted(
            author_id=message.author_id,
            author_name=message.author_name,
            author_type=message.author_type,
            content=message.content,
            mentions=tuple(message.mentions),
            kind=message.kind,
            attachments=tuple(
                with_content(attachment, message.id, (past.path.parent, root))
                for attachment in message.attachments
            ),
            structured=tuple(message.structured),
        )
        for message in history
    ]
    last = summary(events)
    count = sum(message.seq <= parse_seq(last.upto) for message in history) if last else 0
    if last and count:
        index = sum(message.seq < last.seq for message in history)
        past_parts.insert(index, _planted_summary(last, count))
    return past_parts


def summary(events: Iterable[Event]) -> Compacted | None:
    """Return the last valid summary; None if there is none."""
    held = [event for event in events if isinstance(event, Compacted) and not event.rolled_back]
    return held[-1] if held else None


def _planted_summary(event: Compacted, messages: int) -> PlantedSummary:
    by = event.by if event.by.startswith(_GIVEN) else f"{_GIVEN}{event.by})"
    sizes = event.tokens_before, event.tokens_after
    return PlantedSummary(messages, by, event.summary, *sizes, tuple(event.corrected))


def with_content(attachment: Attachment, message_id: str, folders: Sequence[Path]) -> Attachment:
    """Return an attachment of a transcript with its content; without a path if that is missing.

    The content is read from the first of `folders` as `attachments/<message id>/<file>`, from the
    others by its path. Raises UsageError if it differs from the attached content.
    """
    beside, *other_folders = folders
    name = PurePosixPath(attachment.path or "").name
    places = [(beside, PurePosixPath("attachments", message_id, name))]
    places += [(folder, PurePosixPath(attachment.path or "")) for folder in other_folders]
    for folder, relative in places:
        path = (folder / relative).resolve()
        # A transcript may have come from anywhere: what it names is no way out of the folder.
        if not name or not path.is_relative_to(folder.resolve()) or not path.is_file():
            continue
        content = files.read_regular(path)
        if attachment.sha256 and hashlib.sha256(content).hexdigest() != attachment.sha256:
            label = text.escape_line(attachment.name)
            raise UsageError(
                f"{path}: differs from the file attached to {message_id} as {label}",
                "restore the file, or delete it: agents are then told that it is missing",
            )
        return attachment.model_copy(
            update={"data": data_of(attachment.type, content), "path": None}
        )
    return attachment.model_copy(update={"data": None, "path": None})


def data_of(kind: str, content: bytes) -> str | bytes:
    """Return the content of an attachment in its input form (see `Attachment.data`)."""
    if kind == "image":
        import base64  # noqa: PLC0415 - few messages carry a picture

        return base64.b64encode(content).decode("ascii")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content


class GivenNote(NamedTuple):
    """A note's file: its name, and its text without the message that it came from."""

    name: str
    text: str

    @property
    def note(self) -> Note:
        """The note that it becomes."""
        stem = self.name.removesuffix(SUFFIX)
        return markdown.parse(self.text, id=stem, file=self.name)

    def put(self, folder: Path) -> None:
        """Write it to a session's notes. Raises DiskRefused."""
        path = folder / self.name
        try:
            files.make_own_folder(folder, below=folder.parents[2])
            files.replace_file(path, self.text.encode("utf-8"), is_own=True)
        except OSError as error:
            raise DiskRefused(f"{path}: could not write: {error.strerror or error}") from error


class Pasts:
    """Makes the pasts of one file's cases; those that start from one event are read once."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self._path = path
        self._reader = reader
        self._read: dict[tuple[str, int | None], tuple[list[PastPart], list[Fault]]] = {}

    def of(
        self, past_keys: Given, team: Team, fragments: Sequence[Fragment], faults: list[Fault]
    ) -> list[PastPart]:
        """Return the messages to plant: those of a transcript, then those of the file itself."""
        past_parts: list[PastPart] = []
        if past_keys.transcript is not None:
            key = (past_keys.transcript, past_keys.until)
            if key not in self._read:
                self._read[key] = self._said(*key, fragments)
            past_parts += self._read[key][0]
            faults += self._read[key][1]
        for index, message in enumerate(past_keys.messages):
            author, content = next(iter(message.items()))
            make = partial(outgoing.planted, team, author, content)
            past_part = try_making(make, fragments, ("given", "messages", index), faults)
            past_parts += [past_part] if past_part is not None else []
        return past_parts

    def _said(
        self, name: str, until: int | None, fragments: Sequence[Fragment]
    ) -> tuple[list[PastPart], list[Fault]]:
        faults: list[Fault] = []
        loc = ("given", "transcript")
        read = try_making(
            lambda: read_past(self._reader.locate(name, self._path), until),
            fragments,
            loc,
            faults,
        )
        if read is None:
            return [], faults
        until_loc = loc if until is None else ("given", "until")
        parts = try_making(
            lambda: planted(read, until, self._reader.root), fragments, until_loc, faults
        )
        return parts or [], faults

    def load_notes(
        self, names: Sequence[str], fragments: Sequence[Fragment], faults: list[Fault]
    ) -> tuple[GivenNote, ...]:
        """Return the notes in these files; append their errors to the last argument."""
        notes: dict[str, GivenNote] = {}
        for index, name in enumerate(names):
            loc = ("given", "notes", index)
            note = try_making(partial(self._read_note, name), fragments, loc, faults)
            if note is None:
                continue
            folded = unicodedata.normalize("NFC", note.name).casefold()
            if folded in notes:
                problem = f"two notes are named `{note.name}`: names must be unique in a session"
                holder = find_holder(fragments, loc)
                faults.append(holder.fault(loc, problem, "rename one of the files"))
            notes.setdefault(folded, note)
        return tuple(notes.values())

    def _read_note(self, name: str) -> GivenNote:
        """Return the note in that file. Raises UsageError, and FileFaults of the note's file."""
        path = self._reader.locate(name, self._path)
        if path.suffix != SUFFIX or text.make_safe_name(path.name) != path.name:
            raise UsageError(
                f"`{path.name}` is not the name of a note", f"such as decision-auth{SUFFIX}"
            )
        label = self._reader.shown(path)
        try:
            content = markdown.decoded(files.read_regular(path), label)
        except OSError as error:
            raise UsageError(f"cannot read {label}: {error.strerror or error}") from error
        if markdown.parse(content, id=path.stem, file=label).source is not None:
            # That message is of another session.
            content = markdown.changed(content, source=None)
        return GivenNote(path.name, content)


_SENTENCES: dict[Language, tuple[str, ...]] = {
    "en": (
        "Noted, nothing new here since point {n}.",
        "Point {n} stands as it was.",
        "I read it again; number {n} is fine with me.",
        "Nothing to add to {n} today.",
        "We talked about {n} before, no change.",
        "Let us come back to {n} another day.",
    ),
    "zh": (
        "收到，第 {n} 点之后没有新的内容。",
        "第 {n} 点保持不变。",
        "又看了一遍，第 {n} 条没有意见。",
        "今天对 {n} 没有补充。",
        "{n} 之前谈过，没有变化。",
        "{n} 改天再说。",
    ),
}


def make_filler(count: int, seed: int, team: Team, language: Language) -> Iterator[Planted]:
    """Yield `count` messages by the human and the members in turn, the same for the same seed."""
    chance = random.Random(seed)
    sentences = _SENTENCES[language]
    authors = cycle(
        [
            (USER.id, USER.name, "human"),
            *((member.id, member.name, "agent") for member in team.members),
        ]
    )
    for (author_id, name, author_type), _ in zip(authors, range(count), strict=False):
        sentence = sentences[int(chance.random() * len(sentences))]
        number = 1 + int(chance.random() * 99)
        yield Planted(author_id, name, author_type, sentence.format(n=number))  # type: ignore[arg-type]  # as listed above
