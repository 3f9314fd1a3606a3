"""Define the shapes of a scenario file, and the scenario that is built from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from arena_cli.errors import Fault, FileFaults, UsageError
from arena_cli.protocol import MessageKind
from arena_cli.scenarios import variables
from arena_cli.scenarios.expect import text_checks
from arena_cli.scenarios.expect.model import Expect
from arena_cli.scenarios.expect.values import AgentId, ByAgent, Pattern, Reaction, TaskId
from arena_cli.scenarios.task_steps import TaskStep, WorkStep
from arena_cli.scenarios.variables import Reader
from arena_cli.session import outgoing
from arena_cli.session.outgoing import Outgoing, PastPart, Planted
from arena_cli.workspace.agents import LoadedProfile
from arena_cli.workspace.models import Human, Member, Team, TeamConfig
from arena_cli.workspace.workspace import Workspace
from arena_cli.yamlio import loader
from arena_cli.yamlio.loader import Fragment, find_holder
from arena_cli.yamlio.nodes import Loc
from arena_cli.yamlio.shapes import FileShape, read_keys, refer_to

if TYPE_CHECKING:
    from arena_cli.scenarios.given import GivenNote

StepKind = Literal[
    "send",
    "say",
    "system",
    "check",
    "approve",
    "reject",
    "choose",
    "resume",
    "react",
    "flow",
    "task",
    "work",
]
KINDS: tuple[StepKind, ...] = get_args(StepKind)

CONTINUING = frozenset({"approve", "reject", "choose", "resume"})
"""The kinds of steps that continue the open chain of their session."""

OPENING = frozenset({"send", "work"})
"""The kinds of steps that open a chain."""

RUNNING = CONTINUING | OPENING
"""The kinds of steps that run a chain."""

_ONLY_RUNNING = ("from", "save", "expect", "steer", "pause", "after")
_NAME = re.compile(r"\w[\w-]*")


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name is made of letters, digits, `_` and `-`")
    return name


_NO_EXPECT = Expect()


def _reason(text: str) -> str:
    if text.strip().casefold() in {"", "no", "off", "false", "n", "yes", "on", "true", "y"}:
        raise ValueError("write why, in words, or leave the key out")
    return text


class _AsTeamConfig:
    """The JSON schema of keys that are checked as a team's rules once the team has them."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(refer_to(TeamConfig.__pydantic_core_schema__))


def _finds_something(pattern: str) -> str:
    try:
        is_empty = text_checks.matches_empty(pattern)
    except UsageError as error:
        raise ValueError(error.what) from error
    if is_empty:
        raise ValueError("it matches the empty text, which is everywhere; write what varies")
    swallowed, sentences = text_checks.count_swallowed(pattern)
    if swallowed == sentences:
        raise ValueError("it matches every text, so no change would be seen; write what varies")
    return pattern


Name = Annotated[str, AfterValidator(_name)]
Reason = Annotated[str, AfterValidator(_reason)]


class FromFile(FileShape):
    """`{file: path}`: a text that is read from a file of its own."""

    file: str


class Saved(FileShape):
    """The text kept of a step: from that agent's last reply, the first group of `regex`, or all."""

    agent: AgentId = Field(alias="from")
    regex: Pattern | None = None


class SaidMessage(FileShape):
    """A message of a peer that is planted: no agent is called."""

    agent: AgentId
    text: str = Field(min_length=1)


class DecidedRequest(FileShape):
    """The open request of an agent that a person approves or rejects: the oldest of that action."""

    agent: AgentId
    action: str = ""
    because: str = ""


class ChosenOption(FileShape):
    """The option that a person chooses, in the open request of an agent that has it."""

    agent: AgentId
    option: str
    because: str = ""


class Reacted(FileShape):
    """A person's reaction to a message: that of an id, or the last one that `agent` wrote."""

    message: str = ""
    agent: str = ""
    emoji: Reaction

    @model_validator(mode="after")
    def _is_to_one(self) -> Reacted:
        if bool(self.message) == bool(self.agent):
            raise ValueError("`react` needs one of message and agent: to which message it is")
        return self


class AfterReply(FileShape):
    """The agent's reply after which a person steers or pauses the chain: its n-th in the step."""

    agent: AgentId
    reply: int = Field(default=1, ge=1)


class PlayedFlow(FileShape):
    """A flow that a step runs: its file, and the values of its inputs."""

    file: str
    inputs: dict[str, Any] = {}


