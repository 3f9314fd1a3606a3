"""A scenario that was read and checked, and what each of its steps sends and expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from arena_cli.ground.errors import Fault, FileFaults, UsageError
from arena_cli.scenario.expect.shapes import Expect
from arena_cli.scenario.load import placeholders
from arena_cli.scenario.load.include import Reader
from arena_cli.scenario.load.notes import GivenNote
from arena_cli.scenario.load.parts import below_all
from arena_cli.scenario.load.shapes import Case, FromFile, ScenarioFile, Step
from arena_cli.session import outgoing
from arena_cli.session.outgoing import Outgoing, PastPart, Planted
from arena_cli.team.model import Member, Team
from arena_cli.team.profiles import Loaded
from arena_cli.team.workspace import Workspace
from arena_cli.yamlio import loader
from arena_cli.yamlio.document import Part, find_holder
from arena_cli.yamlio.nodes import Loc

S = TypeVar("S", bound=BaseModel)
Sent = Outgoing | Planted | None


@dataclass(frozen=True)
class Scenario:
    """A checked scenario, or one case of it.

    `cases` are the ids of all cases of its file, None alone where it has none. `parts` are its file
    and what that includes, the nearest first; `sent` is what each step sends or plants, None for a
    `check` and for a step that waits for something saved; `waiting` are the places of all that
    waits so. `notes` are there, and `past` is planted, first. `profiles` are all that its team
    was made of, those of `workspace`; `judges` go by the name that its checks give them, empty for
    the workspace's own.
    `anywhere`: files that it names may lie outside the workspace. `warnings` are what is suspicious
    in its files, and no fault.
    """

    file: ScenarioFile
    case: Case | None
    cases: tuple[str | None, ...]
    parts: tuple[Part, ...]
    data: Mapping[str, Any]
    path: Path
    root: Path
    team: Team
    workspace: Workspace
    profiles: Mapping[str, Loaded]
    judges: Mapping[str, Member]
    notes: tuple[GivenNote, ...]
    past: tuple[PastPart, ...]
    sent: tuple[Sent, ...]
    waiting: frozenset[Loc]
    anywhere: bool = False
    warnings: tuple[Fault, ...] = ()

    @property
    def title(self) -> str:
        """Its title, with the id of its case."""
        return f"{self.file.scenario} [{self.case.id}]" if self.case else self.file.scenario

    @property
    def shown(self) -> str:
        """The file's path as the user is shown it."""
        return self.parts[0].document.name

    @property
    def skip(self) -> str | None:
        """Why it is not played, if it is not."""
        own = self.case.skip if self.case else None
        return self.file.skip if own is None else own

    @property
    def xfail(self) -> str | None:
        """Why it must fail, if it must."""
        own = self.case.xfail if self.case else None
        return self.file.xfail if own is None else own

    def as_played(self, agent: Member | None) -> Member | None:
        """An agent of the workspace that works for the team's memory, as its profile is here."""
        one = self.profiles.get(agent.id) if agent else None
        if agent is None or one is None:
            return agent
        return agent._replace(profile=one.profile, role_prompt=one.role_prompt)

    def place(self, loc: Loc) -> tuple[str, int]:
        """The file and the line of what stands at `loc`."""
        document = find_holder(self.parts, loc).document
        return document.name, document.line(loc)

    def sent_with(self, index: int, saved: Mapping[str, str]) -> Sent:
        """What a step sends once all that it waits for is saved.

        Raises NotSaved, and UsageError where it cannot be sent.
        """
        keys = {key: value for key, value in self.data["steps"][index].items() if key != "expect"}
        raw = placeholders.with_saved(keys, saved)
        reader = Reader(self.root, anywhere=self.anywhere)
        return sent_of(self._as(Step, raw, ("steps", index)), self.team, self.path, reader)

    def expected(self, loc: Loc, expect: Expect, saved: Mapping[str, str]) -> Expect:
        """What is expected at `loc`, with what was saved filled in.

        Raises NotSaved, and UsageError where it is wrong then.
        """
        if not any(waiting[: len(loc)] == loc for waiting in self.waiting):
            return expect
        raw: Any = self.data
        for key in loc:
            raw = raw[key]
        return self._as(Expect, placeholders.with_saved(raw, saved), loc)

    def _as(self, shape: type[S], raw: Any, loc: Loc) -> S:
        instance, faults = loader.validate_merged(raw, shape, below_all(self.parts, loc))
        if instance is None:
            raise FileFaults(faults)
        return instance


def sent_of(step: Step, team: Team, path: Path, reader: Reader) -> Sent:
    """What a step sends or plants. Raises UsageError."""
    if step.say is not None:
        return outgoing.planted(team, step.say.agent, step.say.text)
    if step.system is not None:
        return outgoing.planted(team, outgoing.SYSTEM, step.system)
    if step.send is None:
        return None
    content = step.send
    if isinstance(content, FromFile):
        content = outgoing.text_of(there(content.file, path, reader))
    files = [there(name, path, reader) for name in step.attach]
    return outgoing.outgoing(team, content, author=step.author, files=files)


def there(name: str, path: Path, reader: Reader) -> Path:
    """The file that the scenario in `path` calls so. Raises UsageError."""
    found = reader.located(name, path)
    if found is None:
        mend = f"paths start from {reader.root}, or from the folder of this file"
        raise UsageError(f"there is no file `{name}`", mend)
    return found
