"""`include: common/no-secrets.yaml`: a file's keys below one's own."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from arena_cli.ground import bounds, ownfiles
from arena_cli.ground.errors import Fault
from arena_cli.yamlio import loader
from arena_cli.yamlio.document import Document

KEY = "include"


class Reader:
    """Reads the YAML files below `root`, each once.

    Others are read only if they are among `chosen`, those that the user named, or `anywhere`.
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
        """One file by itself."""
        known = self._documents.get(path)
        if known is None:
            known = self._documents[path] = self._load(path)
        return known

    def _load(self, path: Path) -> Document:
        shown = self.shown(path)
        is_inside = bounds.is_inside(path, self.root)
        is_chosen = path in self._chosen or path in self.included
        if not (is_inside or is_chosen or self.anywhere):
            what = f"is a link that leads out of the workspace: {shown}"
            return Document(shown, None, (Fault(self._link_to(path), 0, "", what, bounds.HINT),))
        return loader.load(path, shown, is_shown=is_inside or is_chosen)

    def _link_to(self, path: Path) -> str:
        """A link in the workspace that leads to a file outside, as the user is shown it."""
        links = (one for one in self.root.glob("scenarios/**/*") if ownfiles.is_link(one))
        return self.shown(next((one for one in links if Path(os.path.realpath(one)) == path), path))

    def shown(self, path: Path) -> str:
        """The path as the user is shown it."""
        inside = path.is_relative_to(self.root)
        return (path.relative_to(self.root) if inside else path).as_posix()

    def chain(self, path: Path) -> tuple[list[Document], list[Fault]]:
        """A file and all that it includes, the nearest first, and what is wrong with that."""
        found: dict[Path, Document] = {}
        faults: list[Fault] = []
        self._follow(path, (), found, faults)
        return list(found.values()), faults

    def _follow(
        self, path: Path, above: tuple[Path, ...], found: dict[Path, Document], faults: list[Fault]
    ) -> None:
        document = found[path] = self.document(path)
        data = document.data
        names = data.get(KEY, []) if isinstance(data, dict) else []
        for index, name in enumerate(names if isinstance(names, list) else [names]):
            if not isinstance(name, str):
                continue  # its shape tells
            loc = (KEY, index) if isinstance(names, list) else (KEY,)
            try:
                target = self.located(name, path, (*above, path)[0])
            except bounds.OutsideError as error:
                faults.append(document.fault(loc, error.what, error.mend))
                continue
            if target is None:
                mend = f"paths start from {self.root}, or from the folder of this file"
                faults.append(document.fault(loc, f"there is no file `{name}`", mend))
            elif target in (*above, path):
                circle = " → ".join(
                    self.document(one).name for one in (*_from(target, (*above, path)), target)
                )
                faults.append(document.fault(loc, f"includes itself: {circle}", "take one out"))
            elif target not in found:
                self.included.add(target)
                self._follow(target, (*above, path), found, faults)

    def located(self, name: str, beside: Path, scenario: Path | None = None) -> Path | None:
        """The file of that name: below the workspace, else in the folder of the file `beside`.

        `scenario` is the file that is played, if that is another. Raises OutsideError.
        """
        folders = (self.root, beside.parent)
        played = scenario or beside
        return bounds.locate(name, folders, root=self.root, scenario=played, anywhere=self.anywhere)


def _from(start: Path, paths: Sequence[Path]) -> Sequence[Path]:
    return paths[paths.index(start) :]


def is_part(document: Document) -> bool:
    """Whether it has nothing to play, so that it can only be included."""
    data = document.data
    return isinstance(data, dict) and bool(data) and not {"scenario", "steps"} & set(data)


def merged(nearest_first: Sequence[Document]) -> Any:
    """The data of several documents as one: mappings are merged, the nearer one's values win."""
    data: Any = None
    for document in nearest_first:
        data = _over(data, document.data)
    return data


def _over(own: Any, base: Any) -> Any:
    if not isinstance(own, dict) or not isinstance(base, dict):
        return base if own is None else own
    result = dict(base)
    for key, value in own.items():
        result[key] = _over(value, base[key]) if key in base else value
    return result