class Step(FileShape):
    """A step of a scenario.

    It is a human's message (`send`) with its expectations, a planted message (`say`, `system`),
    expectations over all steps so far (`check`), what continues a chain that waits: a decision
    (`approve`, `reject`, `choose`) or `resume`; a `flow` from a file; what a person does to a
    `task`, or the team's `work` on tasks. While a chain runs, a person may `steer` or `pause` it:
    before any agent is called, or `after` a reply. A `key` that was used before in its session
    calls no agent: the step is judged by the earlier chain. A message may answer another one
    (`reply_to`), or a person may `react` to it: by its id, or the last one of its author.
    With `plan`, the team's planner plans the chain. With `thread`, only the agents in the thread of
    that task are shown it.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]})

    not_built: ClassVar[frozenset[str]] = read_keys(
        "agent container each feedback group http id inputs max needs on_failure output "
        "parallel priority python reflect repeat retries shell simulate sql timeout_s until "
        "when"
    )

    step: str = ""
    send: str | FromFile | None = None
    say: SaidMessage | None = None
    system: str | None = Field(default=None, min_length=1)
    check: Expect | None = None
    approve: DecidedRequest | None = None
    reject: DecidedRequest | None = None
    choose: ChosenOption | None = None
    resume: Literal[True] | None = None
    react: Reacted | None = None
    flow: Annotated[str, Field(min_length=1)] | PlayedFlow | None = None
    task: TaskStep | None = None
    work: Literal[True] | WorkStep | None = None
    steer: Annotated[str, Field(pattern=r"\S")] | None = None
    pause: bool = False
    after: AfterReply | None = None
    session: Name | None = None
    attach: list[str] = Field(default_factory=list)
    key: str | None = None
    reply_to: Annotated[str, Field(min_length=1)] | None = None
    thread: TaskId | None = None
    message_kind: MessageKind = Field(default="chat", alias="kind")
    plan: bool = False
    author: str | None = Field(default=None, alias="from")
    save: dict[Name, Saved] = Field(default_factory=dict)
    on_fail: Literal["stop", "continue"] = "stop"
    expect: Expect = Field(default_factory=lambda: _NO_EXPECT)

    @property
    def played_flow(self) -> PlayedFlow | None:
        """The flow that it runs."""
        return PlayedFlow(file=self.flow) if isinstance(self.flow, str) else self.flow

    @property
    def kind(self) -> StepKind:
        """The kind of the step."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @model_validator(mode="after")
    def _is_one(self) -> Step:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if not kinds:
            raise ValueError(
                "a step needs one of send, say, system, check, approve, reject, choose, resume, "
                "react, flow, task, work"
            )
        if len(kinds) > 1:
            both = " and ".join(f"`{kind}`" for kind in kinds)
            raise ValueError(f"{both} are two steps; write each as a step of its own")
        if self.after is not None and self.steer is None and not self.pause:
            raise ValueError("`after` requires `steer` or `pause`: it says when")
        self._check_keys(kinds[0])
        return self

    def _check_keys(self, kind: str) -> None:
        """Raise ValueError if a key does not belong to this kind of step."""
        names = {"author": "from", "message_kind": "kind"}
        keys = {names.get(key, key) for key in self.model_fields_set}
        for key in ("attach", "key", "reply_to", "kind", "thread", "plan"):
            if kind != "send" and key in keys:
                raise ValueError(f"`{key}` goes with `send` only, not with `{kind}`")
        if self.thread is not None and self.plan:
            raise ValueError(
                "`plan` and `thread`: a message in the thread of a task is not planned"
            )
        allowed = {"flow": ("expect",), "react": ("from",), "task": ("from", "expect")}.get(
            kind, ()
        )
        wrong = [f"`{key}`" for key in _ONLY_RUNNING if key in keys and key not in allowed]
        if wrong and kind not in RUNNING:
            raise ValueError(
                f"{', '.join(wrong)} goes with a step that runs a chain, not with `{kind}`"
            )


class Fill(FileShape):
    """A number of neutral messages; the same `seed` gives the same ones."""

    messages: int = Field(ge=1, le=100_000)
    seed: int = 0


class Given(FileShape):
    """The past that a scenario starts from.

    It is `fill`, then the messages of a session up to event `until` (`transcript`), then
    `messages` (author: text); and the files of `notes`.
    """

    messages: list[Annotated[dict[str, str], Field(min_length=1, max_length=1)]] = []
    fill: Fill | None = None
    transcript: str | None = None
    until: int | None = Field(default=None, ge=1)
    notes: list[str] = []

    @model_validator(mode="after")
    def _until_an_event_of_something(self) -> Given:
        if self.until is not None and self.transcript is None:
            raise ValueError("`until` requires `transcript`: it is the last event to use")
        return self


