"""Hash the files of the workspace that an agent is made of, to detect their changes.

These are the files that its `command`, `args`, `program` and `target` name, and those that its
`watch` matches. A file that may hold a secret is left out, and so are sessions and recordings.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from arena_cli.session import outgoing
from arena_cli.workspace.agents import list_adapters
from arena_cli.workspace.models import AgentProfile

_Matcher = Callable[[str], object]

MOST_BYTES = 8 * 1024 * 1024
"""Of a longer file only so much is hashed, with its size."""

MOST_FILES = 200
"""Where a glob matches more files, they get one hash together."""

_WRITTEN = (".log", ".pid", ".lock", ".sock", ".tmp", ".pyc")
_FOREIGN = frozenset(
    {".git", ".venv", "__pycache__", "node_modules", "recordings", "site-packages", "venv"}
)
_SESSIONS = "sessions"
_WILD = re.compile(r"[*?]")


class Hashes(NamedTuple):
    """Hashes by path from the workspace: of files that the adapter names, and of watched ones."""

    files: dict[str, str]
    watched: dict[str, str]


def hash_files(profile: AgentProfile, root: Path) -> Hashes:
    """Return the hash of each file that an agent is made of."""
    root = root.resolve()
    excluded = [_matcher(pattern[1:]) for pattern in profile.watch if pattern.startswith("!")]
    relative = dict.fromkeys(
        _relative(path, root)
        for adapter in list_adapters(profile.adapter)
        for path in _list_paths(adapter, root)
    )
    hashes = {name: _hash(root / name) for name in relative if name is not None}
    watched: dict[str, str] = {}
    for pattern in profile.watch:
        watched |= _watched(pattern, root, excluded)
    return Hashes(
        {name: hashes[name] for name in sorted(hashes) if not _matches(excluded, name)},
        dict(sorted(watched.items())),
    )


def _matches(matchers: Iterable[_Matcher], name: str) -> bool:
    return any(matches(name) for matches in matchers)


def _list_paths(adapter: Mapping[str, Any], root: Path) -> Iterator[Path]:
    """Yield what may be a file that the settings of an adapter name."""
    target = adapter.get("target")
    if isinstance(target, str):
        yield from _of_target(target.rpartition(":")[0], root)
    program = adapter.get("program")
    if isinstance(program, str):
        yield root / program
    folder = root / str(adapter.get("cwd") or ".")
    words = [*_texts(adapter.get("command")), *_texts(adapter.get("args"))]
    for index, word in enumerate(words):
        if index == 0 and PurePosixPath(word.replace("\\", "/")).name != word:
            yield root / word
        elif words[index - 1] == "-m" and index:
            yield from _of_module(word, folder)
        else:
            yield folder / word
            if word.startswith("-") and "=" in word:
                yield folder / word.partition("=")[2]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _of_target(target: str, root: Path) -> Iterator[Path]:
    if target.lower().endswith(".py") or "/" in target or "\\" in target:
        yield root / target
    else:
        yield from _of_module(target, root)


def _of_module(module: str, folder: Path) -> Iterator[Path]:
    base = folder.joinpath(*module.split("."))
    yield base.with_name(f"{base.name}.py")
    yield from (base / "__init__.py", base / "__main__.py")


def _watched(pattern: str, root: Path, excluded: Sequence[_Matcher]) -> dict[str, str]:
    if pattern.startswith("!"):
        return {}
    names = [name for name in _matching(pattern, root) if not _matches(excluded, name)]
    if len(names) <= MOST_FILES:
        return {name: _hash(root / name) for name in names}
    listing = "\n".join(f"{name} {_hash(root / name)}" for name in names)
    return {pattern: hashlib.sha256(listing.encode("utf-8", "surrogatepass")).hexdigest()}


def _matching(pattern: str, root: Path) -> Iterator[str]:
    """Yield the files that a glob matches, in order; a folder matches all files in it."""
    fixed = []
    for step in PurePosixPath(pattern).parts:
        if _WILD.search(step):
            break
        fixed.append(step)
    start = root.joinpath(*fixed)
    if start.is_file():
        name = _relative(start, root)
        yield from () if name is None else (name,)
        return
    matches = _matcher(pattern)
    for folder, folders, files in os.walk(start):
        is_root = Path(folder) == root
        folders[:] = sorted(
            name for name in folders if name not in _FOREIGN and not (is_root and name == _SESSIONS)
        )
        for file in sorted(files):
            name = _relative(Path(folder, file), root)
            if name is not None and matches(name):
                yield name


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> _Matcher:
    """Return a test for paths that match a glob: `**` is any folders, `*` no `/`."""
    steps = [
        ".*" if step == "**" else re.sub(r"\\\*", "[^/]*", re.escape(step)).replace(r"\?", "[^/]")
        for step in PurePosixPath(pattern).parts
    ]
    pattern_text = "/".join(steps).replace("/.*/", "/(?:.*/)?").removeprefix(".*/")
    begins = "(?:.*/)?" if steps[0] == ".*" and len(steps) > 1 else ""
    return re.compile(f"{begins}{pattern_text}(?:/.*)?", re.DOTALL).fullmatch


def _relative(path: Path, root: Path) -> str | None:
    """Return the path of a file from the workspace, None if it is not to be hashed."""
    try:
        if not path.is_file():
            return None
        resolved = path.resolve()
        if not resolved.is_relative_to(root):
            return None
        plain = Path(os.path.normpath(path))
    except (OSError, ValueError):
        return None
    names = [
        candidate.relative_to(root).as_posix()
        for candidate in (plain, resolved)
        if candidate.is_relative_to(root)
    ]
    return names[0] if all(map(_is_kept, names)) else None


def _is_kept(name: str) -> bool:
    path = PurePosixPath(name)
    if path.parts[0] == _SESSIONS or path.suffix.lower() in _WRITTEN:
        return False
    return _FOREIGN.isdisjoint(path.parts) and not outgoing.reason_of_name(path.name)


def _hash(path: Path) -> str:
    """Return the hash of a file, empty if it cannot be read."""
    try:
        stat = path.stat()
        return _hash_version(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=4096)
def _hash_version(path: Path, size: int, *_version: int) -> str:
    """Return the SHA-256 of a file; line ends of a text do not affect it."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES)
    digest = hashlib.sha256()
    if size > MOST_BYTES:
        digest.update(f"{size}\n".encode())
    digest.update(content if b"\0" in content else content.replace(b"\r\n", b"\n"))
    return digest.hexdigest()
