"""List what agents asked people to approve or to choose, and who decided it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena_cli.reports.lines import Words
from arena_cli.transcript import reader
from arena_cli.transcript.conversation import Chain, follow
from arena_cli.transcript.events import Event
from arena_cli.util import files

if TYPE_CHECKING:
    from arena_cli.transcript.control_events import Request

MARK = b'"approval_requested"'
"""What the line of a transcript holds that has a request."""

_SHOWN = ("agent", "action", "detail", "arguments", "digest", "diff", "options", "in_message")


def read_requests(
    transcript: Path, now: str = "", redact: Callable[[Event], Event] = lambda event: event
) -> Iterator[dict[str, Any]]:
    """Yield the requests of a transcript as `list_requests` does, if its lines hold any."""
    with files.open_binary(transcript) as file:
        if not any(MARK in line for line in file):
            return
    events = (event for line in reader.read_lines(transcript) for event in line.events)
    yield from list_requests(map(redact, events), now)


def list_requests(events: Iterable[Event], now: str = "") -> Iterator[dict[str, Any]]:
    """Yield the requests of a session, in order, as JSON.

    A `status` is the decision, or `open`, or `expired` at the time `now`, or `closed` if the chain
    ended without a decision.
    """
    last: Chain | None = None
    for _, chain in follow(events):
        if last is not None and chain is not last:
            yield from _list_requests(last, now)
        last = chain
    if last is not None:
        yield from _list_requests(last, now)


def _list_requests(chain: Chain, now: str) -> Iterator[dict[str, Any]]:
    for request in chain.control.requests.values() if chain.control else ():
        yield _describe(request, is_over=chain.finished is not None, now=now)


def _describe(request: Request, *, is_over: bool, now: str) -> dict[str, Any]:
    asked, decided = request.asked, request.decided
    status = "closed" if is_over else "expired" if now and asked.expires <= now else "open"
    record: dict[str, Any] = {
        "request": asked.request,
        "status": decided.decision if decided else status,
        **{name: getattr(asked, name) for name in _SHOWN},
        "since": asked.ts,
        "expires": asked.expires,
    }
    if decided is not None:
        record |= {"by": decided.by, "because": decided.because, "decided": decided.ts}
        record |= {"option": decided.option} if decided.option else {}
        record |= {"always": True} if decided.always else {}
        record["used"] = request.is_used
    return record


def describe_approval(approval: Mapping[str, Any], plain: Callable[[str], str], say: Words) -> str:
    """Return a request in one line: who asked for what, who decided, and whether it was done.

    `plain` escapes texts of agents and people.
    """
    request = say(
        "request {request}: {who} asks for {action}",
        request=approval["request"],
        who=plain(approval["agent"]),
        action=plain(approval["action"]),
    )
    status = say.enum(approval["status"])
    if "by" in approval:
        status = say("{decision} by {who}", decision=status, who=plain(approval["by"]))
        status = f"{status} {plain(approval['decided'])}"
    facts = [f"{request}{say(': ')}{plain(approval['detail'])}", status]
    facts += [plain(approval[name]) for name in ("option", "because") if approval.get(name)]
    facts += [say("done")] if approval.get("used") else []
    return " · ".join(facts)
