"""Render a run or a session as one HTML page that needs no other file.

All texts of agents, people and files are plain text in it (jinja2 escapes them), never markup,
attribute or script. A content security policy runs only arena's own script, by its hash, and
fetches nothing. The page can be read without its script, which only filters and searches by
attributes of the elements.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
from markupsafe import Markup

from arena_cli import __version__, errors
from arena_cli.protocol import Usage
from arena_cli.reports import approvals, budgets, drift, lines
from arena_cli.reports.budgets import BudgetRow
from arena_cli.reports.html import components, page_text, results
from arena_cli.reports.html.components import Cast, View
from arena_cli.reports.lines import Words
from arena_cli.scenarios.result import RunResult
from arena_cli.transcript.conversation import Chain, Conversation, read_conversation
from arena_cli.transcript.events import Event, SessionEvent, SideEvent
from arena_cli.transcript.revisions import collect_revisions, list_visible
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.work_lines import ListedTask

_HERE = "arena_cli.reports.html"
_LANE_REM, _NARROW_LANE_REM, _TURN_REM = 15, 12.5, 7.5  # five agents fit on 1,200 pixels
_WIDE_LANES = 3
_RESULTS = {
    0: "passed",
    errors.EXIT_NOT_HELD: "failed",
    errors.EXIT_FAILED: "error",
    errors.EXIT_INTERRUPTED: "interrupted",
}


class RunOrigin(NamedTuple):
    """The workspace (its folder), the commit and the command of a run."""

    workspace: str
    commit: str
    command: str


def page(run_result: RunResult, say: Words, origin: RunOrigin | None = None) -> str:
    """Return the page of a run."""
    views = results.build_views(run_result, say)
    began = min(
        (result.opening.ts for result in run_result.scenarios if result.opening), default=""
    )
    talks = [step["talk"] for view in views for step in view["steps"] if step["talk"]]
    return _rendered(
        "run.html",
        talks,
        say,
        whole=run_result,
        origin=origin and RunOrigin(*map(escape_line, origin)),
        result=_RESULTS.get(run_result.exit_code, "error"),
        began=_date(began),
        tokens=_sum_tokens(result.usage for result in run_result.scenarios),
        mode_counts=drift.counted(run_result),
        causes=results.causes(run_result, say),
        scenarios=views,
        warnings=[page_text.of_text(result.text) for result in run_result.warnings],
        modes=sorted({view["mode"] for view in views if view["mode"]}),
        tags=sorted({tag for view in views for tag in view["tags"]}),
    )


def session_page(
    title: str, events: Iterable[Event], avatars: Mapping[str, str], say: Words
) -> str:
    """Return the page of one session, or of a part of it.

    `events` begin with the `session` event that is valid at that point. `avatars` are by agent id.
    """
    events = list(events)
    revisions = collect_revisions(events)
    conversation = read_conversation(events)
    cast = Cast(conversation.sessions, avatars)
    lanes = cast.lanes(conversation.turns)
    parts = [
        _section(number, items, components.build_talk(items, cast, lanes, say, revisions))
        for number, items in enumerate(_split(conversation), 1)
    ]
    replies = [done for turn in conversation.turns for done in turn.ends()]
    used = [*(done.usage for done in replies), *map(_usage_beside, conversation.events)]
    opening = next(iter(conversation.sessions), None)
    first = next(conversation.events, None)
    return _rendered(
        "session.html",
        [part["talk"] for part in parts],
        say,
        title=escape_line(title),
        team=escape_line(opening.team or "") if opening else "",
        scenario=escape_line(opening.scenario or "") if opening else "",
        began=_date(first.ts if first else ""),
        tokens=_sum_tokens(used),
        budget=_list_budget(conversation.events, cast),
        approvals=_list_approvals(events, cast, say),
        tasks=_list_tasks(events, cast, say),
        replies=sum(done.status == "success" for done in replies),
        lanes=list(lanes.values()),
        chains=parts,
    )


def _list_budget(events: Iterable[Event], cast: Cast) -> list[BudgetRow]:
    """Return what is used of the bounds of the session, if its team has a budget."""
    tally = budgets.make_tally(cast.config)
    if tally is None:
        return []
    for event in events:
        tally.apply(event)
    return tally.rows(("session",))


def _list_approvals(events: Iterable[Event], cast: Cast, say: Words) -> list[View]:
    """Return the requests of a session with who decided each, and why."""
    rows = []
    for record in approvals.list_requests(events):
        ts = record.get("decided", record["since"])
        facts = [record.get("option", ""), record.get("because", "")]
        if record.get("always"):
            facts.append(say("always in this session"))
        rows.append(
            {
                "number": record["request"],
                "who": cast.who(record["agent"]),
                "action": escape_line(record["action"]),
                "detail": escape_line(record["detail"]),
                "status": record["status"],
                "by": escape_line(record.get("by", "")),
                "because": say(": ").join(escape_line(fact) for fact in facts if fact),
                "ts": ts,
                "clock": lines.clock(ts),
            }
        )
    return rows


def _list_tasks(events: Sequence[Event], cast: Cast, say: Words) -> list[ListedTask]:
    """Return the tasks of a session as they are at its end."""
    if not any(event.type == "task" for event in events):
        return []
    work_lines = import_module("arena_cli.reports.work_lines")
    board = import_module("arena_cli.transcript.task_events").TaskBoard.read(list_visible(events))
    rows: list[ListedTask] = work_lines.list_rows(
        list(board.tasks.values()), board, say, lambda agent: cast.who(agent).name
    )
    return rows


def _sum_tokens(usages: Iterable[Usage | None]) -> str:
    known = [usage for usage in usages if usage]
    return lines.tokens(Usage.total(known)) if known else ""


def _usage_beside(event: Event) -> Usage | None:
    """Return the usage of a call that is no reply."""
    call = event.agent_call if isinstance(event, SideEvent) else None
    return call.usage if call else None


def _section(number: int, items: Sequence[Chain | Event], talk: View) -> View:
    """Return a chain with the items after it; a filter of the page shows or hides it."""
    chain = items[0] if isinstance(items[0], Chain) else None
    turns = chain.turns if chain else []
    ended = [reply for turn in turns for reply in turn.replies.values() if reply.ends]
    return {
        "id": f"c{number}",
        "talk": talk,
        "agents": list(dict.fromkeys(escape_line(reply.agent) for reply in ended)),
        "end": _name_end(chain),
        "number": chain.number if chain and chain.first else None,
    }


def _name_end(chain: Chain | None) -> str:
    """Return how a chain ended, or `paused`, or `open`."""
    if chain is None:
        return "open"
    if chain.end:
        return chain.end
    is_paused = chain.control and chain.control.pause and not chain.finished
    return "paused" if is_paused else "open"


def _split(conversation: Conversation) -> list[list[Chain | Event]]:
    """Return each chain with the events after it; those before the first form a group."""
    parts: list[list[Chain | Event]] = [[]]
    for item in conversation.items:
        if isinstance(item, Chain):
            parts.append([])
        if not isinstance(item, SessionEvent):
            parts[-1].append(item)
    return [items for items in parts if items]


def _date(ts: str) -> str:
    """Return date and time in the local time zone, with the offset."""
    try:
        return f"{datetime.fromisoformat(ts).astimezone():%Y-%m-%d %H:%M:%S %z}"
    except (ValueError, OverflowError, OSError):
        return ""


def _rendered(name: str, talks: Iterable[View], say: Words, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(say=say, tokens_of=lines.tokens)
    style = _file("style.css") + _widths({len(talk["lanes"]) for talk in talks})
    script = _file("script.js")
    return environment.get_template(name).render(
        **values,
        language=say.language,
        version=__version__,
        policy=_policy(style, script),
        # Both are arena's own: what a page says is never in them.
        style=Markup(style),
        script=Markup(script),
    )


def _file(name: str) -> str:
    return (resources.files(_HERE) / "templates" / name).read_text(encoding="utf-8")


def _widths(lanes: Iterable[int]) -> str:
    """Return the CSS rules for the least width of a table with that many lanes.

    The part next to it goes below if both do not fit.
    """
    rules = []
    for count in sorted(lanes):
        lane = _LANE_REM if count <= _WIDE_LANES else _NARROW_LANE_REM
        width = f"{_TURN_REM + lane * count}rem"
        rules.append(f".lanes-{count}{{min-width:{width}}}.of-{count}{{flex-basis:{width}}}")
    return f"@media screen and (min-width:48.01rem){{{''.join(rules)}}}\n"


def _policy(style: str, script: str) -> str:
    """Return a policy that loads nothing and allows only this style and script (CSP Level 3)."""
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {_hash(script)}",
            "img-src data:",  # the icon, which a browser else asks the server for
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
