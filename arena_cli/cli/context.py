"""`arena context`: what an agent would be shown now, layer by layer, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_cli.adapters import contacts
from arena_cli.cli import common, complete, trust
from arena_cli.cli.notes import Connect
from arena_cli.cli.sessions import OneSession
from arena_cli.context import render
from arena_cli.reports.lines import here
from arena_cli.session import context_report
from arena_cli.util.text import escape_line, escape_text

if TYPE_CHECKING:
    from arena_cli.reports.lines import Words
    from arena_cli.session.context_report import Explained


Agent = Annotated[
    str,
    typer.Option(
        "--agent", help="The agent that is shown it.", autocompletion=complete.complete_agents
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as one JSON document.")]


def context(
    context: typer.Context,
    agent: Agent,
    session: OneSession = None,
    connect: Connect = False,
    as_json: AsJson = False,
) -> None:
    """Show what an agent would be shown now, layer by layer, with tokens and reasons.

    A server that makes embeddings is asked only with --connect.
    """

    loaded = common.workspace_of(context)
    stored = common.stored_of(context, session)
    team = common.team_of(loaded, stored)
    if connect:
        embedding = loaded.file.memory.embedding
        trust.require(loaded, lambda env: contacts.of((), embedding, dotenv=env))
    place = common.place_of(loaded, wait_s=0, connects=connect)
    explained = context_report.of(place, stored, team, agent)
    if as_json:
        common.say_json(document(explained))
        return
    for line in lines(explained, here()):
        common.say(line)


def document(explained: Explained) -> dict[str, Any]:
    """It as JSON; tokens are estimates, with the `factor` of the agent's model in them."""
    chosen, memory, summary = explained.built.chosen, explained.memory, explained.summary
    selection = chosen.selection
    return {
        "agent": explained.member.id,
        "window_tokens": explained.window,
        "reserved_output_tokens": explained.reserved,
        "input_tokens": explained.built.input_tokens,
        "usage_ratio": round(explained.usage_ratio, 4),
        "factor": explained.factor,
        "head": {"tokens": explained.counted(explained.head_tokens)},
        "summary": summary
        and {
            "shown": chosen.has_summary,
            "by": summary.by,
            "messages": summary.messages,
            "upto": summary.upto,
        },
        "pinned": [
            {"message": one.message.id, "note": one.note.id, "title": one.note.title}
            for one in memory.pinned
        ],
        "pinned_by_title_only": [note.id for note in chosen.titles],
        "messages": {
            "shown": len(selection.messages),
            "of": explained.of,
            "tokens": explained.counted(selection.tokens),
            "ids": [message.id for message in selection.messages],
        },
        "notes": [{"note": one.note.id, "why": one.why} for one in chosen.notes],
        "withheld": [{"note": one.note.id, "why_not": why} for one, why in chosen.withheld],
        "prefer_concise": explained.built.input.prefer_concise,
        "input": explained.built.input.model_dump(mode="json"),
    }


def lines(explained: Explained, say: Words) -> Iterator[str]:
    """It as text: each layer with its tokens and the reason for it, then the input as it reads."""

    yield say(
        "{who} would be shown {tokens} of {room} tokens (a window of {window}, {reserved} of it"
        " for the answer)",
        who=escape_line(explained.member.name),
        tokens=f"~{explained.built.input_tokens:,}",
        room=f"{explained.window - explained.reserved:,}",
        window=f"{explained.window:,}",
        reserved=f"{explained.reserved:,}",
    )
    for name, estimated, why in _layers(explained, say):
        count = f"{explained.counted(estimated):,}"
        yield f"  {say(name)} · {say('~{count} tokens', count=count)} · {why}"
        for sign, note, reason in _below(name, explained, say):
            yield f"    {sign} {escape_line(note)} · {escape_line(reason)}"
    if explained.built.input.prefer_concise:
        yield f"  {say('asked to be concise: its window is filling up')}"
    system, prompt = render.render(explained.built.input)
    for name, text in (("system", system), ("prompt", prompt)):
        yield ""
        yield f"── {say(name)}"
        yield escape_text(text.rstrip())


def _layers(explained: Explained, say: Words) -> Iterator[tuple[str, int, str]]:
    """Each layer's name, its tokens, uncorrected, and why it is in, or out."""
    chosen, memory, summary = explained.built.chosen, explained.memory, explained.summary
    selection = chosen.selection
    why = say("always")
    if explained.head_tokens >= explained.window - explained.reserved:
        why = say("always, though it alone takes more than there is room for")
    yield "role, team and how to read", explained.head_tokens, why
    if summary is None:
        why = say("nothing is summarised yet")
    elif chosen.has_summary:
        why = say(
            "of {count} messages, up to {upto}, by {by}",
            count=summary.messages,
            upto=summary.upto,
            by=summary.by,
        )
    else:
        why = say("left out: it would take more than half of the room")
    yield "summary", chosen.stable_tokens, why
    why = say(
        "{count} pinned by notes: {beside} beside the newest, {titles} by title only",
        count=len(memory.pinned),
        beside=len(chosen.pinned),
        titles=len(chosen.titles),
    )
    yield "messages", selection.tokens, _messages(explained, say)
    yield "of them pinned", explained.pinned_tokens, why
    why = say(
        "{count} of {found} that were found", count=len(chosen.notes), found=len(memory.notes)
    )
    yield "notes", chosen.noted_tokens, why if memory.notes else say("none was found")


def _messages(explained: Explained, say: Words) -> str:
    """Which messages are shown, and what became of the others."""
    chosen, memory = explained.built.chosen, explained.memory
    shown = chosen.selection.messages
    whole = say("{count} of {of} whole", count=len(shown), of=explained.of)
    left = explained.of - len(shown)
    if chosen.has_summary:
        left -= memory.summarised - sum(message.seq <= memory.upto for message in shown)
    if left > 0:
        return whole + say("; {count} older ones find no room", count=left)
    return whole


def _below(name: str, explained: Explained, say: Words) -> Iterator[tuple[str, str, str]]:
    """What stands below a layer: a sign for in or out, a note, and why."""
    chosen = explained.built.chosen
    if name == "of them pinned":
        for one in chosen.pinned:
            yield "+", one.note.id, say("{message} is its source", message=one.message.id)
        for note in chosen.titles:
            yield "-", note.id, say("by title only: there is no room")
    elif name == "notes":
        for found in chosen.notes:
            yield "+", found.note.id, found.why
        for found, why in chosen.withheld:
            yield "-", found.note.id, say(why)
