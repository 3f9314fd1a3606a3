"""Print what a message would do, and do nothing: `arena send --dry-run` and `arena plan`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from arena_cli import errors
from arena_cli.adapters.base import SessionConfig
from arena_cli.cli import common, options, trust
from arena_cli.errors import UsageError
from arena_cli.reports import work_lines
from arena_cli.reports.lines import INDENT, Words, unresolved, user_words
from arena_cli.session import outgoing, store
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.preview import Judged, PlannedCall, Preview, preview_plan, preview_send
from arena_cli.transcript.plan_events import PlanMade
from arena_cli.util.text import escape_line, escape_text
from arena_cli.workspace.models import Member, Team


def print_preview(
    config: SessionConfig, name: str | None, team: Team, message: Outgoing, *, as_json: bool
) -> None:
    """Print what sending the message would do, as text or as JSON."""
    previewed = preview_send(config, name, team, message)
    if as_json:
        common.print_json(_make_document(previewed))
        return
    common.print_lines(_draw_preview(previewed, user_words()))


def _make_document(preview: Preview) -> dict[str, Any]:
    """Return the preview as JSON; tokens are estimates."""
    message = preview.message
    calls = [candidate.asked for candidate in preview.others if candidate.asked]
    return {
        "session": preview.session,
        "new": preview.is_new,
        "busy": preview.busy,
        "team": preview.team,
        "interrupts": preview.interrupts,
        "message": {
            "author": message.author_id,
            "content": message.content,
            "mentions": message.mentions,
            "attachments": [
                attachment.model_dump(include={"type", "name", "size"})
                for attachment in message.attachments
            ],
        },
        "unresolved": preview.unresolved,
        "redacted": preview.redacted,
        "supervisor": preview.supervisor._asdict() if preview.supervisor else None,
        "planner": preview.planner._asdict() if preview.planner else None,
        "must": [candidate._asdict() for candidate in preview.must],
        "deferred": preview.deferred,
        "others": [
            {**candidate._asdict(), "asked": candidate.asked._asdict() if candidate.asked else None}
            for candidate in preview.others
        ],
        "input_tokens": {"must": _sum_tokens(preview.must), "asked": _sum_tokens(calls)},
    }


def _draw_preview(preview: Preview, say: Words) -> Iterator[str]:
    """Yield the preview as text, without line ends."""
    name = escape_line(preview.session or "")
    if preview.is_new:
        session = say("a new session {name}", name=name) if name else say("a new session")
    else:
        session = say("session {name}", name=name)
    team = preview.team and say("team {name}", name=escape_line(preview.team))
    yield say("dry run: no agent is called, nothing is written")
    yield f"{session} · {team or say('every agent')}"
    if preview.busy:
        yield say("it is busy: `arena send` would wait for another arena that writes to it")
    if preview.interrupts:
        yield say(
            "chain {chain} was cut short and would be closed as interrupted",
            chain=preview.interrupts,
        )
    yield ""
    yield from _draw_message(preview, say)
    yield ""
    heading, sum_text = "asked first, and plans the work:", "~{tokens} tokens for its plan"
    if preview.supervisor and not preview.planner:
        heading = "asked first, and decides which agents reply:"
        sum_text = "~{tokens} tokens for its decision"
    if first := preview.planner or preview.supervisor:
        yield say(heading)
        yield _draw_call(first, say)
        yield ""
        yield say(sum_text, tokens=first.input_tokens)
        return
    yield from _draw_must(preview, say)
    yield from _draw_others(preview, say)
    yield ""
    yield from _draw_sums(preview, say)


def _draw_message(preview: Preview, say: Words) -> Iterator[str]:
    message = preview.message
    redacted = f" · {say('redacted')}" if preview.redacted else ""
    yield f"{escape_line(message.author_name)}{redacted}"
    for line in escape_text(message.content).split("\n") if message.content else ():
        yield INDENT + line if line else ""
    for attachment in message.attachments:
        size = say("{count} bytes", count=attachment.size)
        yield f"{INDENT}[{say.enum(attachment.type)}: {escape_line(attachment.name)}, {size}]"
    if preview.unresolved:
        members = {call.agent: call.name for call in preview.must}
        members |= {candidate.agent: candidate.name for candidate in preview.others}
        yield INDENT + unresolved(preview.unresolved, members, say)


def _draw_must(preview: Preview, say: Words) -> Iterator[str]:
    yield say("must reply:") if preview.must else say("no agent must reply")
    for call in preview.must:
        yield _draw_call(call, say)
    if preview.deferred:
        deferred = say(", ").join(escape_line(agent) for agent in preview.deferred)
        yield say("deferred to the next turn: {who}", who=deferred)


def _draw_call(call: PlannedCall, say: Words) -> str:
    return f"{INDENT}{_format_name(call)} · {_describe_context(call, say)}"


def _draw_others(preview: Preview, say: Words) -> Iterator[str]:
    if not preview.others:
        return
    if preview.must:
        yield say("may reply, judged by this message alone (earlier replies may change it):")
    else:
        yield say("may reply, judged by this message alone:")
    for candidate in preview.others:
        decision = say("asked") if candidate.asked else say("passed over")
        columns = [_format_name(candidate), decision, _describe_judgement(candidate, preview, say)]
        if candidate.hits:
            words = say(", ").join(escape_line(word) for word in candidate.hits)
            columns.append(say("found: {words}", words=words))
        yield INDENT + " · ".join(columns)
        if candidate.asked:
            yield INDENT * 2 + _describe_context(candidate.asked, say)


def _describe_judgement(candidate: Judged, preview: Preview, say: Words) -> str:
    relevance, threshold = f"{candidate.relevance:g}", f"{candidate.threshold:g}"
    text = "relevance {relevance}"
    if preview.selection == "relevance":
        text = "relevance {relevance} >= {threshold}"
        if candidate.relevance < candidate.threshold:
            text = "relevance {relevance} < {threshold}"
    measured = say(text, relevance=relevance, threshold=threshold)
    if candidate.asked or candidate.below:
        return measured
    return say("{measured}, {reason}", measured=measured, reason=say(candidate.reason))


def _describe_context(call: PlannedCall, say: Words) -> str:
    """Describe how much of the session the agent is shown."""
    if call.of == 1:
        share = say("{count} of 1 message", count=call.messages)
    else:
        share = say("{count} of {all} messages", count=call.messages, all=call.of)
    left_out = call.of - call.messages
    omitted = say(" ({count} older do not fit its window)", count=left_out) if left_out else ""
    return f"{share}{omitted} · ~{call.input_tokens} tokens"


def _draw_sums(preview: Preview, say: Words) -> Iterator[str]:
    must = _sum_tokens(preview.must)
    may = _sum_tokens([candidate.asked for candidate in preview.others if candidate.asked])
    if not preview.must and not may:
        first = next((candidate.agent for candidate in preview.others), "id")
        text = "To call an agent, mention it in the message: {name}"
        call = say(text, name=f"@{escape_line(first)}")
        yield say("No agent would be called. {call}", call=call)
        return
    total = say("~{tokens} tokens in turn 1", tokens=must + may)
    shares = say(": ~{must} must, ~{may} may", must=must, may=may) if preview.must and may else ""
    yield f"{total}{shares}"


def _sum_tokens(calls: list[PlannedCall]) -> int:
    return sum(call.input_tokens for call in calls)


def _format_name(candidate: PlannedCall | Judged) -> str:
    name, agent = candidate.name, candidate.agent
    return escape_line(f"{name} ({agent})" if name != agent else agent)


Message = Annotated[
    str | None, typer.Argument(help="Plan this message; `-` or none reads standard input.")
]
InSession = Annotated[
    str | None,
    options.session_option(
        help="Plan it as the next message of this session.", rich_help_panel="Conversation"
    ),
]
AsJson = Annotated[bool, options.output_option("--json", help="Print the plan as JSON.")]


def plan(
    context: typer.Context,
    message: Message = None,
    session: InSession = None,
    team: options.OneTeam = None,
    author: options.Author = None,
    file: options.FromFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask the planner of the team how it would do some work. No other agent is called.

    Nothing is written: `arena send --plan` plans again, and carries it out. Exit code 1: the
    answer is no plan that could be carried out.
    """
    loaded = common.load_workspace(context)
    stored = store.find(loaded.root, session) if session is not None else None
    members = common.find_team(loaded, stored, team)
    planner = require_planner(members)
    content = common.read_message(message, file)
    sent = outgoing.outgoing(members, content, author=author)
    common.check_prices(loaded, members, (*members.agents, *loaded.memory_agents))
    config = trust.live_place(loaded, [planner.profile], wait_s=0)
    work = preview_plan(config, stored.name if stored else None, members, sent)
    planned = common.run(work, hint="")
    if as_json:
        left_out = {"seq", "ts", "type", "chain", "metadata", "attempts", "replan", "failed"}
        common.print_json(planned.model_dump(mode="json", exclude=left_out))
    else:
        _print_plan(planned, members)
    if planned.fallback:
        raise typer.Exit(errors.EXIT_NOT_HELD)


def require_planner(team: Team) -> Member:
    """Return the planner of a team. Raises UsageError if it has none."""
    if team.planner is None:
        name = f"team {team.name}" if team.name else "the team of all agents"
        raise UsageError(f"{name} has no planner", "Name one: `planner: AGENT` in its config.")
    return team.planner


def _print_plan(planned: PlanMade, team: Team) -> None:
    say = user_words()
    names = {member.id: member.name for member in team.agents}

    def name(agent: str) -> str:
        return names.get(agent, agent)

    common.print_line(work_lines.render_plan(planned, say, name).text)
    common.print_lines(row.text for row in work_lines.list_plan(planned, say, name))
