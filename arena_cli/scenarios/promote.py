"""Make a scenario and its recording from a session, and play it once.

The scenario expects the routing and the ends that the session had. Its recording has the session's
answers, and the input that today's files give each agent. If these files call other agents, the
scenario fails at once and reports what changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from arena_cli.adapters.base import SessionConfig
from arena_cli.errors import UsageError
from arena_cli.scenarios import loader, select
from arena_cli.scenarios.promoted_file import (
    Piece,
    SessionPart,
    Writer,
    select_part,
)
from arena_cli.scenarios.promoted_recording import Taper
from arena_cli.scenarios.recording import file
from arena_cli.scenarios.recording.store import RecordingStore
from arena_cli.scenarios.result import ScenarioResult
from arena_cli.scenarios.runner import Runner
from arena_cli.scenarios.select import Selected
from arena_cli.scenarios.variables import Reader
from arena_cli.session.outgoing import USER
from arena_cli.session.session import make_redactor
from arena_cli.session.store import Stored
from arena_cli.transcript.conversation import Conversation, read_conversation
from arena_cli.transcript.events import MessageEvent, ReplyFinished
from arena_cli.util.redaction import Redactor
from arena_cli.util.text import escape_line, make_safe_name
from arena_cli.workspace.models import Human, Team
from arena_cli.workspace.workspace import AGENTS_FOLDER, Workspace
from arena_cli.yamlio.loader import Fragment, wrap_data

Matter = Literal["must", "asked", "mentions", "turns", "end"]


class Parting(NamedTuple):
    """The first difference from the session: its step, and the turn of its chain, both from 1.

    `matter` names the difference: the agents that must reply, the agents asked, the mentions of
    `agent`, the number of turns, or the chain's end. The result of a call is the session's own.
    """

    step: int
    turn: int
    matter: Matter
    agent: str | None
    before: str
    after: str


def find_parting(pieces: Sequence[Piece], result: ScenarioResult) -> Parting | None:
    """Return the first difference, in the first step that has one; None if there is none."""
    for number, (piece, step) in enumerate(zip(pieces, result.steps, strict=True), 1):
        if not piece.chain or step.status == "not_run":
            continue
        later = read_conversation([*step.before, *step.events])
        for parting in _partings(number, piece, later):
            return parting
    return None


def _partings(step: int, piece: Piece, conversation: Conversation) -> Iterator[Parting]:
    turns = list(read_conversation(piece.upto).turns)
    later_turns = list(conversation.turns)
    for number, (then, turn) in enumerate(zip(turns, later_turns, strict=False), 1):
        if then.must != turn.must:
            yield Parting(step, number, "must", None, ", ".join(then.must), ", ".join(turn.must))
        if then.asked != turn.asked:
            yield Parting(step, number, "asked", None, ", ".join(then.asked), ", ".join(turn.asked))
        for done, later_done in zip(then.results(), turn.results(), strict=False):
            if done.message and later_done.message:
                before = ", ".join(done.message.mentions)
                after = ", ".join(later_done.message.mentions)
                if before != after:
                    yield Parting(step, number, "mentions", done.agent, before, after)
    last = max(1, min(len(turns), len(later_turns)))
    if len(turns) != len(later_turns):
        yield Parting(step, last, "turns", None, str(len(turns)), str(len(later_turns)))
    end, later_end = piece.end, _find_end(conversation)
    if end != later_end:
        yield Parting(step, last, "end", None, end, later_end)


def _find_end(conversation: Conversation) -> str:
    """Return the end of the last chain, or the reason why it waits."""
    chain = conversation.chains[-1] if conversation.chains else None
    if chain is None or chain.finished or chain.control is None or chain.control.pause is None:
        return chain.end if chain else ""
    return chain.control.pause.reason


_NOT_IN_A_NAME = re.compile(r"[\s!-,/:-@\[-^`{-~]+")
"""What a shell would take for something else, or want in quotes."""


@dataclass(frozen=True)
class Promoted:
    """The files that were made: their paths as shown, and the result of playing them once.

    `name` is the name for `arena run`. `parting` is the first difference from the session, None if
    there is none. `rules` are the team's rules that have changed: (name, old value, new value).
    """

    scenario: str
    recording: str
    name: str
    result: ScenarioResult
    parting: Parting | None
    rules: list[tuple[str, Any, Any]]


class Promotion:
    """The promotion of a session; all that it needs is checked before it writes a file.

    `path` is the file that the scenario is written to; `force` replaces an existing one. `notes`
    are remarks on unexpected properties of the scenario.
    """

    def __init__(
        self, stored: Stored, until: int | None, path: Path, workspace: Workspace, *, force: bool
    ) -> None:
        """Read the session. Raises UsageError if it cannot be promoted."""
        self._stored = stored
        self._workspace = workspace
        self._path = path
        self._taken = select_part(stored, until)
        playing, self._team = _who_plays(self._taken, workspace)
        _refuse_gone(self._taken, self._team, stored.name)
        self._written = Writer(stored, self._taken, self._team, playing, path, workspace.root)
        self.notes = [*self._taken.notes, *self._written.notes]
        self._refuse_taken(force=force)

    async def make(self, config: SessionConfig, *, sync: bool = False) -> Promoted:
        """Write the scenario and its recording, and play it once; `sync` flushes both to the disk.

        Raises UsageError before anything is written, DiskRefused, and FileFaults if today's files
        do not accept the scenario.
        """
        team, root = self._team, self._workspace.root
        redactor = make_redactor(config, [member.profile for member in team.members])
        taper = Taper(self._stored, self._taken, team, root, redactor)
        lines = taper.lines(self._written.pieces)
        recording = file.path_of(self._path)
        recorded = file.encode_recording(self._written.title, [lines])
        text = self._written.text.encode()
        contents = {**self._written.files, recording: recorded, self._path: text}
        self._refuse_secrets(contents, redactor)
        for path, content in contents.items():
            file.write(path, content, sync=sync)
        itself = frozenset({self._path})
        selected = Selected((self._path,), named=itself, chosen=itself)
        (scenario,) = loader.load(selected, self._workspace)
        scenario_results: list[ScenarioResult] = []
        # Names may be other ones by now, and agents are shown those.
        shelf = RecordingStore([scenario], "update", drift="ignore", sync=sync)
        runner = Runner(
            [scenario], config, scenario_results.append, keep="none", detail=True, shelf=shelf
        )
        await runner.run()
        if scenario_results[0].status != "passed":
            file.write(recording, recorded, sync=sync)
        reader = Reader(root)
        is_known = self._path in select.of_workspace(root) and self._path.stem[0] != "-"
        return Promoted(
            scenario=reader.shown(self._path),
            recording=reader.shown(recording),
            name=self._path.stem if is_known else reader.shown(self._path),
            result=scenario_results[0].model_copy(update={"mode": "replay"}),
            parting=find_parting(self._written.pieces, scenario_results[0]),
            rules=self._changed_rules(),
        )

    def _changed_rules(self) -> list[tuple[str, Any, Any]]:
        old_rules, new_rules = self._taken.session.config, self._team.config.model_dump(mode="json")
        return [
            (key, old_rules[key], new_rules[key])
            for key in new_rules
            if key in old_rules and old_rules[key] != new_rules[key]
        ]

    def _refuse_secrets(self, contents: Mapping[Path, bytes], redactor: Redactor) -> None:
        """Refuse a transcript that holds a value which became a secret after the session."""
        name = escape_line(self._stored.name)
        for path, content in contents.items():
            text = content.decode("utf-8", "ignore")
            if redactor.text(text) != text:
                label = Reader(self._workspace.root).shown(path)
                raise UsageError(
                    f"{label} would contain a secret: session {name} is older than "
                    "the setting that makes it one",
                    "remove it from the session, or promote a part without it: `--until SEQ`",
                )

    def _refuse_taken(self, *, force: bool) -> None:
        """Refuse to replace a file without `force`, and to use the name of another scenario."""
        root = self._workspace.root
        reader = Reader(root)
        is_known = self._path.is_relative_to(root / select.FOLDER)
        for existing in select.of_workspace(root) if is_known else ():
            if existing != self._path and _folded(existing) == _folded(self._path):
                raise UsageError(
                    f"{self._path.stem} is the name of {reader.shown(existing)} too",
                    "a scenario's recording is named after its file: `--to` gives another",
                )
        targets = [self._path, file.path_of(self._path), *self._written.files]
        present = [reader.shown(path) for path in targets if path.exists()]
        if present and not force:
            suffix = f" (and {len(present) - 1} more)" if len(present) > 1 else ""
            raise UsageError(
                f"{present[0]} already exists{suffix}",
                "overwrite it with `--force`, or write elsewhere with `--to FILE`",
            )


def path_for(stored: Stored, to: Path | None, root: Path, start: Path) -> Path:
    """Return the path of the scenario of a session. Raises UsageError."""
    if to is None:
        stem = _NOT_IN_A_NAME.sub("-", stored.name).strip("-.") or "session"
        return root.resolve() / select.FOLDER / make_safe_name(f"{stem}{select.SUFFIX}")
    if to.suffix != select.SUFFIX or not to.stem.strip("."):
        raise UsageError(
            f"--to {escape_line(str(to))}: a scenario's file ends in {select.SUFFIX}",
            f"such as {select.FOLDER}/{stored.name}{select.SUFFIX}",
        )
    path = (start / to).resolve()
    if path.is_relative_to(root.resolve() / AGENTS_FOLDER):
        raise UsageError(
            f"--to {escape_line(str(to))}: a file in {AGENTS_FOLDER}/ is an agent or a team",
            f"such as {select.FOLDER}/{path.name}",
        )
    return path


def _who_plays(selection: SessionPart, workspace: Workspace) -> tuple[dict[str, Any], Team]:
    """Return the keys of the scenario that define its team, and that team.

    A human that is no longer in the team is added. Raises UsageError if the team is gone.
    """
    session = selection.session
    keys: dict[str, Any] = {}
    if session.team is not None:
        keys = {"team": session.team}
        try:
            team = workspace.team(session.team)
        except UsageError as error:
            raise UsageError(f"the session's team is gone: {error.what}", error.mend) from error
    elif workspace.file.team is None:
        team = workspace.team(None)
    else:  # without a key it would be that one
        agents = [member.id for member in session.members]
        keys = {"agents": agents}
        fragment = Fragment(wrap_data(agents, selection.session.session))
        team = workspace.team_of(agents, fragment)
    humans = {human.id: human for human in team.humans}
    for human in _humans(selection):
        humans.setdefault(human.id, human)
    if len(humans) > len(team.humans):
        keys["humans"] = [human.model_dump(exclude_defaults=True) for human in humans.values()]
        team = replace(team, humans=tuple(humans.values()))
    return keys, team


def _humans(selection: SessionPart) -> Iterator[Human]:
    """Yield the humans that spoke, then those that were mentioned, whose names are not known."""
    for piece in selection.pieces:
        message = piece.opening.message
        if message.author_type == "human" and message.author_id != USER.id:
            yield Human(id=message.author_id, name=message.author_name)
    ids = {USER.id, *(member.id for member in selection.session.members)}
    for piece in selection.pieces:
        for event in piece.events:
            if isinstance(event, (MessageEvent, ReplyFinished)) and event.message:
                yield from (
                    Human(id=mention) for mention in event.message.mentions if mention not in ids
                )


def _refuse_gone(selection: SessionPart, team: Team, name: str) -> None:
    called = dict.fromkeys(agent for piece in selection.pieces for agent in piece.called())
    messages = (piece.opening.message for piece in selection.pieces if not piece.chain)
    called |= dict.fromkeys(
        message.author_id for message in messages if message.author_type == "agent"
    )
    gone = [escape_line(agent) for agent in called if team.member(agent) is None]
    if gone:
        raise UsageError(
            f"session {escape_line(name)} has agents that are no longer in the team: "
            f"{', '.join(gone)}",
            "bring them back, or promote a part of the session without them: `--until SEQ`",
        )
    agents = [escape_line(human.id) for human in team.humans if team.member(human.id)]
    if agents:
        raise UsageError(
            f"session {escape_line(name)} has humans that are agents of the team now: "
            f"{', '.join(agents)}",
            "give the agents other ids, or promote a part of the session without these humans: "
            "`--until SEQ`",
        )


def _folded(path: Path) -> str:
    return unicodedata.normalize("NFC", path.stem).casefold()
