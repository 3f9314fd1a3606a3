"""The options and arguments that several commands share, and those of `arena send`.

A function such as `session_option` declares an option of a kind; `output_option` and others put it
under a heading of the help.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from arena_cli.cli import command_line

session_argument = partial(typer.Argument, autocompletion=command_line.complete_sessions)
agent_argument = partial(typer.Argument, autocompletion=command_line.complete_agents)
session_option = partial(
    typer.Option, "--session", "-s", autocompletion=command_line.complete_sessions
)
agent_option = partial(
    typer.Option, "--agent", metavar="AGENT", autocompletion=command_line.complete_agents
)
team_option = partial(typer.Option, "--team", "-t", autocompletion=command_line.complete_teams)
wait_option = partial(typer.Option, "--wait", min=0, metavar="SECONDS")

adapter_option = partial(typer.Option, rich_help_panel="Adapter")
content_option = partial(typer.Option, rich_help_panel="Content")
conversation_option = partial(typer.Option, rich_help_panel="Conversation")
message_option = partial(typer.Option, rich_help_panel="Message")
notes_option = partial(typer.Option, rich_help_panel="Notes")
output_option = partial(typer.Option, rich_help_panel="Output")
profile_option = partial(typer.Option, rich_help_panel="Profile")
recordings_option = partial(typer.Option, rich_help_panel="Recordings")
selection_option = partial(typer.Option, rich_help_panel="Selection")

LastSession = Annotated[
    str | None, session_argument(help="Use this session; by default the last one.")
]
TheSession = Annotated[str, session_argument(help="Use this session.")]
ToAgent = Annotated[str, agent_argument(help="Give it to this agent.")]
ActFrom = Annotated[
    str | None, typer.Option("--from", metavar="HUMAN", help="Act as this human of the team.")
]
ActBy = Annotated[
    str | None, typer.Option("--by", metavar="HUMAN", help="Act as this human of the team.")
]
ProcessWait = Annotated[float, wait_option(help="Wait up to this long for the running process.")]
BusyWait = Annotated[float, wait_option(help="Wait up to this long if the session is busy.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ListAsJson = Annotated[bool, typer.Option("--json", help="Print one JSON list.")]
DocumentAsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
NoPager = Annotated[
    bool,
    typer.Option(
        "--no-pager",
        help="Print long output without a pager; ARENA_PAGER or PAGER names the pager.",
    ),
]

TheMessage = Annotated[
    str | None, typer.Argument(help="Send this message; `-` or no message reads standard input.")
]
ToGoOnOrMake = Annotated[
    str | None,
    session_option(help="Continue this session, or create it.", rich_help_panel="Conversation"),
]
GoOn = Annotated[bool, conversation_option("--continue", "-c", help="Continue the last session.")]
OneTeam = Annotated[
    str | None, team_option(help="Send to this team.", rich_help_panel="Conversation")
]
To = Annotated[
    list[str] | None,
    conversation_option(
        "--to",
        metavar="AGENT",
        help="Require a reply of this agent; repeatable.",
        autocompletion=command_line.complete_agents,
    ),
]
Author = Annotated[
    str | None,
    conversation_option("--from", metavar="HUMAN", help="Send as this human of the team."),
]
FromFile = Annotated[
    Path | None, message_option("--file", "-f", help="Read the message from this file.")
]
Attach = Annotated[
    list[Path] | None,
    message_option("--attach", "-a", metavar="FILE", help="Attach this file; repeatable."),
]
AttachAudit = Annotated[
    str | None,
    message_option(
        "--attach-audit",
        metavar="[=SESSION]",
        help="Attach the audit (`arena export --audit`) of the continued session, or of "
        "another one: `--attach-audit=NAME`.",
        autocompletion=command_line.complete_sessions,
    ),
]
Force = Annotated[
    bool,
    message_option("--force", help="Send files even if they look like secrets (.env, keys)."),
]
DryRun = Annotated[
    bool,
    output_option(
        "--dry-run",
        "-n",
        help="Show which agents would be called and with what context; call none and "
        "write nothing.",
    ),
]
Strict = Annotated[
    bool,
    message_option(
        "--strict",
        help="Send no message that mentions an unknown name: ask on a terminal, else fail.",
    ),
]
OneAgent = Annotated[str | None, agent_option(help="Let this paused agent take part again.")]
BudgetRaises = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="+2usd|+10000tokens",
        help="Raise the bounds that stopped it by this much first; repeatable.",
    ),
]
ReplyTo = Annotated[
    str | None,
    message_option(
        "--reply-to",
        metavar="MESSAGE",
        help="Answer the message of this id, such as m2; agents are shown how it begins.",
    ),
]
KindOfMessage = Annotated[
    Literal["chat", "task", "file", "code"],
    message_option(
        "--kind", metavar="KIND", help="Send a message of this kind: chat, task, file or code."
    ),
]
Thread = Annotated[
    str | None,
    message_option(
        "--thread",
        metavar="TASK",
        help="Write in the thread of this task, such as t3: only the agents that work on it, "
        "asked for it, or wrote there are shown it.",
    ),
]
ToPlan = Annotated[
    bool,
    conversation_option(
        "--plan", help="Let the team's planner plan the work first; agents then do it as tasks."
    ),
]
Key = Annotated[
    str | None,
    conversation_option(
        "--key",
        metavar="KEY",
        help="Send the message once: the same key in the same session only prints the earlier "
        "chain, and exits as it did.",
    ),
]
Detach = Annotated[
    bool,
    conversation_option(
        "--detach",
        "-d",
        help="Run the conversation in a process of its own; print its session and chain. "
        "`arena wait` prints what came.",
    ),
]
IsDetached = Annotated[
    bool, typer.Option("--detached", hidden=True, help="Report the start to the caller.")
]
Wait = Annotated[
    float,
    wait_option(
        help="Wait up to this long if the session is busy.", rich_help_panel="Conversation"
    ),
]
EventsAsJson = Annotated[
    bool,
    output_option("--json", help="Print events as they happen, one JSON object per line."),
]
WithDeltas = Annotated[
    bool,
    output_option(
        "--deltas",
        help="With --json, also print each piece of a text as its agent writes it; these lines "
        "are not in the transcript.",
    ),
]
Quiet = Annotated[bool, output_option("--quiet", "-q", help="Print only problems.")]
