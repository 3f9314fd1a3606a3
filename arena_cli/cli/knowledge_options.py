"""The arguments and options of `arena knowledge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena_cli.cli import complete

Title = Annotated[str, typer.Argument(help="What is to be remembered, in a few words.")]
OneNote = Annotated[
    str, typer.Argument(metavar="NOTE", help="Its id, the beginning of one, or its file.")
]
SomeNotes = Annotated[
    list[str], typer.Argument(metavar="NOTE...", help="Ids, beginnings of ids, or files.")
]
MayBeNote = Annotated[
    str | None, typer.Argument(metavar="NOTE", help="Only what was done to this note.")
]
InSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        help="The notes of this session.",
        autocompletion=complete.complete_sessions,
    ),
]
OfLast = Annotated[bool, typer.Option("--continue", "-c", help="The notes of the last session.")]
Shared = Annotated[bool, typer.Option("--shared", help="The notes that every session shares.")]
AKind = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="decision, pit, blocker, ...")
]
AStatus = Annotated[
    str | None,
    typer.Option("--status", metavar="STATUS", help="draft, pending_user, approved or archived."),
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; repeat for more.")]
Text = Annotated[str | None, typer.Option("--text", help="What it says; `-` reads a pipe.")]
FromFile = Annotated[Path | None, typer.Option("--file", "-f", help="Read what it says here.")]
Importance = Annotated[
    float, typer.Option("--importance", min=0, max=1, help="From 0 to 1; from 0.8 on it pins.")
]
Owner = Annotated[str, typer.Option("--owner", help="Who is to see to it.")]
Supersedes = Annotated[
    str | None,
    typer.Option(
        "--supersedes", metavar="NOTE", help="Archive this one once the new one is approved."
    ),
]
Source = Annotated[
    str | None, typer.Option("--source", metavar="MESSAGE", help="The message it comes from: m7.")
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who does it; else the team's first human."),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")]
WhyRejected = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: needed.")]
Share = Annotated[
    bool,
    typer.Option("--share", help="Also copy it into the shared notes (pits, decisions, ...)."),
]
Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait if it is busy.")
]
Connect = Annotated[
    bool,
    typer.Option(
        "--connect", help="Ask the embedding server of arena.yaml, once the workspace is trusted."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
