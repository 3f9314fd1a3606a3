"""React to a message, list what agents have not read, and mark messages as read."""

from __future__ import annotations

from typing import Annotated

import typer

from arena_cli.cli import common, control, options
from arena_cli.reports.lines import user_words
from arena_cli.transcript import queries, read_marks, reader
from arena_cli.transcript.revisions import list_visible
from arena_cli.util.text import cut_text, escape_line

OneAgent = Annotated[
    str | None, options.agent_option(help="List only what this agent has not read.")
]
ReadBy = Annotated[str | None, options.agent_option(help="Mark them for this agent only.")]

_QUOTED = 60  # characters of a message in the list


def react(
    context: typer.Context,
    session: options.TheSession,
    message: Annotated[str, typer.Argument(help="React to the message of this id, such as m2.")],
    reaction: Annotated[str, typer.Argument(help="One of 👍 👎 ✅ ❓ 🎉.")],
    author: Annotated[
        str | None, typer.Option("--from", metavar="HUMAN", help="React as this human of the team.")
    ] = None,
    wait: options.ProcessWait = 60,
) -> None:
    """React to a message; agents are shown it, and no agent is called."""
    control.send_request(context, session, wait, author, act="react", target=message, text=reaction)


def read(
    context: typer.Context,
    session: options.LastSession = None,
    agent: ReadBy = None,
    upto: Annotated[
        str | None,
        typer.Option("--upto", metavar="MESSAGE", help="Mark none after this one, such as m12."),
    ] = None,
    author: options.ActFrom = None,
    wait: options.ProcessWait = 60,
) -> None:
    """Mark messages as read by agents: `arena unread` no longer lists them.

    The agents are shown the messages all the same when they are called.
    """
    control.send_request(context, session, wait, author, act="read", agent=agent, target=upto or "")


def unread(
    context: typer.Context,
    session: options.LastSession = None,
    agent: OneAgent = None,
    as_json: options.AsJson = False,
) -> None:
    """List the messages that came since each agent was last called.

    An agent has read all that it was shown, or that `arena read` marked; its own messages and
    reactions do not count.
    """
    stored = common.find_session(context, session, or_archived=True)
    path = stored.transcript
    events = list_visible(event for line in reader.read_lines(path) for event in line.events)
    agents = [] if agent is None else [queries.agent_named(path, agent)]
    unread_of = read_marks.list_unread(events, agents)
    if as_json:
        common.print_json(
            {name: [message.id for message in messages] for name, messages in unread_of.items()}
        )
        return
    say = user_words()
    for name, messages in unread_of.items():
        common.print_line(say("{who} · {count} unread", who=escape_line(name), count=len(messages)))
        for message in messages:
            text = cut_text(" ".join(message.content.split()), _QUOTED)
            facts = (message.id, message.author_id, text)
            common.print_line(f"  {' · '.join(map(escape_line, facts))}")
