"""`${vars.x}` and `${saved.x}` in a scenario's data; `$${` is a literal `${`.

Vars are filled in when a file is read, saved texts when the step is played. Scripted replies have
names of their own (`${message}`) and are filled once more by the scripted adapter, adapter settings
from the environment (`${env:X}`): in profiles only vars are filled in here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from arena_cli import errors
from arena_cli.errors import Fault, UsageError
from arena_cli.util import files
from arena_cli.util.text import (
    escape_template,
    fill_template,
    iter_texts,
    list_placeholders,
    map_texts,
)
from arena_cli.yamlio import loader, nodes
from arena_cli.yamlio.loader import Document, Fragment, find_holder
from arena_cli.yamlio.nodes import Loc

PROFILES = "profiles"

# What a file is put together from; its texts are values, not templates.
_AS_THEY_ARE = frozenset({"include", "vars", "cases"})
_VARS = "vars."
_SAVED = "saved."


class NotSaved(Exception):
    """A text that was not saved, since its step was not played, or did not pass."""

    def __init__(self, name: str) -> None:
        super().__init__(f"nothing was saved as `{name}`")


class Template(str):
    """A text with placeholders for saved texts."""


def as_texts(data: Any, texts: Mapping[Loc, str], loc: Loc = ()) -> Any:
    """Return the data with these texts at their places."""
    if loc in texts:
        return texts[loc]
    if isinstance(data, dict):
        return {key: as_texts(value, texts, (*loc, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [as_texts(value, texts, (*loc, index)) for index, value in enumerate(data)]
    return data


class FilledFiles:
    """The files of a scenario, or of one case of it, the nearest first, with their vars filled in.

    `data` are the keys of all `parts` together. `faults` are the errors in vars, `unknown` the
    texts in which one is wrong.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        case_vars: Mapping[str, Any] = MappingProxyType({}),
        case: int = 0,
    ) -> None:
        """Fill in the vars; `case` is the index of the case with `case_vars`."""
        own_vars = nodes.find_value(merged(documents), ("vars",))
        self.faults: list[Fault] = []
        self.unknown: set[str] = set()
        self._values = {**(own_vars if isinstance(own_vars, dict) else {}), **case_vars}
        self._documents = documents
        self._case_vars, self._case = case_vars, case
        self._typed: list[dict[Loc, str]] = []
        self.parts = [Fragment(self._fill(document)) for document in documents]
        data = merged([part.document for part in self.parts])
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if key != "cases"}
        self.data: Any = data

    def _fill(self, document: Document) -> Document:
        self._typed.append({})
        if not isinstance(document.data, dict) or not document.has_placeholders:
            return document
        self._document = document
        return document.with_data(
            {
                key: value if key in _AS_THEY_ARE else self._value(value, (key,))
                for key, value in document.data.items()
            }
        )

    @property
    def typed(self) -> dict[Loc, str]:
        """The places where a var that is no text is alone, so that it kept its type; its texts."""
        return {
            loc: text
            for part, texts in zip(self.parts, self._typed, strict=True)
            for loc, text in texts.items()
            if find_holder(self.parts, loc) is part
        }

    def _find_number(self, var: Loc) -> str | None:
        """Return the number below `vars` as the nearest file with one writes it: `01234`."""
        is_of_case = var[0] in self._case_vars
        loc = ("cases", self._case, "vars", *var) if is_of_case else ("vars", *var)
        for document in self._documents:
            if isinstance(Fragment(document, loc).data, int | float):
                return document.scalar(loc)
        return None

    def _value(self, value: Any, loc: Loc) -> Any:
        if isinstance(value, str):
            return self._text(value, loc) if "${" in value else value
        if isinstance(value, dict):
            return {self._key(key, loc): self._value(value[key], (*loc, key)) for key in value}
        if isinstance(value, list):
            return [self._value(item, (*loc, index)) for index, item in enumerate(value)]
        return value

    def _key(self, key: str, loc: Loc) -> str:
        if any(name.startswith(_VARS) for name in list_placeholders(key)):
            problem, mend = f"variables are not allowed in a key: `{key}`", "write the key itself"
            self.faults.append(self._document.fault((*loc, key), problem, mend))
        return key

    def _text(self, text: str, loc: Loc) -> Any:
        wrong = len(self.faults)
        filled = self._filled(text, loc, list_placeholders(text))
        if len(self.faults) > wrong:
            self.unknown.add(str(filled))
        return filled

    def _filled(self, text: str, loc: Loc, names: list[str]) -> Any:
        in_profiles = loc[0] == PROFILES
        if len(names) == 1 and names[0].startswith(_VARS) and text == f"${{{names[0]}}}":
            value = self._var(names[0], loc)
            if not isinstance(value, str):
                self._keep_texts(value, loc, (names[0].removeprefix(_VARS),))
                return value
            return escape_template(value) if in_profiles else value
        waits = not in_profiles and any(name.startswith(_SAVED) for name in names)
        filled_again = in_profiles or waits

        def value_of(name: str) -> str | None:
            if name.startswith(_VARS):
                value = self._as_text(self._var(name, loc), (name.removeprefix(_VARS),))
                return escape_template(value) if filled_again else value
            if name.startswith(_SAVED) == in_profiles:
                self._unknown(name, loc)
            return None

        result = fill_template(text, value_of, literal="$${" if filled_again else "${")
        return Template(result) if waits else result

    def _keep_texts(self, value: Any, loc: Loc, var: Loc) -> None:
        """Keep the texts of a var, and of the values in it, that is no text."""
        items: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        elif not isinstance(value, str):
            self._typed[-1][loc] = self._as_text(value, var)
        for step, item in items:
            self._keep_texts(item, (*loc, step), (*var, step))

    def _as_text(self, value: Any, var: Loc) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        is_number = isinstance(value, int | float)
        return (self._find_number(var) if is_number else None) or str(value)

    def _var(self, name: str, loc: Loc) -> Any:
        key = name.removeprefix(_VARS)
        if key in self._values:
            value = self._values[key]
            if isinstance(value, str) and f"${{{_VARS}" in value:
                problem = f"`{name}` contains another variable, which is not filled in"
                self.faults.append(self._document.fault(loc, problem, "write its text instead"))
            return value
        names = [f"{_VARS}{variable}" for variable in self._values]
        mend = errors.suggest_nearest(name, names) if names else "set it under `vars:`"
        self.faults.append(self._document.fault(loc, f"there is no `${{{name}}}`", mend))
        return f"${{{name}}}"

    def _unknown(self, name: str, loc: Loc) -> None:
        if name.startswith(_SAVED):
            problem = (
                f"`${{{name}}}` cannot be used in a profile: nothing is saved yet when it is read"
            )
            mend = "send it in a message: a scripted reply reads that as ${message}"
        else:
            problem = f"unknown `${{{name}}}`"
            mend = "there are ${vars.NAME} and ${saved.NAME}; a literal ${ is $${"
        self.faults.append(self._document.fault(loc, problem, mend))


