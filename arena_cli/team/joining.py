"""A new member of a team file, put into its text so that comments and order stay as they are."""

from __future__ import annotations

from typing import Any

import yaml

from arena_cli.yamlio import dump, loader, nodes

_MARK = "\ufeff"  # of the order of bytes


def with_member(text: str, agent_id: str) -> str | None:
    """The text of a team file with one more member at the end of `members`.

    None where the list is written in a way that cannot be added to with certainty.
    """
    if text.startswith(_MARK):
        added = with_member(text.removeprefix(_MARK), agent_id)
        return None if added is None else _MARK + added
    before = loader.parse(text, "")
    try:
        members = _members(nodes.compose(text))
    except yaml.YAMLError:
        return None
    if before.faults or members is None or not members.value:
        return None
    word = dump.dump_yaml([agent_id]).strip()[1:-1]  # of `[id]`
    added = _in_brackets(text, members, word) if members.flow_style else _below(text, members, word)
    after = loader.parse(added, "")
    expected = {**before.data, "members": [*before.data["members"], agent_id]}
    return added if not after.faults and _same(after.data, expected) else None


def _members(root: yaml.Node | None) -> yaml.SequenceNode | None:
    for key, _, value in nodes.children(root) if isinstance(root, yaml.MappingNode) else ():
        if key == "members" and isinstance(value, yaml.SequenceNode):
            return value
    return None


def _in_brackets(text: str, members: yaml.SequenceNode, word: str) -> str:
    end = members.value[-1].end_mark.index
    return f"{text[:end]}, {word}{text[end:]}"


def _below(text: str, members: yaml.SequenceNode, word: str) -> str:
    """After the last line of the last member, where comments behind it may stand."""
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


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same, their types and the order of keys included."""
    return repr(one) == repr(other)
