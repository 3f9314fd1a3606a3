"""Show help in groups, as wide as the terminal, explain a wrong command line, complete names.

Names are those of sessions, agents, kinds of agents, teams and scenarios. A missing or broken
workspace offers none: the command reports it when it runs. A name may come from a cloned
repository. Shells insert offered words unquoted, or evaluate them, so only plain words are offered.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from arena_cli.adapters import base
from arena_cli.errors import find_nearest
from arena_cli.session import store
from arena_cli.util.text import escape_line, lazy_pattern
from arena_cli.workspace import workspace
from arena_cli.yamlio.schema_errors import explain_first

_WIDEST, _NARROWEST = 80, 20
_LONGEST_SENTENCE = 1_000
_PYTHON_TYPE = lazy_pattern(r" <(?:str|path|float range|list\[\w+\])>$")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command whose help has its options in groups: the `rich_help_panel` of each."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _convert_given(self.params)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: `[OPTIONS] AGENT [FILE]...`."""
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_argument_usage, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options."""
        _write_parameters(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands; `sections` are the names of its commands under a heading."""

    sections: Mapping[str, Iterable[str]] = {}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _convert_given(self.params)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context; help is as wide as the terminal, also if that is narrow."""
        columns = shutil.get_terminal_size().columns
        extra.setdefault("terminal_width", max(min(columns, _WIDEST) - 2, _NARROWEST))
        return super().make_context(info_name, args, parent, **extra)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and the options."""
        self.format_commands(ctx, formatter)
        _write_parameters(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first sentence of its help."""
        for heading, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [
                (name, command.get_short_help_str(_LONGEST_SENTENCE))
                for name, command in commands
                if command and not command.hidden
            ]
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=_first_column(formatter))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the arguments; suggest the nearest one for an unknown name."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = find_nearest(name, self.list_commands(ctx))
            hint = f"\ndid you mean `{near}`?" if near else ""
            if self.invoke_without_command and name in ("list", "ls"):
                hint = f"\nuse `{ctx.command_path}`"
            ctx.fail(f"No such command '{name}'{hint}")
        return super().resolve_command(ctx, args)


class App(typer.Typer):
    """A typer application whose commands show such help; by default a group of them."""

    def __init__(self, **options: Any) -> None:
        defaults = {"cls": Group, "add_completion": False, "rich_markup_mode": None}
        super().__init__(**{**defaults, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        """Return a decorator that adds a command."""
        return super().command(name, **{"cls": Command, **options})


def _convert_given(parameters: Iterable[Any]) -> None:
    """Convert only values that are given: typer makes a converter for each option, in 1 ms."""
    for parameter in parameters:
        if not parameter.required and parameter.callback is None:
            parameter.process_value = partial(_convert, parameter, parameter.process_value)


def _convert(parameter: Any, process_value: Callable[..., Any], ctx: Any, value: Any) -> Any:
    if value is None:
        return () if parameter.multiple or parameter.nargs == -1 else None
    return process_value(ctx, value)


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
    others: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        name, text = record
        if parameter.param_type_name == "argument":
            groups["Arguments"].append((_argument_usage(parameter), text))
            continue
        placeholder = max(parameter.opts, key=len).lstrip("-").upper()
        row = _PYTHON_TYPE.sub(f" {placeholder}", name), text
        panel = getattr(parameter, "rich_help_panel", None)
        (groups.setdefault(panel, []) if panel else others).append(row)
    last = {"Output": groups.pop("Output", []), "Options": others}
    for heading, rows in {**groups, **last}.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=_first_column(formatter))


def _argument_usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    optional = name if argument.required else f"[{name}]"
    return f"{optional}..." if argument.nargs == -1 else optional


def _first_column(formatter: Any) -> int:
    return 30 if formatter.width > 60 else 6  # columns of the names; a longer one has its own line


def explain_wrong_use(error: Any) -> str:
    """Return click's error about a command line in the form of all other errors."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.message)
    if isinstance(error.__cause__, ValidationError):
        error.message = explain_first(error.__cause__)
    options = getattr(error, "possibilities", None)
    text = error.message if options else error.format_message().replace("\n\t", " ")
    problem, *hints = text.split("\n")
    problem = problem.rstrip(". ")
    if options:  # dashes, which all options have, make none similar
        near = find_nearest(error.option_name.lstrip("-"), [name.lstrip("-") for name in options])
        hints += [f"did you mean `{name}`?" for name in options if name.lstrip("-") == near][:1]
    if getattr(error, "ctx", None) and not hints:
        hints.append(f"`{error.ctx.command_path} --help` explains the command line")
    lines = [f"{problem[:1].lower()}{problem[1:]}", *(hint.strip() for hint in hints)]
    return "arena: " + "\n  ".join(lines)


# Harmless anywhere in a word, and only behind its beginning: there `-` makes an option, `@` and `%`
# variables of PowerShell and fish. A `,` parts PowerShell's lists, a `:` zsh's descriptions.
_ANYWHERE = frozenset("._+")
_BEHIND = _ANYWHERE | frozenset("-@%")


def complete_sessions(context: typer.Context, incomplete: str) -> list[str]:
    """Return sessions, the most recently written first."""
    return _offered(
        lambda root: [session.name for session in store.stored(root)], context, incomplete
    )


def complete_archived(context: typer.Context, incomplete: str) -> list[str]:
    """Return archived sessions, by name."""

    def names(root: Path) -> Iterable[str]:
        paths = store.archive_folder(root).glob(f"*{store.ARCHIVE_SUFFIX}")
        return sorted(path.name.removesuffix(store.ARCHIVE_SUFFIX) for path in paths)

    return _offered(names, context, incomplete)


def complete_agents(context: typer.Context, incomplete: str) -> list[str]:
    """Return agents by id, then by their other names."""

    def names(root: Path) -> Iterable[str]:
        profiles = workspace.load_workspace(root, kinds=base.KINDS, anywhere=True).profiles
        aliases = (
            name
            for profile in profiles.values()
            for name in (profile.name, *profile.aliases)
            if name
        )
        return dict.fromkeys((*profiles, *aliases))

    return _offered(names, context, incomplete)


def complete_teams(context: typer.Context, incomplete: str) -> list[str]:
    """Return teams by the names of their files."""
    return _offered(lambda root: _stems(root / "agents" / "teams"), context, incomplete)


def complete_scenarios(context: typer.Context, incomplete: str) -> list[str]:
    """Return scenarios by the names of their files in `scenarios/`."""
    folder = "scenarios"
    return _offered(
        lambda root: [*_stems(root / folder), *_stems(root / folder, ".yml")], context, incomplete
    )


def complete_kinds(incomplete: str) -> list[str]:
    """Return kinds of adapters, with or without a workspace."""
    return [kind for kind in base.list_kinds() if kind.startswith(incomplete) and _is_plain(kind)]


def _offered(
    names: Callable[[Path], Iterable[str]], context: typer.Context, incomplete: str
) -> list[str]:
    """Return the names of a workspace that begin with the typed text; none on any error."""
    try:
        folder = context.find_root().params.get("workspace")
        root = workspace.find_workspace(Path.cwd(), Path(folder) if folder else None, os.environ)
        candidates = list(names(root))
    except Exception:  # noqa: BLE001 - nothing may be printed between a prompt and its cursor
        return []
    return [name for name in candidates if name.startswith(incomplete) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    """Return True if every shell takes the text as one visible, literal word."""
    return (
        name == escape_line(name) != ""
        and all(char in _BEHIND or _is_letter(char) for char in name)
        and (name[0] in _ANYWHERE or _is_letter(name[0]))
    )


def _is_letter(char: str) -> bool:
    """Return True for a letter, digit or combining mark of any script."""
    return unicodedata.category(char)[0] in "LNM"


def _stems(folder: Path, suffix: str = ".yaml") -> list[str]:
    return [name.removesuffix(suffix) for name in workspace.list_files(folder, suffix)]
