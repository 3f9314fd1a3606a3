"""Add a member to the text of a team file, so that comments and order stay."""

from __future__ import annotations

from typing import Any

import yaml

from arena_cli.yamlio import dump, loader, nodes

_MARK = "\ufeff"  # of the order of bytes


def with_member(text: str, agent_id: str) -> str | None:
    """Return the text of a team file with one more member at the end of `members`.

    None if the list is written in a way that cannot be extended with certainty.
    """
    if text.startswith(_MARK):
        added = with_member(text.removeprefix(_MARK), agent_id)
        return None if added is None else _MARK + added
    old = loader.parse(text, "")
    try:
        members = _members(nodes.compose(text))
    except yaml.YAMLError:
        return None
    if old.faults or members is None or not members.value:
        return None
    word = dump.dump_yaml([agent_id]).strip()[1:-1]  # of `[id]`
    added = _in_brackets(text, members, word) if members.flow_style else _below(text, members, word)
    new = loader.parse(added, "")
    expected = {**old.data, "members": [*old.data["members"], agent_id]}
    return added if not new.faults and _same(new.data, expected) else None


def _members(root: yaml.Node | None) -> yaml.SequenceNode | None:
    for key, _, value in nodes.children(root) if isinstance(root, yaml.MappingNode) else ():
        if key == "members" and isinstance(value, yaml.SequenceNode):
            return value
    return None


def _in_brackets(text: str, members: yaml.SequenceNode, word: str) -> str:
    end = members.value[-1].end_mark.index
    return f"{text[:end]}, {word}{text[end:]}"


def _below(text: str, members: yaml.SequenceNode, word: str) -> str:
    """Add it after the last line of the last member, where comments may follow."""
    last: Any = members.value[-1]
    while last.value and not isinstance(last, yaml.ScalarNode) and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    dash = " " * members.start_mark.column + f"- {word}"
    line_end = "\r\n" if "\r\n" in text else "\n"
    is_block = isinstance(last, yaml.ScalarNode) and last.style in ("|", ">")
    end = text.find("\n", last.end_mark.index - is_block)
    if end < 0:
        return f"{text}{line_end}{dash}{line_end}"
    return f"{text[: end + 1]}{dash}{line_end}{text[end + 1 :]}"


def _same(left_value: Any, right_value: Any) -> bool:
    """Return True if two values are the same, with their types and the order of keys."""
    return repr(left_value) == repr(right_value)
