"""A human's message before it is sent: who says it, to whom, with what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from arena_cli.ground import nearest, text
from arena_cli.ground.errors import UsageError
from arena_cli.ground.protocol import Attachment
from arena_cli.team import mentions
from arena_cli.team.model import Human, Team

# Made without its checks, which would cost more than all the rest of this module.
USER = Human.model_construct(id="user", name="user")


class Outgoing(NamedTuple):
    """A message of a human: `to` are ids that must answer, before those that the text names."""

    content: str
    author: Human = USER
    to: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def outgoing(
    team: Team,
    content: str,
    *,
    author: str | None = None,
    to: Sequence[str] = (),
    files: Sequence[Path] = (),
) -> Outgoing:
    """A message that can be sent to that team. Raises UsageError; nothing is written."""
    if not content.strip() and not files:
        raise UsageError("the message is empty", "Say something, or attach a file.")
    clean, _ = text.clean(content)
    return Outgoing(
        content=clean,
        author=_human_of(team, author),
        to=_agents_of(team, to),
        attachments=tuple(_attached(path) for path in files),
    )


def _human_of(team: Team, name: str | None) -> Human:
    if name is None or name == USER.id:
        return USER
    named = mentions.resolve([name], mentions.roster_of(team), author="", opener=USER.id)
    for human in team.humans:
        if human.id in named.ids:
            return human
    known = [human.id for human in team.humans]
    raise UsageError(
        f"this team has no human called {text.shown_line(name)!r}",
        f"Its humans: {', '.join(known)}." if known else "Name them under `humans:` in its file.",
    )


def _agents_of(team: Team, wanted: Iterable[str]) -> tuple[str, ...]:
    roster = mentions.roster_of(team)
    ids = [member.id for member in team.members]
    found: dict[str, None] = {}
    for name in wanted:
        named = mentions.resolve([name], roster, author="", opener="")
        agents = [one for one in named.ids if one in ids]
        if not agents:
            raise UsageError(
                f"nobody in this team is called {text.shown_line(name)!r}", nearest.hint(name, ids)
            )
        found.update(dict.fromkeys(agents))
    return tuple(found)


def _attached(path: Path) -> Attachment:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: cannot read this attachment: {error.strerror or error}"
        ) from error
    import base64  # noqa: PLC0415 - few messages carry a file
    import mimetypes  # noqa: PLC0415 - the same

    name, _ = text.clean(path.name)
    kind = mimetypes.guess_type(name)[0] or ""
    if kind.startswith("image/"):
        return Attachment(type="image", name=name, data=base64.b64encode(content).decode("ascii"))
    try:
        return Attachment(type="file", name=name, data=content.decode("utf-8"))
    except UnicodeDecodeError:
        return Attachment(type="file", name=name, data=content)
