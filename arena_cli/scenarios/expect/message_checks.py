"""Check the reactions to messages, and what agents have not read."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from arena_cli.scenarios.expect import amounts
from arena_cli.scenarios.expect.amounts import Range
from arena_cli.scenarios.expect.context import CheckContext
from arena_cli.scenarios.expect.model import ReactionRow
from arena_cli.scenarios.expect.text_checks import Check, Verdict
from arena_cli.transcript import read_marks


def reactions(expected: Sequence[ReactionRow]) -> Iterator[Check]:
    """Yield the checks on the reactions: their number, and a row each, in any order."""
    yield Check((), functools.partial(_are_as_many, len(expected)))
    for index, row in enumerate(expected):
        yield Check((index,), functools.partial(_is_made, row, expected[:index]))


def list_reactions(conversation: CheckContext) -> list[dict[str, str]]:
    """Return the reactions in order: who reacted, how, and the author of that message."""
    rows = []
    for event in conversation.conversation.said():
        message = event.message
        for emoji in message.reactions if message else ():
            assert message is not None
            author = message.quoted.partition(":")[0].removeprefix("@")
            rows.append({"by": message.author_id, "reaction": emoji, "to": author})
    return rows


def _are_as_many(count: int, conversation: CheckContext) -> Verdict:
    actual = list_reactions(conversation)
    expected = f"{count} reaction{'s' if count != 1 else ''}" if count else "no reaction"
    return Verdict(len(actual) == count, expected, _describe_all(actual))


def _is_made(
    row: ReactionRow, earlier: Sequence[ReactionRow], conversation: CheckContext
) -> Verdict:
    """Check that more reactions meet the row than there are equal rows before it."""
    actual = list_reactions(conversation)
    fields = row.model_dump(include=row.model_fields_set)
    matches = [made for made in actual if all(made[name] == fields[name] for name in fields)]
    holds = len(matches) > sum(other == row for other in earlier)
    return Verdict(holds, _describe_reaction(fields), _describe_all(actual))


def _describe_all(rows: Sequence[Mapping[str, str]]) -> str:
    return "\n".join(map(_describe_reaction, rows)) or "no reaction"


def _describe_reaction(row: Mapping[str, str]) -> str:
    return " · ".join(f"{name} {value}" for name, value in row.items() if value)


def unread(expected: Mapping[str, int | Range]) -> Iterator[Check]:
    """Yield the checks on the number of messages that agents were not shown."""
    for agent, count in expected.items():
        yield Check((agent,), functools.partial(_has_unread, agent, count))


def _has_unread(agent: str, count: int | Range, conversation: CheckContext) -> Verdict:
    messages = read_marks.list_unread(conversation.conversation.events, [agent])[agent]
    listed = "".join(f"\n{message.author_id}: {message.content}" for message in messages)
    return Verdict(
        amounts.within(count, len(messages)),
        f"{amounts.describe_limit(count)} unread",
        f"{len(messages)} unread{listed}",
    )
