"""How many facts of a long talk are still in what an agent is shown, after summaries.

    python benchmarks/compaction.py

Each talk, English or Chinese, is played through real sessions from a seed: 40 facts among chatter
that has numbers and names too, some of them decisions and requirements, which rules note and pin,
some of them tasks and blockers, which rules note. No agent summarises: it is the extractive
summary's share. In the end each fact is asked for, in words that do not hold its answer, and it is
looked for in all that the agent is shown then: summary, pinned messages, notes that were found,
messages. `cut` is what the newest messages alone hold, in as many tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from arena_cli.adapters.base import Health, SessionConfig, Settings, Setup
from arena_cli.context import render
from arena_cli.context.tokens import estimate
from arena_cli.protocol import AgentInput, AgentOutput, Emit, ShownMessage
from arena_cli.session.outgoing import outgoing
from arena_cli.session.session import Session
from arena_cli.transcript.events import Compacted, Event, MessageEvent, ReplyFinished, ReplyStarted
from arena_cli.workspace.models import (
    AgentProfile,
    ContextSettings,
    Language,
    Member,
    Team,
    TeamConfig,
)

FACTS = 40
TURNS = 160
WINDOW = 6_000

Kind = Literal["pinned", "noted", "plain"]


class Fact(NamedTuple):
    """What is said, what is asked later, and the words that the answer must hold."""

    kind: Kind
    said: str
    asked: str
    answer: str


class Words(NamedTuple):
    """What a language's talk is made of. Templates of facts by kind: said, asked; `{x}` is the
    answer, of `answers` by the template's place."""

    parts: Sequence[str]
    areas: Sequence[str]
    templates: dict[Kind, Sequence[tuple[str, str, str]]]
    chatter: Sequence[str]
    opening: str


NAMES = ("Ada", "Boris", "Chen Wei", "Dilek", "Emeka", "Fumiko", "Greta", "Hassan")
CITIES = ("Lisbon", "Osaka", "Tallinn", "Quito", "Nairobi", "Perth", "Lyon", "Turin")
TOOLS = ("PostgreSQL", "Redis", "Kafka", "SQLite", "RabbitMQ", "MinIO", "Vault", "Consul")
PLACES = ("成都", "西安", "厦门", "青岛", "长沙", "昆明", "苏州", "合肥")
PEOPLE = ("王敏", "李雷", "赵倩", "孙浩", "周洁", "吴刚", "郑爽", "冯远")
BIRDS: dict[Language, Sequence[str]] = {
    "en": ("falcon", "heron", "wren", "plover", "linnet", "magpie"),
    "zh": ("苍鹰", "白鹭", "鹪鹩", "麻雀", "喜鹊", "鸿雁"),
}
COLOURS: dict[Language, Sequence[str]] = {
    "en": ("green", "grey", "orange", "violet", "yellow"),
    "zh": ("绿色", "灰色", "橙色", "紫色", "黄色"),
}
BEFORE: dict[Language, Sequence[str]] = {
    "en": (
        "",
        "well, ",
        "to be honest, ",
        "as I said to {who}, ",
        "for now, ",
        "after {n} tries, ",
    ),
    "zh": ("", "嗯，", "说实话，", "我跟{who}说过，", "目前来说，", "试了 {n} 次以后，"),
}

