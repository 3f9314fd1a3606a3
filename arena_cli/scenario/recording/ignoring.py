"""What varies in a prompt is declared (`ignore: [{regex: ...}]`), and is all one to a recording."""

from __future__ import annotations

from collections.abc import Sequence

from arena_cli.context import digest
from arena_cli.ground.protocol import AgentInput
from arena_cli.ground.userpattern import UserPattern

MARK = "[ignored]"


class Ignoring:
    """Takes out what the patterns match."""

    def __init__(self, patterns: Sequence[UserPattern | str] = ()) -> None:
        self._patterns = [
            one if isinstance(one, UserPattern) else UserPattern(one, where="ignore")
            for one in patterns
        ]

    def text(self, text: str) -> str:
        """The text, with `[ignored]` for each match."""
        for pattern in self._patterns:
            text = pattern.sub(lambda match: MARK if match.group() else "", text)
        return text

    def hash_of(self, input: AgentInput) -> str:
        """The hash of an input in which nothing is left that varies."""
        if self._patterns or not input.input_hash:  # what works for the memory has none
            return digest.input_digest(self.input(input))
        return input.input_hash

    def input(self, input: AgentInput) -> AgentInput:
        """The input without what varies in its prompt, its memory and its messages."""
        if not self._patterns:
            return input
        memory = input.memory_context
        return input.model_copy(
            update={
                "role_prompt": self.text(input.role_prompt),
                "memory_context": None if memory is None else self.text(memory),
                "messages": [
                    message.model_copy(update={"content": self.text(message.content)})
                    for message in input.messages
                ],
            }
        )
