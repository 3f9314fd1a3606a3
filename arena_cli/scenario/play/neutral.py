"""Messages that say nothing in particular, to fill a session's past."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle

from arena_cli.session.outgoing import USER, Planted
from arena_cli.team.model import Language, Team

_SENTENCES: dict[Language, tuple[str, ...]] = {
    "en": (
        "Noted, nothing new here since point {n}.",
        "Point {n} stands as it was.",
        "I read it again; number {n} is fine with me.",
        "Nothing to add to {n} today.",
        "We talked about {n} before, no change.",
        "Let us come back to {n} another day.",
    ),
    "zh": (
        "收到，第 {n} 点之后没有新的内容。",
        "第 {n} 点保持不变。",
        "又看了一遍，第 {n} 条没有意见。",
        "今天对 {n} 没有补充。",
        "{n} 之前谈过，没有变化。",
        "{n} 改天再说。",
    ),
}


def messages(count: int, seed: int, team: Team, language: Language) -> Iterator[Planted]:
    """So many messages, said by the human and the members in turn; one seed, one past."""
    chance = random.Random(seed)
    sentences = _SENTENCES[language]
    authors = cycle(
        [
            (USER.id, USER.name, "human"),
            *((member.id, member.name, "agent") for member in team.members),
        ]
    )
    for (author_id, name, author_type), _ in zip(authors, range(count), strict=False):
        sentence = sentences[int(chance.random() * len(sentences))]
        number = 1 + int(chance.random() * 99)
        yield Planted(author_id, name, author_type, sentence.format(n=number))  # type: ignore[arg-type]  # as listed above
