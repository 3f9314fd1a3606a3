"""Explain what an agent would be shown now, and add up what agents used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arena_cli.cli import command_line, common, options, streams, trust
from arena_cli.cli.notes import Connect
from arena_cli.context import render
from arena_cli.reports import lines
from arena_cli.reports.budgets import BudgetTally
from arena_cli.reports.lines import user_words
from arena_cli.reports.usage import Ledger, draw_usage
from arena_cli.session import doctor, preview, store
from arena_cli.session.trust_store import find_contacts
from arena_cli.util.text import escape_line, escape_text

if TYPE_CHECKING:
    from arena_cli.reports.lines import Words
    from arena_cli.session.preview import Explained
    from arena_cli.session.store import Stored
    from arena_cli.util.language import Language


Agent = Annotated[
    str,
    typer.Option(
        "--agent", help="Show the input of this agent.", autocompletion=command_line.complete_agents
    ),
]


def context(
    context: typer.Context,
    agent: Agent,
    session: options.LastSession = None,
    connect: Connect = False,
    as_json: options.DocumentAsJson = False,
) -> None:
    """Show what an agent would be shown now, layer by layer, with tokens and reasons.

    It contacts the embedding server only with --connect.
    """
    loaded = common.load_workspace(context)
    stored = common.find_session(context, session)
    team = common.find_team(loaded, stored)
    if connect:
        embedding = loaded.file.memory.embedding
        trust.require(loaded, lambda env: find_contacts((), embedding, dotenv=env))
    config = common.make_config(loaded, wait_s=0, connects=connect)
    explained = preview.explain_context(config, stored, team, agent)
    if as_json:
        common.print_json(context_document(explained))
        return
    common.print_lines(context_lines(explained, user_words(), loaded.file.language))


def context_document(explained: Explained) -> dict[str, Any]:
    """Return the context as JSON; tokens are estimates, corrected by the `factor` of the model."""
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
        "tasks": {"tokens": explained.counted(explained.task_tokens)},
        "summary": summary
        and {
            "shown": chosen.has_summary,
            "by": summary.by,
            "messages": summary.messages,
            "upto": summary.upto,
        },
        "pinned": [
            {"message": entry.message.id, "note": entry.note.id, "title": entry.note.title}
            for entry in memory.pinned
        ],
        "pinned_by_title_only": [note.id for note in chosen.titles[: chosen.listed]],
        "pinned_not_shown": [note.id for note in chosen.titles[chosen.listed :]],
        "messages": {
            "shown": len(selection.messages),
            "of": explained.of,
            "tokens": explained.counted(selection.tokens),
            "ids": [message.id for message in selection.messages],
        },
        "notes": [{"note": entry.note.id, "why": entry.why} for entry in chosen.notes],
        "withheld": [
            {"note": entry.note.id, "why_not": reason} for entry, reason in chosen.withheld
        ],
        "prefer_concise": explained.built.input.prefer_concise,
        "input": explained.built.input.model_dump(mode="json"),
    }


def context_lines(explained: Explained, say: Words, language: Language = "en") -> Iterator[str]:
    """Yield the context as text: each layer with its tokens and the reason, then the input."""
    yield say(
        "{who} would be shown {tokens} of {room} tokens (window {window}, {reserved} "
        "reserved for the answer)",
        who=escape_line(explained.member.name),
        tokens=f"~{explained.built.input_tokens:,}",
        room=f"{explained.window - explained.reserved:,}",
        window=f"{explained.window:,}",
        reserved=f"{explained.reserved:,}",
    )
    for name, estimated, remark in _layers(explained, say):
        count = f"{explained.counted(estimated):,}"
        yield f"  {say(name)} · {say('~{count} tokens', count=count)} · {remark}"
        for sign, note, reason in _below(name, explained, say):
            yield f"    {sign} {escape_line(note)} · {escape_line(reason)}"
    if explained.built.input.prefer_concise:
        yield f"  {say('asked to be concise: its window is filling up')}"
    system, prompt = render.render(explained.built.input, language)
    for name, text in (("system", system), ("prompt", prompt)):
        yield ""
        yield f"── {say(name)}"
        yield escape_text(text.rstrip())


def _layers(explained: Explained, say: Words) -> Iterator[tuple[str, int, str]]:
    """Yield each layer's name, its uncorrected tokens, and why it is included or not."""
    chosen, memory, summary = explained.built.chosen, explained.memory, explained.summary
    selection = chosen.selection
    reason = say("always")
    if explained.head_tokens >= explained.window - explained.reserved:
        reason = say("always, even though it alone exceeds the room")
    yield "role, team and how to read", explained.head_tokens, reason
    if explained.task_tokens:
        yield "tasks", explained.task_tokens, say("its open tasks, and the last that ended")
    if summary is None:
        reason = say("nothing is summarised yet")
    elif chosen.has_summary:
        text = "of {count} messages, up to {upto}, by {by}"
        reason = say(text, count=summary.messages, upto=summary.upto, by=summary.by)
    elif memory.summary:
        reason = say("left out: the messages have more room without it")
    else:
        reason = say("left out: nothing in it applies any more")
    yield "summary", chosen.stable_tokens, reason
    reason = say(
        "{count} pinned by notes: {beside} in addition to the newest, {titles} by title only",
        count=len(memory.pinned),
        beside=len(chosen.pinned),
        titles=chosen.listed,
    )
    yield "messages", selection.tokens, _messages(explained, say)
    yield "of them pinned", explained.pinned_tokens, reason
    reason = say("{count} of {found} found", count=len(chosen.notes), found=len(memory.notes))
    yield "notes", chosen.noted_tokens, reason if memory.notes else say("none found")


