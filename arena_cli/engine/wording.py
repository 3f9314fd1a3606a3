"""What arena itself writes into a transcript, in the language that `arena.yaml` names."""

from __future__ import annotations

from collections.abc import Sequence

from arena_cli.team.model import Language


def limit_reached(due: Sequence[str], limit: int, language: Language) -> str:
    """The system message of a chain that its depth limit stopped."""
    if language == "zh":
        return f"对话链已达到深度上限（{limit}），不再开启新的轮次。仍待回复：{'、'.join(due)}。"
    return (
        f"The chain reached its depth limit ({limit}): no further turn opens. "
        f"Still due: {', '.join(due)}."
    )
