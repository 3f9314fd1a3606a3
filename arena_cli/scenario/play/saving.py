"""What a step saves of what was said, for the steps after it."""

from __future__ import annotations

from arena_cli.scenario.expect import checks, patterns
from arena_cli.scenario.expect.checks import Verdict
from arena_cli.scenario.expect.conversation import Conversation
from arena_cli.scenario.load.shapes import Saved


def found(wanted: Saved, told: Conversation) -> Verdict:
    """What is saved of the agent's last reply, as `actual`."""
    replies = told.replies(wanted.agent)
    pattern = f" that matches /{wanted.regex}/" if wanted.regex else ""
    expected = f"a reply of {wanted.agent}{pattern}"
    if not replies:
        return Verdict(False, expected, f"no reply: {told.outcome(wanted.agent)}")
    text = replies[-1].text
    if wanted.regex is None:
        return Verdict(True, expected, text)
    match = patterns.compiled(wanted.regex).search(patterns.form(text))
    if match is None:
        return Verdict(False, expected, f"no match in {checks.excerpt(text)}")
    found = match[1] if match.re.groups else match[0]
    if not found:
        return Verdict(False, expected, f"nothing is matched in {checks.excerpt(text)}")
    return Verdict(True, expected, found)