WORDS: dict[Language, Words] = {
    "en": Words(
        parts=("gateway", "store", "queue", "worker", "dashboard"),
        areas=("billing", "search", "audit", "login", "report", "media", "invoice", "export"),
        templates={
            "pinned": (
                (
                    "Decision: the {thing} will be built on {x}.",
                    "What is the {thing} built on?",
                    "tool",
                ),
                (
                    "Requirement: the {thing} must answer within {x} ms.",
                    "How fast must the {thing} answer?",
                    "number",
                ),
            ),
            "noted": (
                ("TODO: move the {thing} to {x}.", "Where is the {thing} to be moved to?", "city"),
                (
                    "Blocker: the {thing} cannot start until {x} gives the key.",
                    "Who holds up the {thing}?",
                    "name",
                ),
            ),
            "plain": (
                (
                    "The {thing} listens on port {x}.",
                    "On which port does the {thing} listen?",
                    "number",
                ),
                ("Only {x} knows how the {thing} works inside.", "Who knows the {thing}?", "name"),
                (
                    "Backups of the {thing} go to {x}.",
                    "Where do backups of the {thing} go?",
                    "city",
                ),
                (
                    "The {thing} keeps its data for {x} days.",
                    "How long does the {thing} keep data?",
                    "number",
                ),
                (
                    "Before the rewrite, the {thing} went by the name of {x}.",
                    "What was the {thing} called before the rewrite?",
                    "word",
                ),
                (
                    "By the way, it is the {x} cable that goes into the {thing}, not the other.",
                    "Which cable goes into the {thing}?",
                    "colour",
                ),
            ),
        },
        chatter=(
            "I have read it through twice and it looks fine so far",
            "let us keep going and see how it turns out in the end",
            "that took longer than expected, about {n} minutes all in all",
            "maybe we can talk about it again tomorrow after lunch",
            "I ran the tests once more and nothing new came up",
            "the page is a little slow today but it works",
            "thanks, that helps a lot with what I am doing now",
            "I would not change anything here before the next review",
            "there were {n} comments on it, none of them serious",
            "{who} had a look as well and was happy with the shape of it",
            "it is the same as last week, only with better names",
            "fine with me, we can come back to it later if we must",
        ),
        opening="Please build the platform for our customers, step by step.",
    ),
    "zh": Words(
        parts=("网关", "仓库", "队列", "任务机", "看板"),
        areas=("计费", "搜索", "审计", "登录", "报表", "媒体", "发票", "导出"),
        templates={
            "pinned": (
                ("决定：{thing}采用 {x} 实现。", "{thing}用什么实现？", "tool"),
                ("需求：{thing}必须在 {x} 毫秒内响应。", "{thing}的响应时间要求是多少？", "number"),
            ),
            "noted": (
                ("待办：把{thing}迁移到{x}机房。", "{thing}要迁移到哪里？", "city"),
                ("阻塞：{thing}要等{x}提供密钥才能上线。", "{thing}在等谁？", "name"),
            ),
            "plain": (
                ("{thing}监听的端口是 {x}。", "{thing}的端口是多少？", "number"),
                ("{thing}的内部结构只有{x}清楚。", "谁了解{thing}的内部结构？", "name"),
                ("{thing}的备份放在{x}。", "{thing}的备份放在哪里？", "city"),
                ("{thing}的数据保留 {x} 天。", "{thing}的数据保留多久？", "number"),
                ("重写以前，{thing}叫{x}。", "重写以前{thing}叫什么？", "word"),
                (
                    "顺便说一下，接到{thing}上的是{x}的线，不是别的。",
                    "{thing}上接的是什么线？",
                    "colour",
                ),
            ),
        },
        chatter=(
            "我又看了一遍，目前没有发现别的情况",
            "先这样继续做，看看最后效果怎么样",
            "比预想的久了一些，前后花了大概 {n} 分钟",
            "也许明天午饭以后可以再聊一聊",
            "测试又跑了一次，结果和之前一样",
            "页面今天有点慢，不过还能用",
            "谢谢，这对我现在做的很有帮助",
            "下次评审之前这里先不动",
            "一共收到 {n} 条意见，都不严重",
            "{who}也看过了，觉得结构挺好",
            "和上周一样，只是名字更清楚了",
            "我没有意见，之后需要的话再回来看",
        ),
        opening="请一步一步地为客户搭建这个平台。",
    ),
}


def facts_of(language: Language, chance: random.Random) -> list[Fact]:
    """40 facts about 40 things: 10 are pinned, 10 noted, 20 plain; in a random order."""
    words = WORDS[language]
    gap = " " if language == "en" else ""
    things = [f"{area}{gap}{part}" for area in words.areas for part in words.parts]
    chance.shuffle(things)
    kinds: list[Kind] = ["pinned"] * 10 + ["noted"] * 10 + ["plain"] * 20
    found = []
    for index, (kind, thing) in enumerate(zip(kinds, things, strict=True)):
        said, asked, of = words.templates[kind][index % len(words.templates[kind])]
        answer = {
            "number": lambda: str(chance.randrange(1_100, 9_900)),
            "name": lambda: chance.choice(NAMES if language == "en" else PEOPLE),
            "city": lambda: chance.choice(CITIES if language == "en" else PLACES),
            "tool": lambda: chance.choice(TOOLS),
            "word": lambda: chance.choice(BIRDS[language]),
            "colour": lambda: chance.choice(COLOURS[language]),
        }[of]()
        found.append(
            Fact(kind, said.format(thing=thing, x=answer), asked.format(thing=thing), answer)
        )
    chance.shuffle(found)
    return found


