"""The texts of exchanges: the blocks by which agents ask, and what arena shows the two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arena_cli.protocol import ASK_AGAIN, ASK_ANSWER, EXCHANGE, ShownMessage
from arena_cli.transcript.exchange_events import ExchangePriority
from arena_cli.util.language import Language, Texts

MARK = "```ask"
"""The beginning of a block by which an agent asks another one."""

DONE = "<done/>"
"""The word by which an agent ends an exchange."""

LONGEST_WAIT_S = 3_600

_BLOCK = re.compile(
    r"^(?P<fence>`{3,})ask[ \t]+(?P<head>[^\n]*)\n(?P<text>.*?)^(?P=fence)[ \t]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


_OPTIONS = ("wait", "turns", "key", "priority")
_PRIORITIES: Mapping[str, ExchangePriority] = {"normal": "normal", "high": "high"}


class Ask(NamedTuple):
    """What an agent asks: the agent, the text, and how long it waits (0: it does not).

    A `problem` is the reason why it cannot be asked.
    """

    agent: str
    message: str
    wait_s: float = 0
    max_turns: int | None = None
    key: str = ""
    priority: ExchangePriority = "normal"
    problem: str = ""


def read_blocks(text: str) -> tuple[str, list[Ask]]:
    """Return a text without its `ask` blocks, and what each of them asks."""
    if MARK not in text:
        return text, []
    blocks = [_read_block(match["head"], match["text"]) for match in _BLOCK.finditer(text)]
    if not blocks:
        return text, []
    return re.sub(r"\n{3,}", "\n\n", _BLOCK.sub("", text)).strip(), blocks


def _read_block(head: str, text: str) -> Ask:
    agent, *options = head.split()
    asked = Ask(agent, text.strip())
    values: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in _OPTIONS or not value or name in values:
            known = ", ".join(_OPTIONS)
            problem = f"`{option}` is no option of `ask {agent}`: there are {known}"
            return asked._replace(problem=problem)
        values[name] = value
    try:
        wait_s = float(values.get("wait", "0").removesuffix("s"))
        turns = int(values["turns"]) if "turns" in values else None
    except ValueError:
        problem = f"`ask {head.strip()}`: wait is a number of seconds, turns a whole number"
        return asked._replace(problem=problem)
    if not 0 <= wait_s <= LONGEST_WAIT_S or (turns is not None and turns < 0):
        limit = f"wait is 0 to {LONGEST_WAIT_S} seconds, turns at least 0"
        return asked._replace(problem=f"`ask {head.strip()}`: {limit}")
    priority = _PRIORITIES.get(values.get("priority", "normal"))
    if priority is None:
        return asked._replace(problem=f"`ask {head.strip()}`: priority is normal or high")
    return Ask(agent, text.strip(), wait_s, turns, values.get("key", ""), priority)


def cut_done(text: str) -> tuple[str, bool]:
    """Return a text without `<done/>` at its end, and whether it was there."""
    stripped = text.strip().strip("`*_ \n")
    if not stripped.casefold().endswith(DONE):
        return text, False
    return stripped[: -len(DONE)].rstrip(), True


def make_note(text: str, timestamp: str, name: str = "m0") -> ShownMessage:
    """Return what arena tells an agent about an exchange, after all other messages."""
    return ShownMessage(
        id=name,
        author_id=EXCHANGE,
        author_name=EXCHANGE,
        author_type="system",
        content=text,
        timestamp=timestamp,
        role="user",
    )


def describe_step(requester: str, target: str, step: int, most: int, say: Texts) -> str:
    """Return the message for an agent before its turn in an exchange."""
    scene = say(
        "This is a direct exchange: @{requester} (requester) asks @{target} (target), so that they "
        "work together. Nobody else is shown it.",
        requester=requester,
        target=target,
    )
    if step % 2:
        role = say("Your role: target. Turn: {step} / {most}.", step=step, most=most)
    else:
        role = say("Your role: requester. Turn: {step} / {most}.", step=step, most=most)
    end = say(
        "Answer the other one only. If no further discussion is needed, write only {done}",
        done=DONE,
    )
    return f"{scene}\n{role}\n{end}"


def describe_announcement(texts: Sequence[str], say: Texts) -> str:
    """Return the message for the agent that was asked, at the end; `texts` are all messages."""
    heading = say(
        "The direct exchange is over. Write one short message that announces its result to the "
        "group: a clear summary, also for people who are not technical and have not seen it. If "
        "there is nothing to announce, write only {done}",
        done=DONE,
    )
    request, first, latest = say("Original request:"), say("First answer:"), say("Latest message:")
    pieces = ((request, texts[0]), (first, texts[1]), (latest, texts[-1]))
    return "\n\n".join([heading, *(f"{label}\n{quote(text)}" for label, text in pieces)])


def quote(text: str) -> str:
    """Return a text with a mark before each line."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def make_answers(
    told: Sequence[str], rest: str, timestamp: str, language: Language
) -> list[ShownMessage]:
    """Return the messages for an agent that asked within a text; `rest` is its other text."""
    again = Texts(language)("Write your complete reply now; what you wrote before was not sent.")
    draft = f"{again}\n{quote(rest)}" if rest else again
    answers = [make_note(text, timestamp, ASK_ANSWER) for text in told]
    return [*answers, make_note(draft, timestamp, ASK_AGAIN)]
