"""The texts of exchanges: the blocks by which agents ask, and what arena shows the two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arena_cli.protocol import ASK_AGAIN, ASK_ANSWER, EXCHANGE, ShownMessage
from arena_cli.transcript.exchange_events import ExchangePriority
from arena_cli.util.language import translate_message
from arena_cli.workspace.models import Language

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
    values: dict[str, str] = {}
    for option in options:
        name, sign, value = option.partition("=")
        if not sign or name not in _OPTIONS or not value or name in values:
            known = ", ".join(_OPTIONS)
            problem = f"`{option}` is no option of `ask {agent}`: there are {known}"
            return Ask(agent, text.strip(), problem=problem)
        values[name] = value
    problem = ""
    wait_s, turns = 0.0, None
    priority = _PRIORITIES.get(values.get("priority", "normal"))
    try:
        wait_s = float(values.get("wait", "0").removesuffix("s"))
        turns = int(values["turns"]) if "turns" in values else None
    except ValueError:
        problem = f"`ask {head.strip()}`: wait is a number of seconds, turns a whole number"
    if not 0 <= wait_s <= LONGEST_WAIT_S or (turns is not None and turns < 0):
        limit = f"wait is 0 to {LONGEST_WAIT_S} seconds, turns at least 0"
        problem = f"`ask {head.strip()}`: {limit}"
    if priority is None:
        problem = problem or f"`ask {head.strip()}`: priority is normal or high"
    if problem or priority is None:
        return Ask(agent, text.strip(), problem=problem)
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


def describe_step(requester: str, target: str, step: int, most: int, language: Language) -> str:
    """Return the message for an agent before its turn in an exchange."""
    is_target = step % 2 == 1
    if language == "zh":
        role = "被询问者（target）" if is_target else "询问者（requester）"
        return (
            f"这是 @{requester}（询问者）与 @{target}（被询问者）之间的直接交流，"
            f"目的是智能体之间的协作；其他成员看不到。\n你的角色：{role}。"
            f"轮次：{step} / {most}。\n只回答对方。如果没有更多要讨论的，只写 {DONE}。"
        )
    role = "target" if is_target else "requester"
    return (
        f"This is a direct exchange: @{requester} (requester) asks @{target} (target), so that "
        "they work together. Nobody else is shown it.\n"
        f"Your role: {role}. Turn: {step} / {most}.\n"
        f"Answer the other one only. If no further discussion is needed, write only {DONE}"
    )


def describe_announcement(texts: Sequence[str], language: Language) -> str:
    """Return the message for the agent that was asked, at the end; `texts` are all messages."""
    if language == "zh":
        heading = (
            f"直接交流已结束。请为整个小组写一条简短的消息，让没有看到交流、不懂技术的人也明白结果。"
            f"没有值得宣布的，只写 {DONE}。"
        )
        labels = ("最初的请求", "第一个回答", "最近的讨论")
    else:
        heading = (
            "The direct exchange is over. Write one short message that announces its result to the "
            "group: a clear summary, also for people who are not technical and have not seen it. "
            f"If there is nothing to announce, write only {DONE}"
        )
        labels = ("Original request", "First answer", "Latest message")
    pieces = zip(labels, (texts[0], texts[1], texts[-1]), strict=True)
    return "\n\n".join([heading, *(f"{label}:\n{_quote(text)}" for label, text in pieces)])


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def describe_outcome(agent: str, exchange: str, text: str, language: Language) -> str:
    """Return the answer to a block for the agent that wrote it."""
    name = agent.lstrip("@")
    heading = (
        f"交流 {exchange}，关于你对 @{name} 的提问："
        if language == "zh"
        else f"Exchange {exchange}, about what you asked @{name}:"
    )
    return f"{heading}\n{text}"


def make_answers(
    told: Sequence[str], rest: str, timestamp: str, language: Language
) -> list[ShownMessage]:
    """Return the messages for an agent that asked within a text; `rest` is its other text."""
    answers = [make_note(text, timestamp, ASK_ANSWER) for text in told]
    return [*answers, make_note(_describe_draft(rest, language), timestamp, ASK_AGAIN)]


def _describe_draft(text: str, language: Language) -> str:
    if language == "zh":
        again = "现在请写出你的完整回复；之前的文字没有发出。"
        return f"{again}\n{_quote(text)}" if text else again
    again = "Write your complete reply now; what you wrote before was not sent."
    return f"{again}\n{_quote(text)}" if text else again


def describe_failure(end: str, target: str, reason: str, language: Language) -> str:
    """Return why an agent gets no answer."""
    if language == "zh":
        heading = {"refused": "没有提问", "timeout": f"{target} 没有及时回答"}
        why = translate_message(reason, language)
        return f"{heading.get(end, f'{target} 没能回答')}：{why}"
    heading = {"refused": "nobody was asked", "timeout": f"{target} did not answer in time"}
    return f"{heading.get(end, f'{target} could not answer')}: {reason}"


def describe_nothing(target: str, language: Language) -> str:
    """Return the message for an agent if the other one has nothing to say."""
    return f"{target} 没有要补充的。" if language == "zh" else f"{target} has nothing to say."


def describe_accepted(exchange: str, target: str, language: Language) -> str:
    """Return the message for an agent that does not wait for the answer."""
    if language == "zh":
        return f"已接受：与 {target} 的交流 {exchange} 会在你的回复之后进行。"
    return f"accepted: exchange {exchange} with {target} takes place after your reply"


def describe_late(
    exchange: str, target: str, wait_s: float, language: Language, *, may_fetch: bool
) -> str:
    """Return the message for an agent that no longer waits; the work on the answer continues."""
    if language == "zh":
        later = (
            "用 wait_for_agent 可以取回回答" if may_fetch else "之后的回答会在你下次被调用时显示"
        )
        return f"{target} 在 {wait_s:g} 秒内没有回答；交流 {exchange} 仍在进行：{later}。"
    later = "you will see the answer when you are called next"
    if may_fetch:
        later = "wait_for_agent gets the answer"
    return f"{target} did not answer in {wait_s:g} s; exchange {exchange} goes on: {later}."


def describe_left(target: str, language: Language) -> str:
    """Return the message for an agent about an exchange of a turn that was stopped."""
    if language == "zh":
        return f"{target} 没有回答：那一轮已经停止。"
    return f"{target} has not answered: the turn was stopped."


def describe_interruption(requester: str, question: str, answer: str, language: Language) -> str:
    """Return what reminds an agent at work of an urgent question, and of what it answered."""
    texts = (_quote(question), _quote(answer))
    if language == "zh":
        return "在你工作期间，@{} 直接问了你：\n{}\n你已经回答：\n{}".format(requester, *texts)
    return "While you worked, @{} asked you:\n{}\nYou answered:\n{}".format(requester, *texts)


def describe_talk(exchange: str, texts: Sequence[tuple[str, str]], language: Language) -> str:
    """Return the messages of an exchange, each with its author."""
    lines = [f"@{author}:\n{_quote(text)}" for author, text in texts]
    heading = f"交流 {exchange}：" if language == "zh" else f"Exchange {exchange}:"
    return "\n".join([heading, *lines])
