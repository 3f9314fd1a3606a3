"""Read an agent's output: its thinking, its decision, and whether it declined."""

from __future__ import annotations

import bisect
import json
import operator
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import ValidationError

from arena_cli.protocol import AgentOutput, Invocation, Shape
from arena_cli.util.text import clean_text, clean_value, cut_text, lazy_pattern
from arena_cli.workspace import visible_text
from arena_cli.yamlio.schema_errors import explain_first

_THINKING = lazy_pattern(r"<(/?)(think|thinking)\s{0,8}>", re.IGNORECASE)
_ONLY_ENDED = lazy_pattern(r"^[ \t]*</think(?:ing)?\s{0,8}>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_PASS = lazy_pattern(r"<pass\s{0,8}/>", re.IGNORECASE)
_FENCE = lazy_pattern(r"(`{3,}|~{3,})[^\n]*\n(.*)\n[ \t]*\1", re.DOTALL)

# A block of thinking that holds marks of code changes what is code after it, so that the rest is
# looked at anew; at most so many times, so that the time stays linear.
_MOST_ROUNDS = 8


class Reading(NamedTuple):
    """An output as read.

    `output` is the part to show and keep; `declined` means that the agent chose silence; `error` is
    why it is not a valid answer, None if it is. A declined answer has no error.
    """

    output: AgentOutput
    declined: bool
    error: str | None


def read(output: AgentOutput, invocation: Invocation, *, may_be_empty: bool = False) -> Reading:
    """Read the output of an agent that was called with `invocation`.

    `<think>` and `<thinking>` blocks are first moved into `metadata["thinking"]`. A content that is
    entirely a JSON object with `should_respond` is read as an `AgentOutput`. `<pass/>` is removed,
    and means silence if nothing else is left. Tags count in visible text only
    (`visible_text.find_hidden_spans`). Without `may_be_empty`, an answer of nothing is an error.
    """
    answer, error = move_thinking(_cleaned(output))
    decision = _decision(answer.content)
    if decision is not None and error is None:
        try:
            answer, error = move_thinking(_cleaned(_merged(answer, decision)))
        except ValidationError as fault:
            return Reading(
                answer, declined=False, error=f"its decision cannot be read: {explain_first(fault)}"
            )
    answer, passed = _without_pass(answer)
    if answer.tool_calls:
        return Reading(answer, declined=False, error=error)
    if answer.should_respond is False or (passed and not _says_something(answer)):
        return Reading(answer, declined=True, error=None)
    if error is None and answer.should_respond is None:
        if invocation == "may_reply":
            return Reading(answer, declined=True, error=None)
        raw_value = answer.metadata.get("should_respond")
        excerpt = cut_text(json.dumps(raw_value, ensure_ascii=False, default=repr), 80)
        error = f"should_respond is {excerpt}, expected true or false"
    if error is None and not may_be_empty and not _says_something(answer):
        error = "answered nothing"
    return Reading(answer, declined=False, error=error)


def _cleaned(output: AgentOutput) -> AgentOutput:
    """Return the output as valid Unicode and plain JSON, flagged if anything was replaced."""
    update: dict[str, Any] = {}
    replaced = False
    for name in (
        *("content", "next_mentions", "status_updates", "attachments", "structured"),
        "tool_calls",
    ):
        value = getattr(output, name)
        if value:
            cleaned, changed = _cleaned_part(value)
            replaced = replaced or changed
            if cleaned != value:
                update[name] = cleaned
    if output.metadata:
        update["metadata"], changed = clean_value(output.metadata)
        replaced = replaced or changed
    if replaced:
        update["metadata"] = {**update.get("metadata", {}), "replaced_characters": True}
    return output.model_copy(update=update) if update else output


def _cleaned_part(value: Any) -> tuple[Any, bool]:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        pairs = [_cleaned_part(item) for item in value]
        return [item for item, _ in pairs], any(changed for _, changed in pairs)
    if isinstance(value, Shape):
        fields, changed = clean_value(dict(value))
        return value.model_copy(update=fields), changed
    return clean_value(value)


def move_thinking(output: AgentOutput) -> tuple[AgentOutput, str | None]:
    """Return the output with its thinking in `metadata`, and an error if that never ends."""
    if ">" not in output.content or not _THINKING.search(output.content):
        return output, None
    content, thoughts, closed = _split_thinking(output.content)
    if content == output.content:
        return output, None
    earlier = output.metadata.get("thinking")
    all_thoughts = [earlier, *thoughts] if isinstance(earlier, str) else thoughts
    metadata = {
        **output.metadata,
        "thinking": "\n\n".join(thought for thought in all_thoughts if thought),
    }
    if not closed:
        metadata["unclosed_thinking"] = True
    output = output.model_copy(update={"content": content.strip(), "metadata": metadata})
    return output, None if closed else "thinking was never closed"


def _split_thinking(content: str) -> tuple[str, list[str], bool]:
    """Return the content without its thinking, the thinking blocks, and whether all were closed."""
    thoughts: list[str] = []
    first = _THINKING.search(content)
    if first and first[1]:
        # Some servers write the opening tag into the prompt, so that only the closing one comes.
        ended = next(_visible(_ONLY_ENDED, content), None)
        if ended and ended.start() <= first.start():
            thoughts.append(content[: ended.start()].strip())
            content = content[ended.end() :]
    for rounds_left in reversed(range(_MOST_ROUNDS)):
        content, blocks, unclosed = _take_blocks(content, stop_at_code=rounds_left > 0)
        thoughts += blocks
        if unclosed is not None:
            return content, [*thoughts, unclosed], False
        if not blocks:
            break
    return content, thoughts, True


def _take_blocks(content: str, *, stop_at_code: bool) -> tuple[str, list[str], str | None]:
    """Return the content without blocks, the blocks, and the text of an unclosed block."""
    texts: list[str] = []
    thoughts: list[str] = []
    kept_from = 0
    opening: re.Match[str] | None = None
    hidden = visible_text.find_hidden_spans(content)
    for tag in _THINKING.finditer(content):
        if opening is None:
            opening = None if tag[1] or _within(hidden, tag.start()) else tag
        elif tag[1] and tag[2].lower() == opening[2].lower():
            thought = content[opening.end() : tag.start()]
            texts.append(content[kept_from : opening.start()])
            thoughts.append(thought.strip())
            kept_from = tag.end()
            opening = None
            if stop_at_code and ("`" in thought or "~" in thought):
                break
    unclosed = None if opening is None else content[opening.end() :].strip()
    texts.append(content[kept_from : None if opening is None else opening.start()])
    return "".join(texts), thoughts, unclosed


def _decision(content: str) -> dict[str, Any] | None:
    """Return the JSON object with `should_respond` if the whole content is one."""
    body = content.strip()
    if "should_respond" not in body or not body.endswith(("}", "`", "~")):
        return None
    fenced = _FENCE.fullmatch(body)
    try:
        value = json.loads(fenced[2] if fenced else body, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "should_respond" in value else None


def _merged(output: AgentOutput, decision: dict[str, Any]) -> AgentOutput:
    """Return the decision as the output, with the adapter's own data about the call.

    Raises ValidationError if a part of the decision has the wrong shape.
    """
    decided = AgentOutput.model_validate(decision)
    return decided.model_copy(
        update={
            "next_mentions": [*output.next_mentions, *decided.next_mentions],
            "status_updates": [*output.status_updates, *decided.status_updates],
            "attachments": [*output.attachments, *decided.attachments],
            "structured": [*output.structured, *decided.structured],
            "usage": output.usage or decided.usage,
            "metadata": {**output.metadata, **decided.metadata},
        }
    )


def _without_pass(output: AgentOutput) -> tuple[AgentOutput, bool]:
    """Return the output without `<pass/>` in its visible text, and whether there was one."""
    if "/>" not in output.content:
        return output, False
    texts = []
    kept_from = 0
    for match in _visible(_PASS, output.content):
        texts.append(output.content[kept_from : match.start()])
        kept_from = match.end()
    if not texts:
        return output, False
    content = "".join([*texts, output.content[kept_from:]]).strip()
    return output.model_copy(update={"content": content}), True


def _says_something(output: AgentOutput) -> bool:
    return bool(output.content.strip() or output.structured or output.attachments)


def _visible(pattern: re.Pattern[str], content: str) -> Iterator[re.Match[str]]:
    """Yield the matches that begin in visible text."""
    matches = list(pattern.finditer(content))
    hidden = visible_text.find_hidden_spans(content) if matches else []
    return (match for match in matches if not _within(hidden, match.start()))


def _within(spans: list[tuple[int, int]], index: int) -> bool:
    """Return True if an index lies in one of the spans, which are sorted and do not overlap."""
    position = bisect.bisect_right(spans, index, key=operator.itemgetter(0)) - 1
    return position >= 0 and index < spans[position][1]
