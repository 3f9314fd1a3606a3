"""Write the files of a new workspace: a small team that works offline, and two scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from arena_cli.ground import wholefile
from arena_cli.ground.errors import UsageError

Template = Literal["software", "incident"]

SCHEMAS = ".schema"

FIRST_WORDS: dict[Template, str] = {
    "software": "hello",
    "incident": "checkout returns 500, customers cannot place orders",
}

_RENAMED = {"gitignore": ".gitignore"}
_OPTIONAL = frozenset({".gitignore"})  # one that is there already stays as it is


def template(
    schemas: Mapping[str, Mapping[str, Any]], name: Template = "software"
) -> dict[str, bytes]:
    """Return every file of a new workspace by its path (`agents/architect.yaml`).

    `schemas` are the JSON Schemas that the YAML files name for the editor: `agent`, `team`,
    `scenario` and `workspace`.
    """
    contents = dict(_contents(files("arena_cli.team") / "template" / name, ""))
    for kind, schema in schemas.items():
        text = json.dumps(schema, ensure_ascii=False, indent=2) + "\n"
        contents[f"{SCHEMAS}/{kind}.json"] = text.encode()
    return contents


def _contents(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = prefix + _RENAMED.get(entry.name, entry.name)
        if entry.is_dir():
            yield from _contents(entry, f"{path}/")
        else:
            yield path, entry.read_bytes()


def write(
    target: Path, schemas: Mapping[str, Mapping[str, Any]], name: Template = "software"
) -> list[Path]:
    """Write a new workspace into `target`, and return the paths that were written.

    Raise UsageError, with nothing written, if one of its files exists already, or if the folder
    cannot be written.
    """
    contents = {target / path: (path, data) for path, data in template(schemas, name).items()}
    unchanged = _list_unchanged(contents)
    blocking = [contents[path][0] for path in contents if _exists(path) and path not in unchanged]
    if blocking:
        problem = f"{target} has these files already: {', '.join(blocking)}"
        raise UsageError(problem, "nothing was written; choose another folder, or move them away")
    written = [path for path in contents if path not in unchanged]
    for path in written:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            wholefile.create(path, contents[path][1])
        except OSError as error:
            problem = f"{path} cannot be written: {error.strerror or error}"
            raise UsageError(problem, "mend the rights, or choose another folder") from error
    return written


def _list_unchanged(contents: Mapping[Path, tuple[str, bytes]]) -> set[Path]:
    """Return the existing files that stay: optional ones, and those of an `init` that was killed.

    Such an `init` left files as they are to be, and others are missing.
    """
    existing = [path for path in contents if _exists(path)]
    same = [path for path in existing if path.is_file() and path.read_bytes() == contents[path][1]]
    for path in same:
        wholefile.sweep(path.parent, path.name)
    optional = {path for path in existing if contents[path][0] in _OPTIONAL}
    return optional | set(same if len(existing) < len(contents) else ())


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
