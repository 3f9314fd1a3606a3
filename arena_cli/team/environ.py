"""Fill `${env:NAME}` in adapter settings from the environment and the workspace's `.env`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena_cli.ground import dotenv, templates
from arena_cli.ground.errors import AgentUnavailable
from arena_cli.yamlio.nodes import Loc

SHORTEST_SECRET = 8
INHERIT = "inherit"  # what stands under `env` for the value that arena itself has

_ENV = "env:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAMES = (
    *("KEY", "TOKEN", "SECRET", "PASSWORD", "PASS", "PASSWD", "PWD", "PAT"),
    *("CREDENTIAL", "CREDENTIALS", "AUTH", "DSN"),
)
_FOLDER_NAMES = ("PWD", "OLDPWD")  # the current folder, and the one before
_SECRET_HEADERS = (*_SECRET_NAMES, "AUTHORIZATION", "COOKIE")
_SECRET_PLACES = frozenset({"api_key", "headers", "env", "args"})
_COMMAND = "command"
_GIVEN_EVERYTHING = frozenset({"python"})  # kinds whose agents see every variable
_URL_PASSWORD = re.compile(r"://[^/?#\s:@]*:([^/?#\s@]+)@")
_MACHINE_PLACES = frozenset({"command", "args", "program", "cwd"})
_SECRET_URL = re.compile(
    r"://[^/\s]*@|[?&][^=&]*(?:key|token|secret|sig|password|auth)[^=&]*=", re.IGNORECASE
)


def read_dotenv(root: Path) -> dict[str, str]:
    """Return the variables of the workspace's `.env`, none if it does not exist; raise FileFaults.

    The process's own take precedence: `{**read_dotenv(root), **os.environ}`.
    """
    return dotenv.read(root / ".env", ".env")


def is_open(value: object) -> bool:
    """Return True if a setting is a text whose value, and so its type, the environment decides."""
    return isinstance(value, str) and any(name.startswith(_ENV) for name in templates.names(value))


class NotSet(AgentUnavailable):
    """A variable that an agent needs is not in the environment."""


def placeholders(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with `${env:NAME}` for a value: what is filled with them stays as is."""
    return {name: f"${{{_ENV}{name}}}" for name in environ}


