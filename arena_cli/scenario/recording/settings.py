"""What of an agent's profile decides what it does, as it stands in a recording.

The role prompt is what its inputs begin with; all else is looked at only to tell that it is not
what it was when the agent answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from arena_cli.ground.redact import Redactor
from arena_cli.team.model import Member

AGENT = "agent"
ROLE_PROMPT = "role_prompt"

_RELEVANT = ("skills", "aliases", "response", "may_mention")
_WHERE_CALLED = ("adapter", "context", "timeout_s", "on_failure", "retries")


def record(member: Member, redactor: Redactor) -> dict[str, Any]:
    """The line for an agent: no secret in it, and what `${env:...}` stands for not looked up."""
    profile = member.profile
    told: dict[str, Any] = {
        "type": AGENT,
        AGENT: member.id,
        ROLE_PROMPT: redactor.text(member.role_prompt),
    }
    told["adapter"] = redactor.value(dict(profile.adapter))
    for name in ("response", "context"):
        told[name] = dict(getattr(profile, name))
    for name in ("skills", "aliases", "timeout_s", "on_failure", "retries", "may_mention"):
        value = getattr(profile, name)
        if value not in (None, []):
            told[name] = value
    return told


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], *, called: bool
) -> Iterator[tuple[str, Any, Any]]:
    """Where two such lines differ: the place, and what stands there; None for nothing.

    How an agent is called matters only where it is `called`.
    """
    for name in (*_RELEVANT, *(_WHERE_CALLED if called else ())):
        yield from _within(name, before.get(name), after.get(name))


def _within(place: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _within(f"{place}.{key}", before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _within(f"{place}[{index}]", one, other)
    else:
        yield place, before, after
