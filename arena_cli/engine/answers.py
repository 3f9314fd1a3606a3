"""Read an agent's answer: its markers of silence, and the agents that it calls.

A reply that is nothing but a marker of silence passes. Frameworks teach their agents such markers
(`NO_REPLY`), and programs print placeholders for an empty answer (`(no content)`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from arena_cli.adapters.runtime import Answer
from arena_cli.errors import AgentProtocolError
from arena_cli.protocol import AgentOutput
from arena_cli.workspace import visible_text
from arena_cli.workspace.mentions import Roster, parse_mentions, resolve_mentions
from arena_cli.workspace.models import Member, Team

PLACEHOLDERS = (
    *("(no content)", "(no response)", "(empty response)", "(empty message)", "(empty reply)"),
    *("No response requested.", "(空回复)", "(空响应)", "(无响应)"),
)

_BRACKETS = str.maketrans("[]【】（）", "()()()")
_EMPHASIS = "*_ \t"
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "…")


def read_silence(answer: Answer, markers: Sequence[str], agent_id: str) -> Answer:
    """Return the answer without a marker or placeholder at its end.

    An answer that is nothing but one of the team's `markers` is declined. `metadata.silence` keeps
    what was removed. Raises AgentProtocolError if there is nothing but a placeholder.
    """
    output = answer.output
    if answer.declined:
        return answer
    content, word, is_placeholder = _cut_marker(output.content, markers)
    if not word:
        return answer
    metadata = {**output.metadata, "silence": word}
    output = output.model_copy(update={"content": content, "metadata": metadata})
    has_answer = content or output.structured or output.attachments
    if is_placeholder and not has_answer:
        raise AgentProtocolError(
            agent_id,
            f"answered nothing, only the placeholder {word}",
            mend="if it means silence, add it to `silence` of the team",
            metadata=metadata,
        )
    return Answer(output, declined=not has_answer)


def _cut_marker(content: str, markers: Sequence[str]) -> tuple[str, str, bool]:
    """Return the content before a marker at its end, the marker, and whether it is a placeholder.

    A marker counts alone in its line or after a sentence, and not in code or a quote.
    """
    text = content.strip(_EMPHASIS + "\r\n")
    unended = text.rstrip(".。")
    markings = _list_markings(tuple(markers))
    if not any(_normalize_marker(ending[-1:]) in markings.last_signs for ending in (text, unended)):
        return content, "", False
    for length, normalized, is_placeholder in markings.words:
        for ending in (text, unended):
            start = len(ending) - length
            if start < 0 or _normalize_marker(ending[start:]) != normalized:
                continue
            before = ending[:start].rstrip(_EMPHASIS)
            if before and not before.endswith(("\n", *_SENTENCE_ENDS)):
                continue
            if not _is_hidden(content, content.rfind(ending[start:])):
                return before.strip(), ending[start:], is_placeholder
    return content, "", False


class _Markings(NamedTuple):
    """Markers and placeholders: the length of each, its normalized text, and whether it is one.

    `last_signs` are the signs that they end with: nearly every answer ends with another one.
    """

    words: tuple[tuple[int, str, bool], ...]
    last_signs: frozenset[str]


@lru_cache(maxsize=64)
def _list_markings(markers: Sequence[str]) -> _Markings:
    pairs = [*((word, False) for word in markers), *((word, True) for word in PLACEHOLDERS)]
    words = [(len(word.strip()), _normalize_marker(word), is_it) for word, is_it in pairs]
    signs = (_normalize_marker(word.strip()[-1:]) for word, _ in pairs)
    return _Markings(tuple(words), frozenset(signs))


def _is_hidden(content: str, index: int) -> bool:
    return any(start <= index < end for start, end in visible_text.find_hidden_spans(content))


def _normalize_marker(marker: str) -> str:
    return marker.strip().translate(_BRACKETS).casefold()


ALL_REFUSED = "agents_may_mention_all is false"
MAY_MENTION = "not in may_mention"


NOT_IN_THREAD = "it is not in the thread of the task"


class CalledAgents(NamedTuple):
    """The ids that an answer names.

    `mentions` are those in the message, including humans; `next_mentions` are the agents that it
    calls.
    """

    mentions: tuple[str, ...]
    next_mentions: tuple[str, ...]
    refused: dict[str, str]
    unresolved: tuple[str, ...]

    def without(self, refused: Mapping[str, str]) -> CalledAgents:
        """Return them without agents that may not be called, with the reasons."""
        calls = tuple(name for name in self.next_mentions if name not in refused)
        return self._replace(next_mentions=calls, refused={**self.refused, **refused})


def resolve_calls(
    output: AgentOutput, member: Member, team: Team, roster: Roster, *, opener: str
) -> CalledAgents:
    """Return the ids that an agent's answer mentions and calls; `opener` is the human of the chain.

    Humans that only `next_mentions` names are among the mentions too: the chain waits for them.
    """
    mentioned = parse_mentions(output.content, roster, author=member.id, opener=opener)
    added = resolve_mentions(output.next_mentions, roster, author=member.id, opener=opener)
    agents = roster.member_ids
    by_name = ({*mentioned.ids} - mentioned.by_all_only) | ({*added.ids} - added.by_all_only)
    allowed = member.profile.may_mention
    called: list[str] = []
    refused: dict[str, str] = {}
    for name in dict.fromkeys((*mentioned.ids, *added.ids)):
        if name not in agents:
            continue
        if name not in by_name and not team.config.agents_may_mention_all:
            refused[name] = ALL_REFUSED
        elif allowed is not None and name not in allowed:
            refused[name] = MAY_MENTION
        else:
            called.append(name)
    humans = [name for name in added.ids if name not in agents]
    return CalledAgents(
        mentions=tuple(dict.fromkeys((*mentioned.ids, *humans))),
        next_mentions=tuple(called),
        refused=refused,
        unresolved=tuple(dict.fromkeys((*mentioned.unresolved, *added.unresolved))),
    )