def _messages(explained: Explained, say: Words) -> str:
    """Describe which messages are shown, and how many older ones do not fit."""
    chosen, memory = explained.built.chosen, explained.memory
    messages = chosen.selection.messages
    summary = say("{count} of {of} in full", count=len(messages), of=explained.of)
    omitted = explained.of - len(messages)
    if chosen.has_summary:
        omitted -= memory.summarised - sum(message.seq <= memory.upto for message in messages)
    if omitted > 0:
        return summary + say("; {count} older ones do not fit", count=omitted)
    return summary


def _below(name: str, explained: Explained, say: Words) -> Iterator[tuple[str, str, str]]:
    """Yield the rows below a layer: a sign for included or not, a note, and the reason."""
    chosen = explained.built.chosen
    if name == "of them pinned":
        for entry in chosen.pinned:
            yield "+", entry.note.id, say("{message} is its source", message=entry.message.id)
        for note in chosen.titles[: chosen.listed]:
            yield "-", note.id, say("by title only: the message does not fit")
        if unlisted := chosen.titles[chosen.listed :]:
            reason = say("not shown; archive decisions that are settled to make room")
            yield "-", say("{count} more", count=len(unlisted)), reason
    elif name == "notes":
        for shown_note in chosen.notes:
            yield "+", shown_note.note.id, shown_note.why
        for shown_note, reason in chosen.withheld:
            yield "-", shown_note.note.id, say(reason)


_WIDTH = 100

_CountedSession = Annotated[
    str | None, options.session_argument(help="Count only this session; by default all of them.")
]
ByWhat = Annotated[
    Literal["agent", "model", "day", "scenario"],
    typer.Option(
        "--by",
        metavar="agent|model|day|scenario",
        case_sensitive=False,
        help="Print one row for each of these.",
    ),
]


def usage(
    context: typer.Context,
    session: _CountedSession = None,
    by: ByWhat = "agent",
    as_json: options.DocumentAsJson = False,
) -> None:
    """Add up what agents used: calls, tokens, cached tokens and cost.

    Days are in UTC. Failed calls and calls for the team's memory count too.
    """
    root = common.find_root(context)
    ledger = Ledger(by)
    tally = BudgetTally(today="" if session else f"{datetime.now(UTC):%Y-%m-%d}")
    if session is not None:
        _read(common.find_session(context, session, or_archived=True), ledger, tally)
    else:
        for stored in (*store.stored(root), *common.read_archived(context)):
            try:
                _read(stored, ledger, tally)
            except FileNotFoundError:
                continue  # removed a moment ago, as sessions of scenarios are
            except OSError as error:
                common.warn(f"{stored.transcript}: not counted: {error.strerror or error}")
    rows = tally.rows(("turn", "chain", "session") if session else ("day",))
    if as_json:
        budget = {"budget": [row.document() for row in rows]} if rows else {}
        common.print_json({**ledger.document(), **budget})
    elif not ledger.total.calls:
        common.warn("no agent was called yet")
    else:
        say, width = user_words(), shutil.get_terminal_size((_WIDTH, 0)).columns
        budget_lines = (
            lines.line(say("budget of the {row}", row=row.describe(say))) for row in rows
        )
        streams.show((*draw_usage(ledger, say, width), *budget_lines))


def _read(stored: Stored, ledger: Ledger, tally: BudgetTally) -> None:
    """Add a session to the ledger and the tally; report unreadable lines. Raises OSError."""
    ledger.session()
    tally.session()
    spent = doctor.spending(
        stored.transcript, lambda problem: common.warn_of_problems(stored.transcript, [problem])
    )
    for event in spent:
        ledger.apply(event)
        tally.apply(event)
