"""Write plain data as the YAML that a person would write, and that reads back unchanged."""

from __future__ import annotations

import re
from typing import Any

import yaml

from arena_cli.yamlio import nodes

_LINES_APART = 1 << 20  # columns: no text is broken into lines where it has none

# Line ends of YAML 1.1, and placeholders, which are quoted everywhere.
_NEEDS_QUOTES = re.compile("[\r\x85\u2028\u2029\ufeff]|\\$\\{")


class _Dumper(yaml.SafeDumper):
    """Writes blocks, but short lists in brackets and texts of several lines after `|`.

    A text is quoted where YAML 1.1 or 1.2 would read it as something else.
    """

    yaml_implicit_resolvers = {
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *nodes.CORE_RESOLVERS.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *nodes.CORE_RESOLVERS}
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's
        """Indent lists deeper than their key."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None
    if _NEEDS_QUOTES.search(text):
        style = '"'
    elif "\n" in text.strip("\n"):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    is_short = all(not isinstance(item, (list, dict)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def dump_yaml(data: Any) -> str:
    """Return dicts, lists, strings, numbers, booleans and null as YAML, keys in their order."""
    return yaml.dump(
        data,
        Dumper=_Dumper,
        allow_unicode=True,
        sort_keys=False,
        default_flow_style=False,
        width=_LINES_APART,
    )