def variables(settings: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables that the settings are filled with."""
    return {
        name.removeprefix(_ENV)
        for _, text in templates.texts(settings)
        for name in templates.names(text)
        if name.startswith(_ENV)
    }


def fill(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    agent_id: str,
    is_template: Callable[[Loc], bool] = lambda _: False,
    sources: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], set[str]]:
    """Return the settings with every `${env:NAME}` replaced, and the values that are secrets.

    A secret has 8 or more characters and is in `api_key`, a header, `env` or an argument of a
    program, or its variable's name ends like a secret's (`_SECRET_NAMES`). `$${` becomes `${`,
    unless the text `is_template`, which its adapter fills once more (`Settings.is_template`). Raise
    AgentUnavailable for a variable that is not set; `sources` says where to get its value.
    """
    filler = _Filler(environ, agent_id, is_template, sources)
    return templates.mapped(settings, filler.text), filler.secrets


def secrets(settings: Mapping[str, Any], environ: Mapping[str, str]) -> set[str]:
    """Return the values that `fill` would call secrets; variables that are not set are skipped.

    The set also contains a literal `api_key`, literal headers and `env` values whose names end
    like a secret's, what a program inherits (`env: {NAME: inherit}`) under such a name, and the
    password of a URL. An agent that sees the whole environment has every variable of such a name.
    """
    filler = _Filler(environ)
    for loc, text in templates.texts(settings):
        with contextlib.suppress(AgentUnavailable):
            filler.keep_passwords(filler.text(text, loc))
        if not is_open(text):
            filler.keep_literal(text, loc)
    if settings.get("type") in _GIVEN_EVERYTHING:
        return filler.secrets | secret_variables(environ)
    return filler.secrets


def secret_variables(environ: Mapping[str, str]) -> set[str]:
    """Return the values of all variables whose names end like a secret's."""
    filler = _Filler(environ)
    for name in filter(_is_secret_name, environ):
        filler.keep(environ[name])
    return filler.secrets


def proxy_passwords(environ: Mapping[str, str]) -> set[str]:
    """Return the passwords in the proxy variables, which every program and HTTP client gets."""
    filler = _Filler(environ)
    for name, value in environ.items():
        if name.upper().endswith("_PROXY"):
            filler.keep_passwords(value)
    return filler.secrets


def public_values(
    settings: Mapping[str, Any], environ: Mapping[str, str], redact: Callable[[str], str]
) -> dict[str, str]:
    """Return the texts with `${env:NAME}` filled in, by dotted place.

    A variable that is a secret stays a placeholder. A text is left out where a variable is not set,
    where its value holds a secret, and where it names something of this machine (`cwd`, a program).
    """
    values: dict[str, str] = {}
    for loc, text in templates.texts(settings):
        if not is_open(text) or not _MACHINE_PLACES.isdisjoint(loc):
            continue
        names = [name.removeprefix(_ENV) for name in templates.names(text) if _ENV in name]
        public = [name for name in names if not _is_secret(name, loc)]
        if not public or any(name not in environ for name in public):
            continue
        filling = {f"{_ENV}{name}": environ[name] for name in public}
        if not any(_holds_secret(value, redact) for value in filling.values()):
            values[".".join(map(str, loc))] = redact(templates.filled(text, filling.get))
    return values


def _holds_secret(value: str, redact: Callable[[str], str]) -> bool:
    return redact(value) != value or _SECRET_URL.search(value) is not None


def _is_secret(name: str, loc: Loc) -> bool:
    return _is_secret_name(name) or _is_secret_place(loc)


def _is_secret_name(name: str) -> bool:
    name = name.upper()
    return name.endswith(_SECRET_NAMES) and name not in _FOLDER_NAMES


def _is_secret_place(loc: Loc) -> bool:
    """Return True if every variable there is a secret; the program's own name is no argument."""
    is_argument = loc[:1] == (_COMMAND,) and len(loc) > 1 and loc[1] != 0
    return is_argument or not _SECRET_PLACES.isdisjoint(loc)


class _Filler:
    def __init__(
        self,
        environ: Mapping[str, str],
        agent_id: str = "",
        is_template: Callable[[Loc], bool] = lambda _: False,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.secrets: set[str] = set()
        self._environ = environ
        self._agent_id = agent_id
        self._is_template = is_template
        self._sources = sources or {}

    def text(self, text: str, loc: Loc) -> str:
        """Return a text with its variables filled in."""
        filled_later = self._is_template(loc)

        def value_of(name: str) -> str | None:
            if not name.startswith(_ENV):
                return None
            value = self._variable(name.removeprefix(_ENV), loc)
            return templates.escaped(value) if filled_later else value

        return templates.filled(text, value_of, literal="$${" if filled_later else "${")

    def _variable(self, name: str, loc: Loc) -> str:
        field = ".".join(str(step) for step in ("adapter", *loc))
        if not _NAME.fullmatch(name):
            problem = f"{field}: `${{env:{name}}}` names no variable"
            raise AgentUnavailable(self._agent_id, problem, mend="write ${env:NAME}")
        if name not in self._environ:
            hint = f"set {name} in the environment, or in the workspace's .env file"
            if name in self._sources:
                hint += f"; {self._sources[name]}"
            raise NotSet(self._agent_id, f"{field}: {name} is not set", mend=hint)
        value = self._environ[name]
        if _is_secret(name, loc):
            self.keep(value)
        return value

    def keep_literal(self, text: str, loc: Loc) -> None:
        """Keep a text without variables if its place, or the name there, makes it a secret."""
        name = str(loc[-1])
        if name == "api_key":
            self.keep(text)
        elif loc[:1] == ("env",) and _is_secret_name(name):
            self.keep(self._environ.get(name, "") if text == INHERIT else text)
        elif "headers" in loc and name.upper().endswith(_SECRET_HEADERS):
            self.keep(text.rpartition(" ")[2])  # without `Bearer`

    def keep_passwords(self, text: str) -> None:
        """Keep the password of every URL in the text."""
        for match in _URL_PASSWORD.finditer(text):
            self.keep(match[1])

    def keep(self, value: str) -> None:
        """Keep a value as a secret, if it is long enough to be one."""
        if len(value) >= SHORTEST_SECRET:
            self.secrets.add(value)
