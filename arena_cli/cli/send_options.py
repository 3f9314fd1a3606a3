"""The options of `arena send` and `arena resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from arena_cli.cli import command_line

TheMessage = Annotated[
    str | None, typer.Argument(help="Send this message; `-` or no message reads standard input.")
]
ToGoOnOrMake = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        help="Continue this session, or create it.",
        autocompletion=command_line.complete_sessions,
        rich_help_panel="Conversation",
    ),
]
GoOn = Annotated[
    bool,
    typer.Option(
        "--continue", "-c", help="Continue the last session.", rich_help_panel="Conversation"
    ),
]
OneTeam = Annotated[
    str | None,
    typer.Option(
        "--team",
        "-t",
        help="Send to this team.",
        autocompletion=command_line.complete_teams,
        rich_help_panel="Conversation",
    ),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="AGENT",
        help="Require a reply of this agent; repeatable.",
        autocompletion=command_line.complete_agents,
        rich_help_panel="Conversation",
    ),
]
Author = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="HUMAN",
        help="Send as this human of the team.",
        rich_help_panel="Conversation",
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", help="Read the message from this file.", rich_help_panel="Message"
    ),
]
Attach = Annotated[
    list[Path] | None,
    typer.Option(
        "--attach",
        "-a",
        metavar="FILE",
        help="Attach this file; repeatable.",
        rich_help_panel="Message",
    ),
]
AttachAudit = Annotated[
    str | None,
    typer.Option(
        "--attach-audit",
        metavar="[=SESSION]",
        help="Attach the audit (`arena export --audit`) of the continued session, or of "
        "another one: `--attach-audit=NAME`.",
        autocompletion=command_line.complete_sessions,
        rich_help_panel="Message",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Send files even if they look like secrets (.env, keys).",
        rich_help_panel="Message",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        "-n",
        help="Show which agents would be called and with what context; call none and "
        "write nothing.",
        rich_help_panel="Output",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Send no message that mentions an unknown name: ask on a terminal, else fail.",
        rich_help_panel="Message",
    ),
]
OneAgent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="Let this paused agent take part again.",
        autocompletion=command_line.complete_agents,
    ),
]
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
    typer.Option(
        "--reply-to",
        metavar="MESSAGE",
        help="Answer the message of this id, such as m2; agents are shown how it begins.",
        rich_help_panel="Message",
    ),
]
KindOfMessage = Annotated[
    Literal["chat", "task", "file", "code"],
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Send a message of this kind: chat, task, file or code.",
        rich_help_panel="Message",
    ),
]
Thread = Annotated[
    str | None,
    typer.Option(
        "--thread",
        metavar="TASK",
        help="Write in the thread of this task, such as t3: only the agents that work on it, "
        "asked for it, or wrote there are shown it.",
        rich_help_panel="Message",
    ),
]
ToPlan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Let the team's planner plan the work first; agents then do it as tasks.",
        rich_help_panel="Conversation",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Send the message once: the same key in the same session only prints the earlier "
        "chain, and exits as it did.",
        rich_help_panel="Conversation",
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        "-d",
        help="Run the conversation in a process of its own; print its session and chain. "
        "`arena wait` prints what came.",
        rich_help_panel="Conversation",
    ),
]
IsDetached = Annotated[
    bool, typer.Option("--detached", hidden=True, help="Report the start to the caller.")
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="Wait up to this long if the session is busy.",
        rich_help_panel="Conversation",
    ),
]
EventsAsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print events as they happen, one JSON object per line.",
        rich_help_panel="Output",
    ),
]
WithDeltas = Annotated[
    bool,
    typer.Option(
        "--deltas",
        help="With --json, also print each piece of a text as its agent writes it; these lines "
        "are not in the transcript.",
        rich_help_panel="Output",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only problems.", rich_help_panel="Output")
]
