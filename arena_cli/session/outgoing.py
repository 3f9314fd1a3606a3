"""Prepare a human's message: author, receivers, files without secrets; redacted, then an event."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from arena_cli import errors
from arena_cli.engine.plan import Keep
from arena_cli.errors import UsageError
from arena_cli.protocol import Attachment, AuthorType, Message, MessageKind, StructuredContent
from arena_cli.transcript import log, queries
from arena_cli.transcript.conversation import quote_message
from arena_cli.transcript.events import Event, MessageEvent
from arena_cli.transcript.log import Journal
from arena_cli.transcript.revisions import NO_REVISIONS
from arena_cli.util.files import read_regular
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import clean_text, cut_text, escape_line, lazy_pattern
from arena_cli.workspace.mentions import Roster, build_roster, parse_mentions, resolve_mentions
from arena_cli.workspace.models import Human, Team

# Made without its checks, which would cost more than all the rest of this module.
USER = Human.model_construct(id="user", name="user")

SYSTEM = "system"


class Outgoing(NamedTuple):
    """A message of a human: `to` are ids that must answer, before those that the text names.

    `inputs` are those of the agents that it calls; the message keeps them. The same `key` opens no
    second chain in a session. `reply_to` is the id of the message that it answers, `quoted` as in
    `Message`. With `plan`, the team's planner plans the chain. `thread` is the task in whose thread
    it is, `shown_to` are the agents in it (`session.task_messages`).
    """

    content: str
    author: Human = USER
    to: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    inputs: Mapping[str, Any] = MappingProxyType({})
    key: str = ""
    kind: MessageKind = "chat"
    reply_to: str | None = None
    quoted: str = ""
    plan: bool = False
    work: Mapping[str, Any] = MappingProxyType({})
    thread: str = ""
    shown_to: tuple[str, ...] = ()


class Planted(NamedTuple):
    """A message that is put into a session as if by its author; no agent is called.

    If `mentions` is None, they are those of its text; if `kind` is None, it is that of its author.
    An attachment without content is reported as missing.
    """

    author_id: str
    author_name: str
    author_type: AuthorType
    content: str
    mentions: tuple[str, ...] | None = None
    kind: MessageKind | None = None
    attachments: tuple[Attachment, ...] = ()
    structured: tuple[StructuredContent, ...] = ()


class PlantedSummary(NamedTuple):
    """A summary of the first `messages` messages of a past; tokens are estimates."""

    messages: int
    by: str
    text: str
    tokens_before: int
    tokens_after: int
    corrected: tuple[str, ...] = ()


PastPart = Planted | PlantedSummary


def planted(team: Team, author: str, content: str) -> Planted:
    """Return a planted message of a member, a human, or the system, by id. Raises UsageError."""
    if not content.strip():
        raise UsageError("the message is empty", "Write a message.")
    clean, _ = clean_text(content)
    if author == SYSTEM:
        return Planted(SYSTEM, SYSTEM, "system", clean)
    member = team.member(author)
    if member is not None:
        return Planted(member.id, member.name, "agent", clean)
    humans = [USER, *team.humans]
    for human in humans:
        if human.id == author:
            return Planted(human.id, human.name or human.id, "human", clean)
    ids = [*(member.id for member in team.members), *(human.id for human in humans), SYSTEM]
    raise UsageError(
        f"no member of this team has the id {escape_line(author)!r}",
        errors.suggest_nearest(author, ids),
    )


def outgoing(
    team: Team,
    content: str,
    *,
    author: str | None = None,
    to: Sequence[str] = (),
    files: Sequence[Path] = (),
    read: Callable[[Path], bytes] = read_regular,
    key: str | None = None,
) -> Outgoing:
    """Return a message that can be sent to that team; write nothing. Raises UsageError.

    `read` returns the content of each of `files`.
    """
    if not content.strip() and not files:
        raise UsageError("the message is empty", "Write a message, or attach a file.")
    if key is not None:
        _check_key(key)
    clean, _ = clean_text(content)
    return Outgoing(
        content=clean,
        author=find_human(team, author),
        to=_agents_of(team, to),
        attachments=tuple(_attached(path, read) for path in files),
        key=key or "",
    )


def resolve_reply(sent: Outgoing, journal: Journal) -> Outgoing:
    """Return the message with the beginning of the one that it answers. Raises UsageError."""
    if sent.reply_to is None:
        return sent
    revisions = journal.fold.revisions or NO_REVISIONS
    message = queries.message(journal.log.path, sent.reply_to)
    if message is None or revisions.is_skipped(message.seq):
        raise UsageError(
            f"session {escape_line(journal.log.path.parent.name)} has no message "
            f"{escape_line(sent.reply_to)}",
            "`arena show SESSION --json` has the ids of messages.",
        )
    if message.thread and message.thread != sent.thread:
        raise UsageError(
            f"message {message.id} is in the thread of task {message.thread}",
            f"Answer it there: `--thread {message.thread}`.",
        )
    return sent._replace(quoted=quote_message(revisions.correct_message(message)))


LONGEST_KEY = 200


def _check_key(key: str) -> None:
    if not key.strip() or len(key) > LONGEST_KEY or not key.isprintable():
        raise UsageError(
            f"the key {escape_line(key[:LONGEST_KEY])!r} cannot be used",
            f"Use 1 to {LONGEST_KEY} printable characters.",
        )


def find_unknown_names(sent: Outgoing, team: Team) -> tuple[str, ...]:
    """Return the names with `@` in a message that no member of the team has."""
    by = sent.author.id
    return parse_mentions(sent.content, build_roster(team), author=by, opener=by).unresolved


def redacted(sent: Outgoing, redactor: Redactor) -> Outgoing:
    """Return the message as it may be shown and stored."""
    attachments = tuple(redactor.attachment(attachment) for attachment in sent.attachments)
    inputs = redactor.value(dict(sent.inputs)) if sent.inputs else sent.inputs
    return sent._replace(
        content=redactor.text(sent.content),
        attachments=attachments,
        inputs=inputs,
        key=redactor.text(sent.key),
    )


def open_chain(sent: Outgoing, journal: Journal, *, roster: Roster, keep: Keep) -> MessageEvent:
    """Write a redacted message that opens the next chain; `keep` as in `Room`."""
    author, stamp = sent.author, journal.stamp()
    mentioned = parse_mentions(sent.content, roster, author=author.id, opener=author.id)
    return journal.write(
        MessageEvent,
        stamp=stamp,
        chain=journal.fold.chain + 1,
        key=sent.key,
        message=Message(
            id=stamp.message_id,
            author_id=author.id,
            author_name=author.name or author.id,
            author_type="human",
            content=sent.content,
            mentions=list(dict.fromkeys((*sent.to, *mentioned.ids))),
            attachments=keep(sent.attachments, stamp.message_id),
            timestamp=stamp.ts,
            kind=sent.kind,
            reply_to=sent.reply_to,
            quoted=sent.quoted,
            shown_to=list(sent.shown_to),
            thread=sent.thread,
            metadata=_make_metadata(sent),
        ),
        unresolved=list(mentioned.unresolved),
    )


def _make_metadata(sent: Outgoing) -> dict[str, Any]:
    """Return what a message asks for in addition to its text."""
    parts = (("inputs", sent.inputs), ("work", sent.work))
    metadata: dict[str, Any] = {name: dict(fields) for name, fields in parts if fields}
    return {**metadata, "plan": True} if sent.plan else metadata


def find_repeated(sent: Outgoing, journal: Journal, *, roster: Roster) -> list[Event]:
    """Return the events of the chain that a redacted message's key opened; none if it is new.

    Raises UsageError if that message was another one.
    """
    path, revisions = journal.log.path, journal.fold.revisions or NO_REVISIONS
    opening = queries.find_keyed(path, sent.key, revisions)
    if opening is None:
        return []
    assert opening.chain is not None
    earlier, author = opening.message, sent.author.id
    mentioned = parse_mentions(sent.content, roster, author=author, opener=author).ids
    attached = log.planned(
        sent.attachments, earlier.id, session=path.parent, workspace=path.parents[2]
    )
    repeated = earlier.model_copy(
        update={
            "content": sent.content,
            "author_id": author,
            "kind": sent.kind,
            "reply_to": sent.reply_to,
            "mentions": list(dict.fromkeys((*sent.to, *mentioned))),
            "attachments": attached,
            "thread": sent.thread,
        }
    )
    plan = "yes" if sent.plan else ""
    original, new = _list_facts(earlier), {**_list_facts(repeated), "plan": plan}
    if new != original:
        raise UsageError(
            f"key {escape_line(sent.key)} was used in this session for another message: "
            f"{earlier.id} of {earlier.author_id}, {_quote(earlier, original, new)}; "
            f"now: {author}, {_quote(repeated, new, original)}",
            "Use another key, or send the same message.",
        )
    return queries.read_chain(path, opening.chain)


def _list_facts(message: Message) -> dict[str, Any]:
    """Return what makes a message the same as another one."""
    return {
        "content": message.content,
        "author": message.author_id,
        "files": [(file.name, file.sha256) for file in message.attachments],
        "kind": message.kind,
        "reply to": message.reply_to,
        "plan": "yes" if message.metadata.get("plan") else "",
        "thread": message.thread,
        "to": " ".join(message.mentions),
    }


_QUOTED = 200  # characters of a message in an error


def _quote(message: Message, facts: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return a message in one line, with what else distinguishes it from the other one."""
    names = "".join(f" + {escape_line(file.name)}" for file in message.attachments)
    differing = [
        f"{name} {escape_line(value or 'none')}"
        for name, value in facts.items()
        if name not in ("content", "author", "files") and value != other[name]
    ]
    if message.attachments and facts["files"] != other["files"]:
        hashes = ((file.sha256 or "unknown")[:8] for file in message.attachments)
        differing.append(f"files with sha256 {' '.join(hashes)}")
    line = escape_line(cut_text(" ".join(message.content.split()), _QUOTED))
    return f'"{line}"{names}' + (f" ({', '.join(differing)})" if differing else "")


