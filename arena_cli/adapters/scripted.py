"""Answer from the profile, so that a team works offline (kind `scripted`)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, NoReturn

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from arena_cli.adapters.base import Adapter, Endpoint, Health, Settings, Setup
from arena_cli.errors import (
    AgentError,
    AgentOverloaded,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
)
from arena_cli.protocol import (
    ASK_AGAIN,
    ASK_AGENT,
    ASK_ANSWER,
    EXCHANGE,
    AgentInput,
    AgentOutput,
    Attachment,
    CallNote,
    Emit,
    Invocation,
    PermissionRequest,
    RefusedAction,
    ShownMessage,
    StatusEvent,
    StructuredContent,
    TextDelta,
    ToolCall,
    Usage,
)
from arena_cli.util.text import fill_template, list_placeholders
from arena_cli.util.user_pattern import UserPattern
from arena_cli.yamlio.nodes import Loc

Failure = Literal["timeout", "error", "overloaded", "refused", "empty"]

_NAMES = ("message", "author", "turn", "result")
_FAILURES: Mapping[Failure, tuple[type[AgentError], str]] = {
    "timeout": (AgentTimeout, "no answer in time"),
    "overloaded": (AgentOverloaded, "overloaded"),
    "refused": (AgentRefused, "refused to answer"),
}
_TEMPLATES = (("say",), ("denied",), ("asked",))


class _ScriptPart(BaseModel):
    """A part of a script, read strictly."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Condition(_ScriptPart):
    """The condition of a rule: all given keys must match.

    `contains` and `regex` are searched in the triggers' texts, joined in order by line ends; `turn`
    is the chain's (from 1), `call` the agent's in the session (from 1); `mentioned_by` is the id of
    an author who mentioned the agent.
    """

    contains: str | None = None
    regex: str | None = None
    invocation: Invocation | None = None
    turn: int | None = Field(default=None, ge=1)
    call: int | None = Field(default=None, ge=1)
    mentioned_by: str | None = None

    @field_validator("regex")
    @classmethod
    def _compiles(cls, regex: str | None) -> str | None:
        try:
            re.compile(regex or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return regex

    def holds(self, input: AgentInput, text: str) -> bool:
        """Return True if the rule fits this call; `text` is the text of its triggers."""
        return (
            (self.contains is None or self.contains in text)
            and (self.regex is None or _compiled(self.regex).search(text) is not None)
            and self.invocation in {None, input.invocation}
            and self.turn in {None, input.turn}
            and self.call in {None, input.call}
            and (self.mentioned_by is None or self.mentioned_by in input.mentioned_by)
        )


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> UserPattern:
    return UserPattern(pattern, where="when.regex")


class ScriptedRequest(_ScriptPart):
    """An act that a scripted agent asks permission for, as a `PermissionRequest`.

    With `options`, its answer asks a person to choose one of them instead.
    """

    action: str = Field(min_length=1)
    detail: str
    arguments: dict[str, Any] = {}
    diff: str = ""
    options: list[Annotated[str, Field(min_length=1)]] = []

    @property
    def permission(self) -> PermissionRequest:
        """The request, whose arguments are at least its detail."""
        return PermissionRequest(
            action=self.action,
            detail=self.detail,
            tool="scripted",
            arguments=self.arguments or {"detail": self.detail},
            diff=self.diff,
        )

    @property
    def choice(self) -> StructuredContent:
        """The choice for a person, as a part of the answer."""
        data = {"action": self.action, "detail": self.detail, "options": self.options}
        return StructuredContent(type="approval_request", data=data)


class ScriptedCall(_ScriptPart):
    """A tool that a scripted agent calls."""

    tool: str = Field(min_length=1)
    arguments: dict[str, Any] = {}


class ScriptedQuestion(_ScriptPart):
    """What a scripted agent asks another one; it waits `wait_s` seconds for the answer."""

    agent: str = Field(min_length=1)
    message: str = Field(min_length=1)
    wait_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    priority: Literal["normal", "high"] = "normal"

    @property
    def block(self) -> str:
        """The question as a block in a text."""
        wait = f" wait={self.wait_s:g}" if self.wait_s else ""
        priority = " priority=high" if self.priority == "high" else ""
        return f"```ask @{self.agent}{wait}{priority}\n{self.message}\n```"

    @property
    def tool_call(self) -> ToolCall:
        """The question as a call of the tool."""
        return ToolCall(tool="ask_agent", arguments=self.model_dump(exclude_defaults=True))


class Rule(_ScriptPart):
    """An answer and its condition: it is used each time `when` holds, or always without one.

    `say` may contain `${message}` (the triggers' text), `${author}` (the name of the last trigger's
    author), `${turn}`, and `${result}` (that of its last call); `$${` is a literal `${`. The answer
    is delayed by `delay_s` seconds. With `fail`, `say` is the text received before the call failed.
    `output` is a complete answer. With a `request`, the agent first asks for permission. Unless it
    is allowed, it says only `denied`, or `asked` if a person was asked; both have the placeholders
    of `say`, and a default. Before it says anything, it makes its `calls`, one after the other;
    those in a list of their own at once. Then it asks what `ask` says: by the tool `ask_agent` if
    it has it, else by a block; an answer that it waits for is its `${result}`.
    """

    when: Condition | None = None
    say: str | None = None
    next_mentions: list[str] = []
    decline: bool = False
    structured: list[StructuredContent] = []
    attachments: list[Attachment] = []
    status_updates: list[StatusEvent] = []
    usage: Usage | None = None
    delay_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    fail: Failure | None = None
    output: AgentOutput | None = None
    request: ScriptedRequest | None = None
    denied: str | None = None
    asked: str | None = None
    calls: list[ScriptedCall | list[ScriptedCall]] = []
    ask: ScriptedQuestion | None = None

    @field_validator("say", "denied", "asked")
    @classmethod
    def _knows_its_placeholders(cls, say: str | None) -> str | None:
        return None if say is None else _checked(say)

    @field_validator("structured", "attachments", "status_updates", "usage", mode="before")
    @classmethod
    def _knows_its_keys(cls, value: Any, info: ValidationInfo) -> Any:
        shapes: dict[str, type[BaseModel]] = {
            "structured": StructuredContent,
            "attachments": Attachment,
            "status_updates": StatusEvent,
            "usage": Usage,
        }
        known = shapes[str(info.field_name)].model_fields
        for part in value if isinstance(value, list) else [value]:
            for key in part if isinstance(part, dict) else ():
                if key not in known:
                    raise ValueError(f"unknown key {key!r}; the keys are {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _has_no_contradiction(self) -> Rule:
        beside = {"say", "next_mentions", "structured", "attachments", "status_updates", "usage"}
        if self.output is not None and self.model_fields_set & (beside | {"decline", "fail"}):
            raise ValueError("output is a complete answer; put everything into it, or remove it")
        if self.fail is not None and self.decline:
            raise ValueError("an agent cannot both fail and decline: remove fail or decline")
        if (self.denied or self.asked) and (self.request is None or self.options):
            raise ValueError("denied and asked answer a request without options")
        return self

    @model_validator(mode="after")
    def _answers(self) -> Rule:
        is_empty = self.say is None and self.fail is None and self.output is None
        parts = (self.structured, self.attachments, self.options, self.calls, self.ask)
        if is_empty and not self.decline and not any(parts):
            raise ValueError("this rule answers nothing: add say, decline, fail or output")
        return self

    @property
    def options(self) -> list[str]:
        """The options of which its answer asks a person to choose one."""
        return self.request.options if self.request else []

    def list_next_calls(self, done: int, *, with_question: bool) -> list[ToolCall] | None:
        """Return the tools to call after `done` steps, last the question; None if none is left."""
        if done < len(self.calls):
            calls = self.calls[done]
            return [
                ToolCall(tool=call.tool, arguments=call.arguments)
                for call in (calls if isinstance(calls, list) else [calls])
            ]
        if self.ask and with_question and done == len(self.calls):
            return [self.ask.tool_call]
        return None


class Once(Rule):
    """A rule written as a plain text; it fits once in a session."""


def _entry(value: Any) -> Any:
    if isinstance(value, str):
        return Once(say=_checked(value))
    if isinstance(value, (dict, Rule)):
        return value
    raise ValueError("a reply is a text (in quotes, if YAML reads it as something else) or a rule")


def _checked(text: str) -> str:
    for name in list_placeholders(text):
        if name not in _NAMES and not name.startswith("env:"):
            known = ", ".join(f"${{{known}}}" for known in _NAMES)
            raise ValueError(f"unknown ${{{name}}}: there are {known}; a literal ${{ is $${{")
    return text


class ScriptedSettings(Settings):
    """The keys of `adapter: {type: scripted, ...}`: texts and rules, tried in this order.

    `strict`: every entry must be used by the end of a scenario.
    """

    model_config = ConfigDict(strict=True)

    looks_only: ClassVar[bool] = True

    replies: list[Annotated[Rule, BeforeValidator(_entry, json_schema_input_type=str | Rule)]]
    strict: bool = False

    @classmethod
    def endpoints(cls, keys: Mapping[str, Any]) -> list[Endpoint]:  # noqa: ARG003 - needs no key
        """Return nothing: a script contacts nothing."""
        return []

    @classmethod
    def is_template(cls, loc: Loc) -> bool:
        """Return True for the texts that have placeholders of their own."""
        return loc[0] == "replies" and (len(loc) == 2 or loc[2:] in _TEMPLATES)


class ScriptedAdapter(Adapter):
    """A scripted agent: it answers with the first entry of `replies` that fits.

    It first emits the index of that entry (from 0) as the note `scripted`.
    """

    settings_type: ClassVar[type[Settings]] = ScriptedSettings

    def __init__(self, setup: Setup) -> None:
        self._agent_id = setup.agent_id
        self._replies: list[Rule] = setup.settings.replies
        self._used = setup.used

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        """Return the scripted answer, or raise the error of `fail`.

        Raises AgentProtocolError if no entry fits.
        """
        text = "\n".join(message.content for message in input.triggers() if not _is_answer(message))
        rounds = sum(message.id == ASK_AGAIN for message in input.messages)
        index = self._fitting(input, text, rounds)
        rule = self._replies[index]
        emit(CallNote({"scripted": index}))
        if rule.delay_s:
            await asyncio.sleep(rule.delay_s)
        done = sum(bool(step.calls) for step in input.steps)
        by_tool = rule.ask is not None and any(spec.name == ASK_AGENT for spec in input.tools)
        calls = rule.list_next_calls(done, with_question=by_tool)
        if calls is not None:
            return AgentOutput(tool_calls=calls, usage=rule.usage)
        refusal = await self._ask(rule, emit)
        if refusal is not None:
            return AgentOutput(content=_filled(refusal, input, text), usage=rule.usage)
        content = _write_content(rule, input, text, with_question=not by_tool and not rounds)
        if rule.fail is not None and rule.fail != "empty":
            if content:
                emit(TextDelta(content))
            self._fail(rule.fail)
        return _make_output(rule, content)

    async def health(self) -> Health:
        """Return True: a script can always be called."""
        return Health(ok=True)

    async def _ask(self, rule: Rule, emit: Emit) -> str | None:
        """Ask for the permission that a rule needs; return what it says if it does not get it."""
        if rule.request is None or rule.options:
            return None
        request = rule.request.permission
        permission = await emit.permit(request)
        if permission.verdict == "allowed":
            return None
        permission_requests = import_module("arena_cli.adapters.permission_requests")
        if permission.verdict == "asked":
            waits: str = permission_requests.WAITS_TEXT
            return waits if rule.asked is None else rule.asked
        by = permission_requests.REFUSED_BY
        emit(RefusedAction(tool=request.action, target=request.detail, by=by))
        return permission_requests.DENIED_TEXT if rule.denied is None else rule.denied

    def _fitting(self, input: AgentInput, text: str, rounds: int) -> int:
        """Return the entry that fits; within a reply, each of `rounds` has used a text."""
        used = self._used()
        for index, rule in enumerate(self._replies):
            if isinstance(rule, Once):
                if index not in used and rounds == 0:
                    return index
                rounds -= index not in used
            elif rule.when is None or rule.when.holds(input, text):
                return index
        excerpt = json.dumps(text.strip().partition("\n")[0][:40], ensure_ascii=False)
        raise AgentProtocolError(
            self._agent_id,
            f"no scripted reply fits call {input.call} (turn {input.turn}, {input.invocation})",
            came="every text is used up, and no rule's `when` matches",
            mend=f'add under `replies:`\n  - {{when: {{contains: {excerpt}}}, say: "..."}}\n'
            '  - {say: "..."}  # for everything else',
        )

    def _fail(self, failure: Failure) -> NoReturn:
        kind, problem = _FAILURES.get(failure, (AgentProtocolError, "an error"))
        raise kind(self._agent_id, f"{problem}, as scripted")


def _is_answer(message: ShownMessage) -> bool:
    """Return True for the answer to a question in the same reply: its entry stays chosen."""
    return message.author_id == EXCHANGE and message.id in (ASK_ANSWER, ASK_AGAIN)


def _write_content(rule: Rule, input: AgentInput, text: str, *, with_question: bool) -> str:
    """Return what a rule says, with its question as a block; only that if it waits for it."""
    content = _filled(rule.say or "", input, text)
    if rule.ask is None or not with_question:
        return content
    block = _filled(rule.ask.block, input, text)
    return block if rule.ask.wait_s else f"{content}\n\n{block}"


def _make_output(rule: Rule, content: str) -> AgentOutput:
    """Return the answer of a rule with that text; without text and parts if it fails."""
    output = rule.output or AgentOutput(
        content="" if rule.fail else content,
        next_mentions=rule.next_mentions,
        should_respond=not rule.decline,
        status_updates=rule.status_updates,
        attachments=[] if rule.fail else rule.attachments,
        structured=[] if rule.fail else rule.structured,
        usage=rule.usage,
    )
    if rule.request is None or not rule.options or rule.fail:
        return output
    return output.model_copy(update={"structured": [*output.structured, rule.request.choice]})


def _filled(say: str, input: AgentInput, text: str) -> str:
    if "${" not in say:
        return say
    last = next(reversed(input.triggers()), None)
    author = (last.author_name or last.author_id) if last else ""
    results = [result.text for step in input.steps for result in step.results]
    results += [
        message.content.partition("\n")[2]
        for message in input.messages
        if message.author_id == EXCHANGE and message.id == ASK_ANSWER
    ]
    values = {
        "message": text,
        "author": author,
        "turn": str(input.turn),
        "result": results[-1] if results else "",
    }
    return fill_template(say, values.get)
