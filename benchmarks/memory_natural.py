"""Measure how many facts of natural conversations an agent is still shown when it is asked.

    python benchmarks/memory_natural.py                    # the conversations used for tuning
    python benchmarks/memory_natural.py --set judge        # those kept apart
    python benchmarks/memory_natural.py --set field-judge  # of the second author, kept apart

Each conversation (benchmarks/data/natural) is played through a real session: people send their
messages, agents say theirs. Then each question is sent, each from the same state, and the agent's
input is searched for the fact: its words must be in one message or in one line of the memory. A
reversed fact is `stale` where the input has the old value and not the new one. `cut` is what the
newest messages alone show in the same room. `at most` is how many facts have room if the newest
messages keep their share, and the rest of the room has nothing but these facts. `prefix` is the
mean share of an input that the preceding input of the same agent begins with, over the calls of the
second half.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.context import layers, render, window
from arena_cli.context.summary import _ASKED
from arena_cli.context.tokens import estimate
from arena_cli.protocol import AgentInput, AgentOutput, Emit, ShownMessage
from arena_cli.session.outgoing import outgoing
from arena_cli.session.session import Session, SessionConfig
from arena_cli.transcript.events import Event, MessageEvent, ReplyFinished
from arena_cli.workspace.models import (
    AgentProfile,
    ContextSettings,
    Human,
    Member,
    Team,
    TeamConfig,
)

DATA = Path(__file__).parent / "data" / "natural"
SETS = {
    "tune": ("en-bakery", "mix-game", "zh-clinic"),
    "judge": ("en-radio", "mix-app", "zh-warehouse"),
    "field-tune": ("field-en-vet", "field-mix-studio", "field-zh-trip"),
    "field-judge": ("field-en-theatre", "field-zh-depot"),
}
WINDOWS = (1_500, 3_000, 6_000, 9_000)
RESERVED = 200
SUMMARIZER = "scribe"

_LIMIT = re.compile(r"(?:At most |最多 )(\d+)")
_MISSING = re.compile(r"missing: (.+?)\. Write it again|missing: (.+?)。请改正")


class Fact(NamedTuple):
    """A question, the words of the message that answers it, and those of a message it reverses."""

    ask: str
    words: Sequence[str]
    reverses: Sequence[str]


class Conversation(NamedTuple):
    """A conversation: who said what in order, and its facts."""

    name: str
    language: Any
    agents: Sequence[str]
    messages: Sequence[tuple[str, str]]
    facts: Sequence[Fact]

    @classmethod
    def read(cls, path: Path) -> Conversation:
        """Read a file."""
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
        facts = [Fact(row["ask"], row["words"], row.get("reverses", ())) for row in record["facts"]]
        messages = [(str(author), str(text)) for author, text in record["messages"]]
        return cls(path.stem, record["language"], record["agents"], messages, facts)

    @classmethod
    def join(cls, conversations: Sequence[Conversation]) -> Conversation:
        """Return the conversations as one, one after the other."""
        return cls(
            "one after another",
            "en",
            [agent for conversation in conversations for agent in conversation.agents],
            [message for conversation in conversations for message in conversation.messages],
            [fact for conversation in conversations for fact in conversation.facts],
        )

    def team(self, window_tokens: int) -> Team:
        """Return the team of the conversation, whose agents have that window."""
        context = ContextSettings(window_tokens=window_tokens, reserved_output_tokens=RESERVED)
        members = tuple(
            Member(
                AgentProfile(agent_id=f"a{number}", adapter={"type": "player"}, context=context),
                name,
            )
            for number, name in enumerate(self.agents)
        )
        people = dict.fromkeys(name for name, _ in self.messages if name not in self.agents)
        humans = tuple(Human(id=f"h{number}", name=name) for number, name in enumerate(people))
        return Team(None, members, humans=humans, config=TeamConfig(selection="none"))


class Result(NamedTuple):
    """The result of one conversation: facts shown, stale ones, and those of truncation.

    `bound` is how many facts there is room for.
    """

    shown: int
    bound: int
    cut: int
    stale: int
    cut_stale: int
    facts: int
    prefix: float
    compactions: int
    refused: int
    overflow: float


class Player:
    """An adapter type: agents say these texts, one a call; a summarizer returns the facts."""

    def __init__(self, conversation: Conversation) -> None:
        self.inputs: list[AgentInput] = []
        self.answers: list[tuple[str, tuple[str, ...]]] = []
        self._conversation = conversation

    def __call__(self, _: str) -> Any:
        """Return the class of the adapters."""
        player = self

        class Playing:
            settings_type = Settings

            def __init__(self, setup: Setup) -> None: ...

            async def start(self) -> None: ...

            async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
                return player.answer(input)

            async def health(self) -> Health:
                return Health(True)

            async def stop(self) -> None: ...

        return Playing

    def answer(self, input: AgentInput) -> AgentOutput:
        """Return the next text, or a summary."""
        if input.agent_id == SUMMARIZER:
            return AgentOutput(content=self._summary(input.messages[-1].content))
        self.inputs.append(input)
        if not self.answers:
            return AgentOutput(content="Let me see.")
        text, called = self.answers.pop(0)
        return AgentOutput(content=text, next_mentions=list(called))

    def _summary(self, question: str) -> str:
        """Return the facts of the text that a question contains, without those reversed in it.

        It heeds the limit on its length: the oldest facts are left out. When it is asked again, it
        adds what was missing.
        """
        paragraphs = question.split("\n\n")
        outdated = {_ASKED["en"].replaced, _ASKED["zh"].replaced}
        lines = [
            line
            for paragraph in paragraphs
            for line in paragraph.splitlines()
            if line.startswith("> ") and paragraph.partition("\n")[0] not in outdated
        ]
        most = int(_LIMIT.findall(question)[0])
        items = [match[1] or match[2] for match in _MISSING.finditer(question)]
        for fact in self._conversation.facts:
            new, old = _last(lines, fact.words), _last(lines, fact.reverses)
            if new >= 0 and new >= old:
                items.append(_item(fact.ask, fact.words))
            elif old >= 0:
                items.append(_item(fact.ask, fact.reverses))
        goal = lines[0].lstrip("> -").partition(".")[0][:60]
        last = lines[-1][2:60]
        while True:
            listed = "\n".join(f"- {item}" for item in items)
            summary = (
                f"# Core goal\n- {goal}\n# Important facts\n{listed}\n# Next steps\n- {last}\n"
            )
            if len(items) < 2 or estimate(summary) <= most:
                return summary
            items.pop(0)


def _item(ask: str, words: Sequence[str]) -> str:
    """Return a fact in as few words as it can be understood in."""
    return f"{ask.rstrip('?？').lower()}: {', '.join(words)}"


def _last(lines: Sequence[str], words: Sequence[str]) -> int:
    """Return the index of the last line that contains the words; -1 without one."""
    return max(
        (index for index, line in enumerate(lines) if words and _has(line, words)), default=-1
    )


def _has(text: str, words: Iterable[str]) -> bool:
    """Return True if the text contains all of the words."""
    folded = text.casefold()
    return all(word.casefold() in folded for word in words)


def play(
    conversation: Conversation, window_tokens: int, folder: Path, *, by_agent: bool = False
) -> Result:
    """Play a conversation with windows of that size, and ask for each of its facts."""
    team = conversation.team(window_tokens)
    player = Player(conversation)
    profile = AgentProfile(
        agent_id=SUMMARIZER, adapter={"type": "player"}, member=False,
        context=ContextSettings(window_tokens=32_000),
    )  # fmt: skip
    place = SessionConfig(
        folder,
        durability="flush",
        language=conversation.language,
        adapter_type=player,
        summarizer=Member(profile, SUMMARIZER) if by_agent else None,
    )
    events: list[Event] = []
    asyncio.run(_converse(conversation, team, player, place, events))
    calls = list(player.inputs)
    said = [
        event.message
        for event in events
        if isinstance(event, MessageEvent | ReplyFinished) and event.message
    ]
    if [message.content for message in said] != [text for _, text in conversation.messages]:
        raise SystemExit(f"{conversation.name}: the session is not the conversation")
    counts: Counter[str] = Counter()
    kept = folder / "sessions" / "kept"
    shutil.move(folder / "sessions" / "talk", kept)
    for fact in conversation.facts:
        shutil.copytree(kept, folder / "sessions" / "talk")
        player.inputs.clear()
        asyncio.run(_ask(team, place, fact.ask))
        shutil.rmtree(folder / "sessions" / "talk")
        shown = list(_units(player.inputs[-1]))
        counts["shown"] += _states(shown, fact.words)
        counts["stale"] += _is_stale(shown, fact)
        asked = player.inputs[-1]
        newest = [message.content for message in _newest(asked, said, team)]
        counts["bound"] = _bound(conversation, asked, said, team)
        counts["cut"] += _states(newest, fact.words)
        counts["cut stale"] += _is_stale(newest, fact)
        if os.environ.get("MISSES") and (not _states(shown, fact.words) or _is_stale(shown, fact)):
            print("     ", "STALE" if _is_stale(shown, fact) else "miss", fact.ask, fact.words)
    if os.environ.get("MISSES"):
        print(player.inputs[-1].memory_context)
    compacted = [event for event in events if event.type == "compacted"]
    if os.environ.get("MISSES"):
        print([event.rolled_back for event in compacted if event.rolled_back])  # type: ignore[attr-defined]
    refused = sum(bool(getattr(event, "rolled_back", "")) for event in compacted)
    return Result(
        counts["shown"], max(counts["bound"], counts["shown"]), counts["cut"], counts["stale"],
        counts["cut stale"], len(conversation.facts), _prefix(calls), len(compacted) - refused,
        refused, max(map(_tokens, calls)) / (window_tokens - RESERVED),
    )  # fmt: skip


async def _converse(
    conversation: Conversation, team: Team, player: Player, place: SessionConfig,
    events: list[Event],
) -> None:  # fmt: skip
    """Play the conversation in a new session."""
    ids = {member.name: member.id for member in team.members}
    people = {human.name: human.id for human in team.humans}
    runs = [list(run) for _, run in itertools.groupby(
        conversation.messages, key=lambda message: message[0] in ids)]  # fmt: skip
    with Session(place, "talk", team, on_event=events.append) as session:
        for is_agent, run in ((run[0][0] in ids, run) for run in runs):
            if is_agent:
                continue
            following = runs[runs.index(run) + 1 :][:1]
            replies = following[0] if following else []
            for author, text in run[:-1]:
                await session.send(outgoing(team, text, author=people[author]))
            callers = [ids[name] for name, _ in replies]
            player.answers = [
                (text, tuple(callers[number + 1 : number + 2]))
                for number, (_, text) in enumerate(replies)
            ]
            author, text = run[-1]
            await session.send(outgoing(team, text, author=people[author], to=callers[:1]))
        await session.stop()


async def _ask(team: Team, place: SessionConfig, question: str) -> None:
    with Session(place, "talk", team) as session:
        await session.send(outgoing(team, question, to=[team.members[0].id]))
        await session.stop()


def _units(input: AgentInput) -> Iterator[str]:
    """Yield the messages before the question, and the lines of the memory."""
    yield from (message.content for message in input.messages[:-1])
    yield from (input.memory_context or "").splitlines()


def _states(texts: Iterable[str], words: Sequence[str]) -> bool:
    return any(_has(text, words) for text in texts)


def _is_stale(texts: Sequence[str], fact: Fact) -> bool:
    """Return True if the texts contain the old value, and not the new one."""
    if not fact.reverses or _states(texts, fact.words):
        return False
    return _states(texts, fact.reverses)


def _bound(conversation: Conversation, input: AgentInput, said: Sequence[Any], team: Team) -> int:
    """Return how many facts can be shown if the newest messages keep their share of the room.

    The rest of the room then has nothing but the shortest of the other facts, one a line.
    """
    head = window.make_head(team, input.agent_id)
    room = head.room - head.tokens
    newest = _newest(input, said, team, layers.KEEP)
    texts = [message.content for message in newest]
    others = [fact for fact in conversation.facts if not _states(texts, fact.words)]
    tokens_left = room - sum(estimate(render.frame(message)) + 1 for message in newest)
    tokens_left -= estimate(render.memory_paragraph(render.BEFORE, ""))
    costs = sorted(estimate(f"- {_item(fact.ask, fact.words)}\n") for fact in others)
    fitting = sum(total <= tokens_left for total in itertools.accumulate(costs))
    return len(conversation.facts) - len(others) + fitting


def _newest(
    input: AgentInput, said: Sequence[Any], team: Team, share: float = 1.0
) -> list[ShownMessage]:
    """Return the newest messages that fit into a share of the room, next to the question."""
    head = window.make_head(team, input.agent_id)
    question = input.messages[-1]
    tokens_left = int((head.room - head.tokens) * share) - estimate(render.frame(question)) - 1
    newest: list[ShownMessage] = []
    for message in reversed(said):
        fields: Mapping[str, Any] = {**vars(message), "role": "user", "metadata": {}}
        shown_message = ShownMessage.model_validate(fields)
        tokens_left -= estimate(render.frame(shown_message)) + 1
        if tokens_left < 0:
            break
        newest.append(shown_message)
    return newest


def _prefix(calls: Sequence[AgentInput]) -> float:
    """Return the mean share of an input that begins as the agent's preceding input."""
    shares = []
    latest: dict[str, str] = {}
    for number, call in enumerate(calls):
        text = "".join(render.render(call))
        before = latest.get(call.agent_id)
        latest[call.agent_id] = text
        if before is not None and number >= len(calls) // 2:
            pairs = zip(before, text, strict=False)
            shares.append(sum(1 for _ in itertools.takewhile(_is_equal, pairs)) / len(text))
    return statistics.mean(shares) if shares else 1.0