def plant(
    planted: Planted, journal: Journal, *, redactor: Redactor, roster: Roster, keep: Keep
) -> MessageEvent:
    """Write a planted message; `keep` as in `Room`."""
    stamp = journal.stamp()
    content = redactor.text(planted.content)
    mentioned = parse_mentions(content, roster, author=planted.author_id, opener=USER.id)
    attachments = [redactor.attachment(attachment) for attachment in planted.attachments]
    stored = iter(
        keep(
            [attachment for attachment in attachments if attachment.data is not None],
            stamp.message_id,
        )
    )
    own_kind: MessageKind = "system" if planted.author_type == "system" else "chat"
    return journal.write(
        MessageEvent,
        stamp=stamp,
        message=Message(
            id=stamp.message_id,
            author_id=planted.author_id,
            author_name=planted.author_name,
            author_type=planted.author_type,
            content=content,
            mentions=list(mentioned.ids if planted.mentions is None else planted.mentions),
            attachments=[
                attachment if attachment.data is None else next(stored)
                for attachment in attachments
            ],
            structured=[
                attachment.model_copy(update={"data": redactor.value(attachment.data)})
                for attachment in planted.structured
            ],
            timestamp=stamp.ts,
            kind=planted.kind or own_kind,
        ),
        unresolved=list(mentioned.unresolved),
        planted=True,
    )