def talk_of(language: Language, facts: Sequence[Fact], chance: random.Random) -> Iterator[str]:
    """What is said in turn, by the human and the agent: chatter, and each fact once, in the first
    fifteen sixteenths of it."""
    words = WORDS[language]
    places = dict(
        zip(sorted(chance.sample(range(1, TURNS * 15 // 8), len(facts))), facts, strict=True)
    )
    end, gap = (".", " ") if language == "en" else ("。", "")
    for index in range(TURNS * 2):
        said = [
            _small_talk(one, language, chance) + end
            for one in chance.sample(list(words.chatter), 4)
        ]
        if index == 0:
            said.insert(0, words.opening)
        elif index in places:
            said.insert(chance.randrange(len(said)), places[index].said)
        yield gap.join(said)


def _small_talk(said: str, language: Language, chance: random.Random) -> str:
    name = chance.choice(NAMES if language == "en" else PEOPLE)
    text = (chance.choice(BEFORE[language]) + said).format(n=chance.randrange(10, 90), who=name)
    return text[0].upper() + text[1:]


class Told(NamedTuple):
    """What came of one talk; `cut` is plain truncation. Seconds are those of all summaries."""

    kept: Counter[Kind]
    cut: Counter[Kind]
    all: Counter[Kind]
    compacted: list[Compacted]
    tokens: int
    seconds: float


def played(language: Language, seed: int, workspace: Path) -> Told:
    """One talk from its beginning to the questions at its end."""
    chance = random.Random(seed)
    facts = facts_of(language, chance)
    said = list(talk_of(language, facts, chance))
    asked = chance.sample(facts, len(facts))
    profile = AgentProfile(
        agent_id="dev",
        adapter={"type": "told"},
        context=ContextSettings(window_tokens=WINDOW, reserved_output_tokens=500),
    )
    team = Team(None, (Member(profile, "dev"),), config=TeamConfig())
    speaker = _Speaker([*said[1::2], *["Let me see." if language == "en" else "我看看。"] * FACTS])
    place = SessionConfig(
        workspace, durability="flush", language=language, adapter_type=lambda _: speaker.adapter()
    )
    heard: list[Event] = []
    began = time.perf_counter()
    with Session(place, "talk", team, on_event=heard.append) as session:

        async def talk() -> None:
            for text in [*said[0::2], *(fact.asked for fact in asked)]:
                await session.send(outgoing(team, text))
            await session.stop()

        asyncio.run(talk())
    seconds = time.perf_counter() - began
    kept: Counter[Kind] = Counter()
    cut: Counter[Kind] = Counter()
    messages = [
        event.message.content
        for event in heard
        if isinstance(event, MessageEvent | ReplyFinished) and event.message
    ]
    for number, (fact, shown) in enumerate(zip(asked, speaker.inputs[-FACTS:], strict=True)):
        told = [message.content for message in shown.messages[:-1]] + [shown.memory_context or ""]
        kept[fact.kind] += any(_tells(fact, text) for text in told)
        newest = _newest(messages[: TURNS * 2 + number * 2], shown)
        cut[fact.kind] += any(_tells(fact, text) for text in newest)
    compacted = [event for event in heard if isinstance(event, Compacted)]
    used = max(event.input_tokens for event in heard if isinstance(event, ReplyStarted))
    return Told(kept, cut, Counter(fact.kind for fact in facts), compacted, used, seconds)


def _tells(fact: Fact, text: str) -> bool:
    """Whether a line of a text says what the fact says."""
    sure = fact.said.rstrip(".。").partition(": ")[2] or fact.said.rstrip(".。").partition("：")[2]
    return (sure or fact.said.rstrip(".。")) in text


def _newest(said: Sequence[str], agent_input: AgentInput) -> list[str]:
    """The newest texts that fit into the tokens that were spent on messages and memory."""
    room = sum(estimate(render.frame(message)) + 1 for message in agent_input.messages[:-1])
    room += estimate(agent_input.memory_context or "")
    found = []
    for text in reversed(said):
        shown_message = ShownMessage(
            **{**vars(agent_input.messages[-1]), "content": text}  # framed as those are
        )
        room -= estimate(render.frame(shown_message)) + 1
        if room < 0:
            break
        found.append(text)
    return found


class _Speaker:
    """Says these texts, one a call, and keeps what it was shown."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.inputs: list[AgentInput] = []
        self._answers = answers

    def adapter(self) -> Any:
        """The kind of agent that it is."""
        speaker = self

        class Speaking:
            settings_type = Settings

            def __init__(self, setup: Setup) -> None: ...

            async def start(self) -> None: ...

            async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
                speaker.inputs.append(input)
                return AgentOutput(content=speaker._answers[len(speaker.inputs) - 1])

            async def health(self) -> Health:
                return Health(True)

            async def stop(self) -> None: ...

        return Speaking


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=2)
    chosen = options.parse_args()
    kept: Counter[Kind] = Counter()
    every: Counter[Kind] = Counter()
    for language in WORDS:
        for seed in range(1, chosen.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                told = played(language, seed, Path(folder))
            held = [one for one in told.compacted if not one.rolled_back]
            print(
                f"{language}, seed {seed}: {TURNS * 2} messages, {len(held)} summaries"
                f" ({len(told.compacted) - len(held)} rolled back), {told.tokens} tokens shown"
                f" at most, {told.seconds:.1f} s"
            )
            for kind in ("pinned", "noted", "plain"):
                shown, by_cut, all_ = told.kept[kind], told.cut[kind], told.all[kind]
                print(f"  {kind:7} {shown:3} of {all_}, cut {by_cut:3}")
            kept += told.kept
            every += told.all
    others = (kept["noted"] + kept["plain"]) / (every["noted"] + every["plain"])
    print(f"pinned {kept['pinned'] / every['pinned']:.0%}, others {others:.0%} (aim: 100 %, 85 %)")


if __name__ == "__main__":
    main()