def _is_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _tokens(input: AgentInput) -> int:
    return estimate("".join(render.render(input)))


def main() -> None:
    """Print a line for each conversation and window, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, default="tune", help="Use these conversations.")
    parser.add_argument("--agent", action="store_true", help="Let an agent summarise.")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument("names", nargs="*", help="Use only these conversations.")
    options = parser.parse_args()
    names = options.names or SETS[options.set]
    conversations = [Conversation.read(DATA / f"{name}.yaml") for name in names]
    if len(conversations) > 1:
        conversations.append(Conversation.join(conversations))
    for window_tokens in options.windows:
        results = []
        for conversation in conversations:
            with tempfile.TemporaryDirectory() as folder:
                result = play(conversation, window_tokens, Path(folder), by_agent=options.agent)
            results.append(result)
            _print(f"{window_tokens:,} {conversation.name}", result)
        if len(results) > 1:
            sums = [sum(figures) for figures in zip(*results, strict=True)]
            mean = sums[6] / len(results), *sums[7:9], max(result.overflow for result in results)
            _print(f"{window_tokens:,} all", Result(*sums[:6], *mean))  # type: ignore[arg-type]


def _print(name: str, result: Result) -> None:
    ratio = f"{result.shown / result.cut:.2f}" if result.cut else "-"
    print(
        f"{name:24} shown {result.shown:3} of {result.facts:3},"
        f" at most {result.bound:3}, cut {result.cut:3} ({ratio}),"
        f" stale {result.stale} (cut {result.cut_stale}), prefix {result.prefix:.2f},"
        f" {result.compactions} summaries, {result.refused} refused, filled {result.overflow:.2f}"
    )


if __name__ == "__main__":
    main()
