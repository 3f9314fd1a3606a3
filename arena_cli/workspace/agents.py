"""Load profiles: merge them with those they extend, check them with their adapter's keys."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from arena_cli import errors
from arena_cli.errors import AgentUnavailable, Fault
from arena_cli.util.files import find_name_problem, read_dotenv_file, read_regular
from arena_cli.util.text import (
    escape_template,
    explain_unfilled,
    fill_template,
    iter_texts,
    list_placeholders,
    map_texts,
)
from arena_cli.workspace import models
from arena_cli.workspace.models import AgentProfile, Member
from arena_cli.yamlio import loader, schema_errors
from arena_cli.yamlio.loader import Fragment, find_holder
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
    return read_dotenv_file(root / ".env", ".env")


FALLBACK = "fallback"


def is_variable(value: object) -> bool:
    """Return True if a setting is a text whose value, and so its type, the environment decides."""
    return isinstance(value, str) and any(
        name.startswith(_ENV) for name in list_placeholders(value)
    )


class VariableNotSet(AgentUnavailable):
    """A variable that an agent needs is not in the environment."""


def make_placeholders(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables as `${env:NAME}`, so that filling with them changes nothing."""
    return {name: f"${{{_ENV}{name}}}" for name in environ}


def list_adapters(adapter: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of an agent's adapter, then those of its fallbacks, one by one."""
    own = {key: value for key, value in adapter.items() if key != FALLBACK}
    return [own, *adapter.get(FALLBACK, ())]


def list_variables(settings: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables that the settings are filled with."""
    if "${" not in str(settings):
        return set()
    return {
        name.removeprefix(_ENV)
        for _, text in iter_texts(settings)
        for name in list_placeholders(text)
        if name.startswith(_ENV)
    }


def fill_settings(
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    agent_id: str,
    is_template: Callable[[Loc], bool] = lambda _: False,
    sources: Mapping[str, str] | None = None,
    place: str = "adapter",
) -> tuple[dict[str, Any], set[str]]:
    """Return the settings with every `${env:NAME}` replaced, and the values that are secrets.

    A secret has 8 or more characters and is in `api_key`, a header, `env` or an argument of a
    program, or its variable's name ends like a secret's (`_SECRET_NAMES`). `$${` becomes `${`,
    unless the text `is_template`, which its adapter fills once more (`Settings.is_template`). Raise
    AgentUnavailable for a variable that is not set; `sources` says where to get its value, `place`
    is the key of the settings.
    """
    filler = _Filler(environ, agent_id, is_template, sources or {}, place)
    return map_texts(settings, filler.text), filler.secrets


def collect_secrets(settings: Mapping[str, Any], environ: Mapping[str, str]) -> set[str]:
    """Return the values that `fill_settings` would call secrets; skip variables that are not set.

    The set also contains a literal `api_key`, literal headers and `env` values whose names end like
    a secret's, the variables that a program inherits (`env: {NAME: inherit}`) under such a name,
    and the password of a URL. An agent that sees the whole environment has every variable of such a
    name.
    """
    filler = _Filler(environ)
    for loc, text in iter_texts(settings):
        with contextlib.suppress(AgentUnavailable):
            filler.keep_passwords(filler.text(text, loc))
        if not is_variable(text):
            filler.keep_literal(text, loc)
    if settings.get("type") in _GIVEN_EVERYTHING:
        return filler.secrets | collect_secret_variables(environ)
    return filler.secrets


def collect_secret_variables(environ: Mapping[str, str]) -> set[str]:
    """Return the values of all variables whose names end like a secret's."""
    filler = _Filler(environ)
    for name in filter(_is_secret_name, environ):
        filler.keep(environ[name])
    return filler.secrets


def collect_proxy_passwords(environ: Mapping[str, str]) -> set[str]:
    """Return the passwords in the proxy variables, which every program and HTTP client gets."""
    filler = _Filler(environ)
    for name, value in environ.items():
        if name.upper().endswith("_PROXY"):
            filler.keep_passwords(value)
    return filler.secrets


def collect_public_values(
    settings: Mapping[str, Any], environ: Mapping[str, str], redact: Callable[[str], str]
) -> dict[str, str]:
    """Return the texts with `${env:NAME}` filled in, by dotted place.

    A variable that is a secret remains a placeholder. A text is left out if a variable is not set,
    if its value holds a secret, and if it names something of this machine (`cwd`, a program).
    """
    values: dict[str, str] = {}
    for loc, text in iter_texts(settings):
        if not is_variable(text) or not _MACHINE_PLACES.isdisjoint(loc):
            continue
        names = [name.removeprefix(_ENV) for name in list_placeholders(text) if _ENV in name]
        public = [name for name in names if not _is_secret(name, loc)]
        if not public or any(name not in environ for name in public):
            continue
        filling = {f"{_ENV}{name}": environ[name] for name in public}
        if not any(_holds_secret(value, redact) for value in filling.values()):
            values[".".join(map(str, loc))] = redact(fill_template(text, filling.get))
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


@dataclass
class _Filler:
    """Fills variables into settings, and keeps those that are secrets."""

    environ: Mapping[str, str]
    agent_id: str = ""
    is_template: Callable[[Loc], bool] = lambda _: False
    sources: Mapping[str, str] = field(default_factory=dict)
    place: str = "adapter"
    secrets: set[str] = field(default_factory=set)

    def text(self, text: str, loc: Loc) -> str:
        """Return a text with its variables filled in."""
        filled_later = self.is_template(loc)

        def value_of(name: str) -> str | None:
            if not name.startswith(_ENV):
                return None
            value = self._variable(name.removeprefix(_ENV), loc)
            return escape_template(value) if filled_later else value

        return fill_template(text, value_of, literal="$${" if filled_later else "${")

    def _variable(self, name: str, loc: Loc) -> str:
        field = ".".join(str(step) for step in (self.place, *loc))
        if not _NAME.fullmatch(name):
            problem = f"{field}: `${{env:{name}}}` names no variable"
            raise AgentUnavailable(self.agent_id, problem, mend="write ${env:NAME}")
        if name not in self.environ:
            hint = f"set {name} in the environment, or in the workspace's .env file"
            if name in self.sources:
                hint += f"; {self.sources[name]}"
            raise VariableNotSet(self.agent_id, f"{field}: {name} is not set", mend=hint)
        value = self.environ[name]
        if _is_secret(name, loc):
            self.keep(value)
        return value

    def keep_literal(self, text: str, loc: Loc) -> None:
        """Keep a text without variables if its place, or the name there, makes it a secret."""
        name = str(loc[-1])
        if name == "api_key":
            self.keep(text)
        elif loc[:1] == ("env",) and _is_secret_name(name):
            self.keep(self.environ.get(name, "") if text == INHERIT else text)
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


IDENTITY_KEYS = frozenset({"agent_id", "name", "aliases", "member", "extends"})


class AdapterKinds(NamedTuple):
    """The kinds of adapters.

    `settings_type` returns the shape of a kind's keys, None for an unknown kind; `list_kinds` all
    kinds; `implied` returns the keys that follow from those of a kind's adapter.
    """

    settings_type: Callable[[str], type[BaseModel] | None]
    list_kinds: Callable[[], Sequence[str]]
    implied: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = lambda _kind, _settings: {}


@dataclass(frozen=True)
class ProfileSource:
    """A profile before it is checked: its keys, and the files they come from, the nearest first.

    It is not whole if the profile it extends does not exist.
    """

    data: Mapping[str, Any]
    fragments: tuple[Fragment, ...]
    is_whole: bool = True

    def fault(self, loc: tuple[str | int, ...], problem: str, hint: str = "") -> Fault:
        """Return an error in the nearest file that holds the value at `loc`."""
        return find_holder(self.fragments, loc).fault(loc, problem, hint)


class LoadedProfile(NamedTuple):
    """A checked profile, the text of its role prompt, and its source."""

    profile: AgentProfile
    role_prompt: str
    source: ProfileSource

    def as_member(self) -> Member:
        """Return the agent as a member of no team."""
        name = self.profile.name or self.profile.agent_id
        return Member(self.profile, name, role_prompt=self.role_prompt)


def read_sources(files: Mapping[str, Fragment]) -> tuple[dict[str, ProfileSource], list[Fault]]:
    """Return every profile of `files` (by file stem) merged with those it extends."""
    resolved: dict[str, ProfileSource] = {}
    faults: list[Fault] = []

    def source(agent_id: str, path: tuple[str, ...]) -> ProfileSource:
        if agent_id in resolved:
            return resolved[agent_id]
        fragment = files[agent_id]
        profile = ProfileSource(
            fragment.data if isinstance(fragment.data, dict) else {}, (fragment,)
        )
        base_id = profile.data.get("extends")
        if isinstance(base_id, str):
            base_id = models.normalize_id(base_id)
            if base_id in (*path, agent_id):
                circle = " -> ".join((*path, agent_id, base_id))
                problem, hint = f"profiles extend each other: {circle}", "remove this line"
                faults.append(profile.fault(("extends",), problem, hint))
                profile = replace(profile, is_whole=False)
            elif base_id not in files:
                problem = f"there is no agent `{base_id}`"
                others = [other for other in files if other != agent_id]
                hint = errors.suggest_nearest(base_id, others) or "remove this line"
                faults.append(profile.fault(("extends",), problem, hint))
                profile = replace(profile, is_whole=False)
            else:
                profile = extend_source(profile, source(base_id, (*path, agent_id)))
        resolved[agent_id] = profile
        return profile

    for agent_id in files:
        source(agent_id, ())
    return {agent_id: resolved[agent_id] for agent_id in files}, faults


def extend_source(profile: ProfileSource, base: ProfileSource) -> ProfileSource:
    """Return `own` over `base`, without the base's identity."""
    inherited = {key: value for key, value in base.data.items() if key not in IDENTITY_KEYS}
    return merge_sources(profile, ProfileSource(inherited, base.fragments, base.is_whole))


def merge_sources(over: ProfileSource, base: ProfileSource) -> ProfileSource:
    """Return `over` deep-merged over `base`: lists and a new adapter type replace."""
    is_whole = over.is_whole and base.is_whole
    return ProfileSource(
        _merge_data(base.data, over.data), over.fragments + base.fragments, is_whole
    )


def _merge_data(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict) and not _replaces(key, below, value):
            result[key] = _merge_data(below, value)
        else:
            result[key] = value
    return result


def _replaces(key: str, below: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return key == "adapter" and "type" in value and value["type"] != below.get("type")


def load_profile(
    agent_id: str,
    source: ProfileSource,
    *,
    root: Path,
    kinds: AdapterKinds,
    defaults: Fragment,
    anywhere: bool,
) -> tuple[LoadedProfile | None, list[Fault]]:
    """Check one profile, which must have `agent_id`.

    `defaults` holds the keys that every adapter of a kind gets, by kind. Files that it names are in
    the workspace, unless `anywhere`.
    """
    document = source.fragments[0].document
    if document.data is None and document.faults:
        return None, list(document.faults)
    if document.data is not None and not isinstance(document.data, dict):
        return None, loader.validate(document, AgentProfile)[1]
    reading = _ProfileReading(source, kinds, defaults, root, anywhere)
    loaded = reading.read(agent_id)
    return (loaded if source.is_whole and not reading.faults else None), reading.faults


@dataclass
class _ProfileReading:
    """The reading of one profile, which collects its errors."""

    source: ProfileSource
    kinds: AdapterKinds
    defaults: Fragment
    root: Path
    anywhere: bool
    faults: list[Fault] = field(default_factory=list)

    def read(self, agent_id: str) -> LoadedProfile | None:
        """Return the profile with its files read, None if it has no shape of a profile."""
        adapter = self._check_adapter()
        self.faults += self.source.fragments[0].document.faults
        data = {**self.source.data, **({} if adapter is None else {"adapter": adapter})}
        if isinstance(data.get("agent_id"), str):
            data["agent_id"] = models.normalize_id(data["agent_id"])
            self._check_id(agent_id, data["agent_id"])
        profile, faults = loader.validate_merged(data, AgentProfile, self.source.fragments)
        self.faults += faults
        text = self._read_role_prompt(data.get("role_prompt"))
        if profile is None:
            return None
        profile = self._read_parts(profile, text)
        if profile.acts and not self.faults:
            entries = import_module("arena_cli.workspace.tool_entries")
            self.faults += entries.find_kind_faults(profile, self.source, self.kinds)
        return LoadedProfile(profile, text, self.source)

    def _add(self, loc: Loc, problem: str, hint: str = "") -> None:
        self.faults.append(self.source.fault(loc, problem, hint))

    def _read_parts(self, profile: AgentProfile, role_prompt: str) -> AgentProfile:
        """Return the profile with its files read; add the errors in its rules, tools and inputs."""
        source, root, anywhere = self.source, self.root, self.anywhere
        if profile.rules:
            rules, faults = import_module("arena_cli.workspace.rule_files").resolve_rules(
                profile.rules, find_holder(source.fragments, ("rules",)), root, anywhere=anywhere
            )
            profile = profile.model_copy(update={"rules": rules})
            self.faults += faults
        if profile.acts or profile.workdir is not None:
            entries = import_module("arena_cli.workspace.tool_entries")
            self.faults += entries.find_faults(profile, source, root, anywhere=anywhere)
        if profile.inputs or profile.output:
            checks = import_module("arena_cli.workspace.acting_checks")
            profile, faults = checks.check_acting(
                profile, role_prompt, source, root, anywhere=anywhere
            )
            self.faults += faults
        return profile

    def _check_id(self, expected: str, agent_id: str) -> None:
        problem = models.find_id_problem(agent_id)
        if problem:
            self._add(("agent_id",), problem, models.ID_RULE)
        elif agent_id != expected:
            hint = f"write `agent_id: {expected}`, or rename the file to `{agent_id}.yaml`"
            self._add(("agent_id",), f"`{agent_id}` is not the file's name", hint)

    def _check_adapter(self) -> dict[str, Any] | None:
        """Return the adapter's keys over its kind's defaults; None if the shape has the error."""
        adapter = self.source.data.get("adapter")
        if isinstance(adapter, str):
            self._refuse_text_adapter(adapter)
            return {}
        if not self.source.is_whole and (adapter is None or isinstance(adapter, dict)):
            return {}  # the rest of it stands in what is not there
        if not isinstance(adapter, dict):
            return None
        checked = self._check_kind(adapter, ("adapter",))
        if checked is None or self.faults or not checked.get(FALLBACK):
            return checked
        fallbacks = []
        for index, fallback in enumerate(checked[FALLBACK]):
            place: Loc = ("adapter", FALLBACK, index)
            if FALLBACK in fallback:
                hint = "list all of them in `adapter.fallback`, in order"
                self._add((*place, FALLBACK), "a fallback has no fallback", hint)
                continue
            settings = self._check_kind(fallback, place) or {}
            fallbacks.append({key: v for key, v in settings.items() if key != FALLBACK})
        return {**checked, FALLBACK: fallbacks}

    def _check_kind(self, adapter: dict[str, Any], place: Loc) -> dict[str, Any] | None:
        """Return the keys of the adapter at a place over its kind's defaults; add its errors."""
        kind = adapter.get("type")
        if not isinstance(kind, str):
            reason = "is missing" if "type" not in adapter else "must be a text"
            self._add((*place, "type"), reason, f"known: {', '.join(self.kinds.list_kinds())}")
            return None
        shape = self.kinds.settings_type(kind)
        if shape is None:
            hint = errors.suggest_nearest(kind, self.kinds.list_kinds())
            self._add((*place, "type"), f"unknown kind of adapter `{kind}`", hint)
            return None
        parts = [fragment.below(*place) for fragment in self.source.fragments]
        fragments = [fragment for fragment in parts if fragment.holds(())]
        if self.defaults.holds((kind,)):
            below = self.defaults.below(kind)
            if not isinstance(below.data, dict):
                self.faults.append(below.fault((), "must be a mapping of keys"))
                return None
            adapter = _merge_data(below.data, adapter)
            fragments.append(below)
        adapter = {**self.kinds.implied(kind, adapter), **adapter}
        if any(fragment.document.has_free_keys for fragment in fragments):
            adapter = schema_errors.drop_free_keys(adapter, shape)
        self.faults += loader.validate_merged(adapter, shape, fragments, is_pending=is_variable)[1]
        is_template = getattr(shape, "is_template", lambda _: False)
        for loc, problem in _list_unfilled(adapter):
            if not is_template(loc):
                self.faults.append(find_holder(fragments, loc).fault(loc, *problem))
        return adapter

    def _refuse_text_adapter(self, adapter: str) -> None:
        """Add the error for a text in place of the mapping, as in `adapter: scripted`."""
        loc = ("adapter",)
        kinds = self.kinds.list_kinds()
        hint = f"write `adapter: {{type: ...}}`; known: {', '.join(kinds)}"
        if adapter in kinds:
            fragment = find_holder(self.source.fragments, loc)
            mapping = f"{{type: {adapter}}}"
            hint = fragment.document.hint_with((*fragment.loc, *loc), mapping) or f"write {mapping}"
        self._add(loc, f"must be a mapping of keys, not the text `{adapter[:40]}`", hint)

    def _read_role_prompt(self, value: Any) -> str:
        """Return the text of `role_prompt`, read from its file if it names one."""
        if isinstance(value, str):
            return value
        if not isinstance(value, dict) or not isinstance(value.get("file"), str):
            return ""
        name, loc = value["file"], ("role_prompt", "file")
        problem = find_name_problem(name, self.root, anywhere=self.anywhere)
        if problem is None:
            try:
                return read_regular(self.root / name).decode("utf-8-sig")
            except UnicodeDecodeError:
                problem = f"`{name}` is not UTF-8", "save the file as UTF-8"
            except OSError as error:
                problem = f"`{name}` cannot be read: {error.strerror or error}", ""
        self._add(loc, *problem)
        return ""


def _list_unfilled(settings: Mapping[str, Any]) -> Iterator[tuple[Loc, tuple[str, str]]]:
    """Yield the places of texts with an unfilled `${NAME}`, and the problem and hint of each.

    An item of a list with a space in it may be a program for a shell, and is not one of them.
    """
    for loc, text in iter_texts(settings) if "${" in str(settings) else ():
        is_program = isinstance(loc[-1], int) and any(map(str.isspace, text))
        problem = None if is_program else explain_unfilled(text)
        if problem:
            yield loc, problem