def read_text_file(path: Path) -> str:
    r"""Return the text of a UTF-8 file to send, without its last line end; lines end in `\n`.

    Raises UsageError.
    """
    try:
        content = read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot read this file: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8", "Save the file as UTF-8.") from error
    return content.replace("\r\n", "\n").removesuffix("\n")


def find_human(team: Team, name: str | None) -> Human:
    """Return the team's human of that name; None is `user`. Raises UsageError."""
    if name is None or name == USER.id:
        return USER
    mentioned = resolve_mentions([name], build_roster(team), author="", opener=USER.id)
    for human in team.humans:
        if human.id in mentioned.ids:
            return human
    ids = [human.id for human in team.humans]
    raise UsageError(
        f"this team has no human called {escape_line(name)!r}",
        f"Its humans: {', '.join(ids)}." if ids else "Name them under `humans:` in its file.",
    )


def _agents_of(team: Team, requested: Iterable[str]) -> tuple[str, ...]:
    roster = build_roster(team)
    ids = [member.id for member in team.members]
    agent_ids: dict[str, None] = {}
    for name in requested:
        mentioned = resolve_mentions([name], roster, author="", opener="")
        agents = [mentioned_id for mentioned_id in mentioned.ids if mentioned_id in ids]
        if not agents:
            raise UsageError(
                f"no member of this team is called {escape_line(name)!r}",
                errors.suggest_nearest(name, ids),
            )
        agent_ids.update(dict.fromkeys(agents))
    return tuple(agent_ids)


def _attached(path: Path, read: Callable[[Path], bytes]) -> Attachment:
    try:
        content = read(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot read this attachment: {error.strerror or error}"
        ) from error
    import base64  # noqa: PLC0415 - few messages carry a file
    import mimetypes  # noqa: PLC0415 - the same

    name, _ = clean_text(path.name)
    kind = mimetypes.guess_type(name)[0] or ""
    if kind.startswith("image/"):
        return Attachment(type="image", name=name, data=base64.b64encode(content).decode("ascii"))
    try:
        return Attachment(type="file", name=name, data=content.decode("utf-8"))
    except UnicodeDecodeError:
        return Attachment(type="file", name=name, data=content)


_ENV_FILES = (".env", ".env.*", "*.env", ".envrc")
_KEY_FILES = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"),
    *(".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "credentials"),
    *("credentials.json", "credentials.yaml", "credentials.yml", "credentials.toml"),
)
# What is written to be read by all: `.env.example`.
_EXAMPLES = ("*.example", "*.sample", "*.template", "*.dist")
_PRIVATE_KEY = lazy_pattern(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|^PuTTY-User-Key-File")
_LOOKED_AT = 1 << 20  # bytes of a file


def refuse_secret_files(paths: Iterable[Path], option: str) -> None:
    """Raise UsageError for the first of the files that seems to hold secrets."""
    for path in paths:
        reason = _secret_reason(path)
        if reason:
            raise UsageError(
                f"{option} {escape_line(str(path))}: {reason}; every agent that is "
                "called would read it",
                "`--force` sends it anyway",
            )


def _secret_reason(path: Path) -> str:
    for name in (path.name, Path(os.path.realpath(path)).name):
        if reason := reason_of_name(name):
            return reason
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            holds_key = _PRIVATE_KEY.search(file.read(_LOOKED_AT)) is not None
    except OSError:
        return ""  # whoever reads it reports that
    return "it contains a private key" if holds_key else ""


def reason_of_name(name: str) -> str:
    """Return why a file of that name is assumed to hold secrets; empty if it is not."""
    name = name.casefold()
    if _is_any(name, _EXAMPLES):
        return ""
    if _is_any(name, _ENV_FILES):
        return "this is a file of environment variables"
    return "this is a file of keys or passwords" if _is_any(name, _KEY_FILES) else ""


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