def saved_names(data: Any) -> Iterator[tuple[Loc, str]]:
    """Yield the place and the name of each saved value that the data uses."""
    for loc, text in iter_texts(data):
        if isinstance(text, Template):
            for name in list_placeholders(text):
                if name.startswith(_SAVED):
                    yield loc, name.removeprefix(_SAVED)


def with_saved(data: Any, saved: Mapping[str, str]) -> Any:
    """Return the data with saved values filled in; in a `regex`, they match literally.

    Raises NotSaved.
    """

    def filled(text: str, loc: Loc) -> str:
        if not isinstance(text, Template):
            return text
        in_regex = "regex" in loc[-1:]

        def value_of(name: str) -> str:
            name = name.removeprefix(_SAVED)
            if name not in saved:
                raise NotSaved(name)
            return re.escape(saved[name]) if in_regex else saved[name]

        return fill_template(text, value_of)

    return map_texts(data, filled)


KEY = "include"


class Reader:
    """Reads the YAML files below `root`, each once.

    Others are read only if they are among `chosen`, those that the user named, or if `anywhere`.
    """

    def __init__(
        self, root: Path, *, chosen: Collection[Path] = (), anywhere: bool = False
    ) -> None:
        self.root = root
        self.anywhere = anywhere
        self._chosen = chosen
        self.included: set[Path] = set()
        self._documents: dict[Path, Document] = {}

    def document(self, path: Path) -> Document:
        """Return the document of one file."""
        document = self._documents.get(path)
        if document is None:
            document = self._documents[path] = self._load(path)
        return document

    def _load(self, path: Path) -> Document:
        label = self.shown(path)
        is_inside = files.is_inside(path, self.root)
        is_chosen = path in self._chosen or path in self.included
        if not (is_inside or is_chosen or self.anywhere):
            problem = f"is a link that leads out of the workspace: {label}"
            return Document(
                label, None, (Fault(self._link_to(path), 0, "", problem, files.OUTSIDE_HINT),)
            )
        return loader.load(path, label, is_shown=is_inside or is_chosen)

    def _link_to(self, path: Path) -> str:
        """Return the link in the workspace that leads to a file outside, as shown to the user."""
        links = (link for link in self.root.glob("scenarios/**/*") if files.is_link(link))
        return self.shown(
            next((link for link in links if Path(os.path.realpath(link)) == path), path)
        )

    def shown(self, path: Path) -> str:
        """Return the path as shown to the user."""
        inside = path.is_relative_to(self.root)
        return (path.relative_to(self.root) if inside else path).as_posix()

    def chain(self, path: Path) -> tuple[list[Document], list[Fault]]:
        """Return a file and all that it includes, the nearest first, and the errors in them."""
        documents: dict[Path, Document] = {}
        faults: list[Fault] = []
        self._follow(path, (), documents, faults)
        return list(documents.values()), faults

    def _follow(
        self,
        path: Path,
        above: tuple[Path, ...],
        documents: dict[Path, Document],
        faults: list[Fault],
    ) -> None:
        document = documents[path] = self.document(path)
        data = document.data
        names = data.get(KEY, []) if isinstance(data, dict) else []
        for index, name in enumerate(names if isinstance(names, list) else [names]):
            if not isinstance(name, str):
                continue  # its shape tells
            loc = (KEY, index) if isinstance(names, list) else (KEY,)
            try:
                target = self.locate(name, path, (*above, path)[0])
            except UsageError as error:
                faults.append(document.fault(loc, error.what, error.mend))
                continue
            if target in (*above, path):
                chain = (*above, path)
                names_in_circle = [
                    self.document(included).name
                    for included in (*chain[chain.index(target) :], target)
                ]
                circle = " → ".join(names_in_circle)
                faults.append(document.fault(loc, f"includes itself: {circle}", "remove one"))
            elif target not in documents:
                self.included.add(target)
                self._follow(target, (*above, path), documents, faults)

    def locate(self, name: str, beside: Path, scenario: Path | None = None) -> Path:
        """Return the file as `located` does. Raises UsageError also if there is none."""
        located = self.located(name, beside, scenario)
        if located is None:
            mend = f"paths start from {self.root}, or from the folder of this file"
            raise UsageError(f"there is no file `{name}`", mend)
        return located

    def located(self, name: str, beside: Path, scenario: Path | None = None) -> Path | None:
        """Return the file of that name: below the workspace, else in the folder of another file.

        `scenario` is the file that is played, if that is a third one. Raises OutsideError.
        """
        folders = (self.root, beside.parent)
        played = scenario or beside
        return files.locate_file(
            name, folders, root=self.root, scenario=played, anywhere=self.anywhere
        )


def is_part(document: Document) -> bool:
    """Return True if a file has nothing to play, so that it can only be included."""
    data = document.data
    return isinstance(data, dict) and bool(data) and not {"scenario", "steps"} & set(data)


def merged(nearest_first: Sequence[Document]) -> Any:
    """Return the data of several documents as one.

    Mappings are merged; the nearer document's values win.
    """
    data: Any = None
    for document in nearest_first:
        data = _over(data, document.data)
    return data


def _over(upper: Any, base: Any) -> Any:
    if not isinstance(upper, dict) or not isinstance(base, dict):
        return base if upper is None else upper
    result = dict(base)
    for key, value in upper.items():
        result[key] = _over(value, base[key]) if key in base else value
    return result
