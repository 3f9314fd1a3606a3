"""Read the words by which programs say in plain text that they have nothing to say.

Frameworks teach their agents such markers (`NO_REPLY`), and programs print placeholders for an
empty answer (`(no content)`). Neither is text for the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena_cli.adapters.runtime import Answer
from arena_cli.errors import AgentProtocolError
from arena_cli.workspace import visible_text

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
    words = [*((word, False) for word in markers), *((word, True) for word in PLACEHOLDERS)]
    text = content.strip(_EMPHASIS + "\r\n")
    for word, is_placeholder in words:
        for ending in (text, text.rstrip(".。")):
            start = len(ending) - len(word.strip())
            if start < 0 or _normalize(ending[start:]) != _normalize(word):
                continue
            before = ending[:start].rstrip(_EMPHASIS)
            if before and not before.endswith(("\n", *_SENTENCE_ENDS)):
                continue
            if not _is_hidden(content, content.rfind(ending[start:])):
                return before.strip(), ending[start:], is_placeholder
    return content, "", False


def _is_hidden(content: str, index: int) -> bool:
    return any(start <= index < end for start, end in visible_text.find_hidden_spans(content))


def _normalize(marker: str) -> str:
    return marker.strip().translate(_BRACKETS).casefold()