class Ignored(FileShape):
    """A part of a prompt that varies from run to run, such as a date."""

    regex: Annotated[Pattern, AfterValidator(_finds_something)]


class Case(FileShape):
    """A scenario of its own, with values for `${vars.x}`."""

    id: str = Field(min_length=1)
    vars: dict[Name, Any] = Field(default_factory=dict)
    skip: Reason | None = None
    xfail: Reason | None = None


class TeamPart(FileShape):
    """The team: its name, or a list of agents, with changes to its rules, humans and profiles."""

    checked_as: ClassVar[dict[str, type[FileShape]]] = {"config": TeamConfig}

    team: str | None = None
    agents: list[AgentId] | None = None
    humans: list[Human] | None = None
    config: Annotated[dict[str, Any], _AsTeamConfig()] = Field(default_factory=dict)
    profiles: ByAgent[dict[str, Any]] = Field(default_factory=dict)


class ScriptedTool(FileShape):
    """A tool that takes the place of the agents' tool of that name.

    It gives `returns`, a text or JSON, or fails with `error`, after `delay_s` seconds. The items of
    a list are given one after the other, the last one from then on. `schema` is the JSON Schema of
    its arguments; without it, it takes any.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["returns"]}, {"required": ["error"]}]}
    )

    returns: Any = None
    error: Annotated[str, Field(pattern=r"\S")] | None = None
    delay_s: float = Field(default=0, ge=0)
    description: str = ""
    schema_: dict[str, Any] = Field(default={}, alias="schema")

    @model_validator(mode="after")
    def _is_one(self) -> ScriptedTool:
        if ("returns" in self.model_fields_set) == (self.error is not None):
            raise ValueError("a scripted tool needs one of `returns` and `error`")
        if self.returns == []:
            raise ValueError("`returns` is an empty list; for an empty result write `[[]]`")
        return self


class Frame(FileShape):
    """The keys that are read first: the files that a scenario is assembled from."""

    include: str | list[str] = Field(default_factory=list)
    vars: dict[Name, Any] = Field(default_factory=dict)
    cases: list[Case] = Field(default_factory=list, min_length=1)


class ScenarioFile(TeamPart, Frame):
    """`scenarios/<name>.yaml`.

    `strict_context`: a server that reads only a part of a prompt fails the scenario. `tools` take
    the place of tools of its agents, by name.
    """

    not_built: ClassVar[frozenset[str]] = read_keys(
        "alpha baseline beta errors exclude inputs limits matrix max_minutes max_reflections "
        "max_repeat max_usd mcp pass_rate reflect repeat until_sure workdir"
    )

    scenario: str
    tags: list[str] = Field(default_factory=list)
    skip: Reason | None = None
    xfail: Reason | None = None
    ignore: list[Ignored] = []
    strict_context: bool = False
    tools: dict[str, ScriptedTool] = {}
    given: Given = Field(default_factory=lambda: _NO_PAST)
    steps: list[Step] = Field(min_length=1)
    expect: Expect = Field(default_factory=lambda: _NO_EXPECT)


_NO_PAST: Given = Given()

T = TypeVar("T")


def below(fragment: Fragment, loc: Loc) -> Fragment:
    """Return the fragment at `loc` of a fragment."""
    return Fragment(fragment.document, (*fragment.loc, *loc))


def below_all(fragments: Sequence[Fragment], loc: Loc) -> list[Fragment]:
    """Return the fragments at `loc` of several."""
    return [below(fragment, loc) for fragment in fragments]


def try_making(
    make: Callable[[], T], fragments: Sequence[Fragment], loc: Loc, faults: list[Fault]
) -> T | None:
    """Return the result of `make`, or None and the error, at `loc` if it has no place."""
    try:
        return make()
    except FileFaults as error:
        faults += error.faults
    except UsageError as error:
        holder = find_holder(fragments, loc)
        faults.append(holder.fault(loc, error.what, error.mend))
    return None


S = TypeVar("S", bound=BaseModel)
Sent = Outgoing | Planted | None


@dataclass(frozen=True)
class Scenario:
    """A checked scenario, or one case of it.

    `cases` are the ids of all cases of its file, None alone if it has none. `parts` are its file
    and the files that it includes, the nearest first. `sent` is the message that each step sends or
    plants, None for a `check` and for a step that waits for a saved value; `waiting` are the places
    of all values that wait for one. `notes` exist before the first step, and `past` is planted
    first. `profiles` are all that its team was made of, those of `workspace`; `judges` are by the
    name that its checks give them, empty for the workspace's own. `anywhere`: files that it names
    may be outside the workspace. `warnings` are suspicious parts of its files that are no errors.
    `flows` are the loaded flows (`flows.loader.Flow`) by the index of their step.
    """

    file: ScenarioFile
    case: Case | None
    cases: tuple[str | None, ...]
    parts: tuple[Fragment, ...]
    data: Mapping[str, Any]
    path: Path
    root: Path
    team: Team
    workspace: Workspace
    profiles: Mapping[str, LoadedProfile]
    judges: Mapping[str, Member]
    notes: tuple[GivenNote, ...]
    past: tuple[PastPart, ...]
    sent: tuple[Sent, ...]
    waiting: frozenset[Loc]
    anywhere: bool = False
    warnings: tuple[Fault, ...] = ()
    flows: Mapping[int, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its title, with the id of its case."""
        return f"{self.file.scenario} [{self.case.id}]" if self.case else self.file.scenario

    @property
    def shown(self) -> str:
        """The file's path as shown to the user."""
        return self.parts[0].document.name

    @property
    def skip(self) -> str | None:
        """The reason it is not played, if it is not."""
        case_reason = self.case.skip if self.case else None
        return self.file.skip if case_reason is None else case_reason

    @property
    def xfail(self) -> str | None:
        """The reason it must fail, if it must."""
        case_reason = self.case.xfail if self.case else None
        return self.file.xfail if case_reason is None else case_reason

    def as_played(self, agent: Member | None) -> Member | None:
        """Return an agent that works for the team's memory, with its profile in this scenario."""
        loaded = self.profiles.get(agent.id) if agent else None
        if agent is None or loaded is None:
            return agent
        return replace(agent, profile=loaded.profile, role_prompt=loaded.role_prompt)

    def place(self, loc: Loc) -> tuple[str, int]:
        """Return the file and the line of the key at `loc`."""
        document = find_holder(self.parts, loc).document
        return document.name, document.line(loc)

    def sent_with(self, index: int, saved: Mapping[str, str]) -> Sent:
        """Return the message of a step once all texts that it uses are saved.

        Raises NotSaved, and UsageError if it cannot be sent.
        """
        reader = Reader(self.root, anywhere=self.anywhere)
        return sent_of(self.step_with(index, saved), self.team, self.path, reader)

    def step_with(self, index: int, saved: Mapping[str, str]) -> Step:
        """Return a step without its expectations, with all texts that it uses.

        Raises NotSaved, and UsageError if it is invalid then.
        """
        keys = {key: value for key, value in self.data["steps"][index].items() if key != "expect"}
        return self._as(Step, variables.with_saved(keys, saved), ("steps", index))

    def expected(self, loc: Loc, expect: Expect, saved: Mapping[str, str]) -> Expect:
        """Return the expectations at `loc`, with the saved texts filled in.

        Raises NotSaved, and UsageError if they are invalid then.
        """
        if not any(waiting[: len(loc)] == loc for waiting in self.waiting):
            return expect
        raw: Any = self.data
        for key in loc:
            raw = raw[key]
        return self._as(Expect, variables.with_saved(raw, saved), loc)

    def _as(self, shape: type[S], raw: Any, loc: Loc) -> S:
        instance, faults = loader.validate_merged(raw, shape, below_all(self.parts, loc))
        if instance is None:
            raise FileFaults(faults)
        return instance


def sent_of(step: Step, team: Team, path: Path, reader: Reader) -> Sent:
    """Return the message that a step sends or plants. Raises UsageError."""
    if step.say is not None:
        return outgoing.planted(team, step.say.agent, step.say.text)
    if step.system is not None:
        return outgoing.planted(team, outgoing.SYSTEM, step.system)
    if step.send is None:
        return None
    content = step.send
    if isinstance(content, FromFile):
        content = outgoing.read_text_file(reader.locate(content.file, path))
    files = [reader.locate(name, path) for name in step.attach]
    if step.plan and team.planner is None:
        raise UsageError("the team has no planner", "Name one: `planner: AGENT` in its config.")
    sent = outgoing.outgoing(team, content, author=step.author, files=files, key=step.key)
    sent = sent._replace(kind=step.message_kind, reply_to=step.reply_to, plan=step.plan)
    return sent._replace(thread=step.thread or "")
