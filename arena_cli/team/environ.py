"""`${env:NAME}` in adapter settings, filled from the environment and the workspace's `.env`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arena_cli.ground import dotenv
from arena_cli.ground.errors import AgentUnavailable

SHORTEST_SECRET = 8

_REFERENCE = re.compile(r"\$\$\{|\$\{env:([^{}\n]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_PLACES = frozenset({"api_key", "headers", "env"})


def read_dotenv(root: Path) -> dict[str, str]:
    """The variables of the workspace's `.env`, empty where there is none; raises FileFaults.

    They stand below the process's own: `{**read_dotenv(root), **os.environ}`.
    """
    return dotenv.read(root / ".env", ".env")


def is_open(value: object) -> bool:
    """Whether a setting is a text whose value, and so its type, the environment decides."""
    return isinstance(value, str) and any(found[1] is not None for found in _found(value))


def fill(
    settings: Mapping[str, Any], environ: Mapping[str, str], *, agent_id: str
) -> tuple[dict[str, Any], set[str]]:
    """The settings with every `${env:NAME}` replaced, and those of the values that are secrets.

    A secret has 8 or more characters and stands in `api_key`, a header or `env`, or its variable's
    name ends in KEY, TOKEN, SECRET or PASSWORD. `$${` becomes `${`, save in the texts of scripted
    replies, where it is taken as such when the reply is given. Raises AgentUnavailable for a
    variable that is not set.
    """
    filler = _Filler(environ, agent_id, templates=settings.get("type") == "scripted")
    filled = {key: filler.value(value, (key,)) for key, value in settings.items()}
    return filled, filler.secrets


def secrets(settings: Mapping[str, Any], environ: Mapping[str, str]) -> set[str]:
    """The values that `fill` would call secrets; variables that are not set are passed over."""
    filler = _Filler(environ, "", templates=False)
    for loc, text in _texts(settings, ()):
        with contextlib.suppress(AgentUnavailable):
            filler.value(text, loc)
    return filler.secrets


def _texts(value: Any, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*loc, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*loc, index))


class _Filler:
    def __init__(self, environ: Mapping[str, str], agent_id: str, *, templates: bool) -> None:
        self.secrets: set[str] = set()
        self._environ = environ
        self._agent_id = agent_id
        self._templates = templates

    def value(self, value: Any, loc: tuple[str | int, ...]) -> Any:
        if isinstance(value, str):
            return self._text(value, loc) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.value(item, (*loc, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*loc, index)) for index, item in enumerate(value)]
        return value

    def _text(self, text: str, loc: tuple[str | int, ...]) -> str:
        template = self._templates and _is_reply_text(loc)

        def replaced(match: re.Match[str]) -> str:
            name = match[1]
            if name is None:
                return match[0] if template else "${"
            value = self._variable(name, loc)
            return value.replace("${", "$${") if template else value

        return _REFERENCE.sub(replaced, text)

    def _variable(self, name: str, loc: tuple[str | int, ...]) -> str:
        place = ".".join(str(part) for part in ("adapter", *loc))
        if not _NAME.fullmatch(name):
            what = f"{place}: `${{env:{name}}}` names no variable"
            raise AgentUnavailable(self._agent_id, what, mend="write ${env:NAME}")
        if name not in self._environ:
            mend = f"set {name} in the environment, or in the workspace's .env file"
            raise AgentUnavailable(self._agent_id, f"{place}: {name} is not set", mend=mend)
        value = self._environ[name]
        named = name.upper().endswith(_SECRET_NAMES)
        if len(value) >= SHORTEST_SECRET and (named or not _SECRET_PLACES.isdisjoint(loc)):
            self.secrets.add(value)
        return value


def _is_reply_text(loc: tuple[str | int, ...]) -> bool:
    """Whether a scripted text with fields of its own (`${message}`) stands at `loc`."""
    return loc[0] == "replies" and (len(loc) == 2 or (len(loc) == 3 and loc[2] == "say"))


def _found(text: str) -> list[re.Match[str]]:
    return list(_REFERENCE.finditer(text)) if "${" in text else []
