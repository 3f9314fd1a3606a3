"""The checks of a scenario that are no keys of `expect`: saved texts, prompts, scripts."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence

from arena_cli.scenarios.expect import text_checks
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.text_checks import Verdict
from arena_cli.scenarios.model import Saved, Scenario
from arena_cli.scenarios.result import CheckResult
from arena_cli.transcript.events import Event, ReplyFinished
from arena_cli.util.text import cut_text
from arena_cli.yamlio.loader import find_holder
from arena_cli.yamlio.nodes import Loc, format_loc

_SCRIPTED = "scripted"


def save_text(saved: Saved, conversation: CheckContext) -> Verdict:
    """Return the text saved of the agent's last reply, as `actual`."""
    replies = conversation.replies(saved.agent)
    pattern = f" that matches /{saved.regex}/" if saved.regex else ""
    expected = f"a reply of {saved.agent}{pattern}"
    if not replies:
        return Verdict(False, expected, f"no reply: {conversation.outcome(saved.agent)}")
    text = replies[-1].text
    if saved.regex is None:
        return Verdict(True, expected, text)
    match = text_checks.compiled(saved.regex).search(text_checks.form(text))
    if match is None:
        return Verdict(False, expected, f"no match in {text_checks.excerpt(text)}")
    matched = match[1] if match.re.groups else match[0]
    if not matched:
        return Verdict(False, expected, f"nothing is matched in {text_checks.excerpt(text)}")
    return Verdict(True, expected, matched)


def find_unused_replies(
    scenario: Scenario, used: Sequence[Mapping[str, set[int]]]
) -> list[CheckResult]:
    """Return a failed result for each script entry that no session of the scenario used.

    It covers members and judges; `used` has a session's entries (from 0) by agent.
    """
    judges = {member.id: member for member in scenario.judges.values()}
    return [
        _unused(scenario, member.id, index, entry)
        for member in (*scenario.team.agents, *judges.values())
        if member.profile.adapter.get("strict") is True
        and member.profile.adapter["type"] == _SCRIPTED
        for index, entry in enumerate(member.profile.adapter["replies"])
        if not any(index in session.get(member.id, ()) for session in used)
    ]


def _unused(scenario: Scenario, agent: str, index: int, entry: object) -> CheckResult:
    loc: Loc = ("adapter", "replies", index)
    fragments = scenario.profiles[agent].source.fragments
    holder = find_holder(fragments, loc)
    return CheckResult(
        place=lambda: (holder.document.name, holder.document.line((*holder.loc, *loc))),
        field=format_loc((*holder.loc, *loc)),
        status="failed",
        expected=f"the script of {agent} is used up (strict)",
        actual="never used: "
        + cut_text(json.dumps(entry, ensure_ascii=False), text_checks.EXCERPT),
    )


def find_cut_prompts(scenario: Scenario, events: Sequence[Event]) -> list[CheckResult]:
    """Return a failed result for each reply whose prompt its server cut, with the key set."""
    if not scenario.file.strict_context:
        return []
    replies = (event for event in events if isinstance(event, ReplyFinished))
    return [
        CheckResult(
            place=functools.partial(scenario.place, ("strict_context",)),
            field="strict_context",
            status="failed",
            expected=f"the server of {reply.agent} reads the whole prompt",
            actual=str(reply.metadata["prompt_cut"]),
        )
        for reply in replies
        if "prompt_cut" in reply.metadata
    ]
