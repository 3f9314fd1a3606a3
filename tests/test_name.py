"""The name on the package index: every text names what can be installed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from product import process_signals

ROOT = Path(__file__).parent.parent
FOLDERS = ("arena_cli", "tests", "docs", "benchmarks", "agents", "scenarios", "schemas", ".ci")

# Another company's program on the index; written so that this file does not name it.
OTHERS = re.compile(r"arena[-]cli|pip3? install[^\n]*\barena[_.]cli\b", re.IGNORECASE)
RENAMED = "The distribution is called `arena-agents`"


def texts() -> Iterator[tuple[Path, str]]:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in files:
        if "__pycache__" in path.parts or path.name.startswith(".coverage"):
            continue
        data = path.read_bytes()
        if b"\0" not in data[:8000]:
            yield path, data.decode("utf-8", "replace")


def test_no_text_names_the_program_of_another_company() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path, text in texts()
        for line in text.splitlines()
        if OTHERS.search(line) and not (path.name == "CHANGELOG.md" and RENAMED in line)
    ]
    assert found == []


def test_the_distribution_and_what_it_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == process_signals.DISTRIBUTION == "arena-agents"
    assert project["scripts"] == {"arena": "arena_cli.__main__:main"}


def test_every_extra_that_a_text_names_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        name
        for _, text in texts()
        for found in re.findall(r"(?:\binstall [\'\"]\.|arena-agents)\[([a-z, ]+)\]", text)
        for name in re.split(r",\s*", found)
    }
    assert {"acp", "search", "language", "test", "check"} & named
    assert named <= project["optional-dependencies"].keys()
    for extra in ("acp", "search", "language"):
        assert f"pip install '.[{extra}]'" in process_signals.describe_install(extra)
        assert (
            f"pip install 'arena-agents[{extra}] @ git+https://...'"
            in process_signals.describe_install(extra)
        )
