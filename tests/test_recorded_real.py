"""The repository's scenarios of real agents: replayed anywhere, recorded anew where they are."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import record_real
from product import file
from program import Program

ROOT = Path(__file__).parents[1]
NAMES = record_real.NAMES
VARIES = ("usage", "sha256")  # what programs add to a prompt has paths and a date in it


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the workspace that the repository is."""
    for part in ("agents", "scenarios"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / "arena.yaml", tmp_path)
    return tmp_path


def recording(folder: Path, name: str) -> Path:
    return file.path_of(folder / "scenarios" / f"{name}.yaml")


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording(folder, name).read_text("utf-8").splitlines()]


def without(data: Any, names: tuple[str, ...]) -> Any:
    if isinstance(data, dict):
        return {key: without(value, names) for key, value in data.items() if key not in names}
    return [without(one, names) for one in data] if isinstance(data, list) else data


def routing(lines: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Who was called, why, what came of it, and how each chain ended."""
    for line in lines:
        match line["type"]:
            case "reply_started":
                yield line["agent"], line["phase"], line["input"].get("mentioned_by")
            case "reply_finished":
                yield line["agent"], line["status"], line["next_mentions"]
            case "turn_started" | "turn_finished":
                yield line["type"], line.get("must"), line.get("next")
            case "chain_finished":
                yield line["end"], line["awaits"]
            case "judge":
                yield line["agent"], "judges"


def recorded_anew(copy: Path, name: str) -> None:
    """Recorded in the copy, from nothing; skips where the agents are not."""
    recording(copy, name).unlink()
    try:
        done = record_real.record(copy, name)
    except record_real.Missing as missing:
        pytest.skip(str(missing))
    assert done.returncode == 0, done.stdout


def test_in_ci_they_are_replayed_without_any_agent(copy: Path) -> None:
    nowhere = {"CI": "true", "PATH": str(copy)}
    done = Program(copy, env=nowhere).run("run", "--json", *NAMES)
    told = json.loads(done.stdout)
    assert done.code == 0, done.stdout
    assert [(one["mode"], one["status"], one["drift"]) for one in told["scenarios"]] == [
        ("replay", "passed", [])
    ] * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_names_no_machine_nobody_and_no_key(name: str) -> None:
    text = recording(ROOT, name).read_text("utf-8")
    found = re.findall(
        r"(?<![\w.])/(?:\w+/)+\w*|[A-Z]:\\\\|127\.0\.0\.1|localhost|::1|https?:", text
    )
    assert found == []
    for own in (record_real.KEY, socket.gethostname(), str(Path.home()), sys.prefix):
        assert own not in text
    assert f'"{getpass.getuser()}"' not in text


@pytest.mark.real_program
@pytest.mark.parametrize("name", record_real.SMALL)
def test_the_small_model_recorded_anew_is_called_as_before(copy: Path, name: str) -> None:
    recorded_anew(copy, name)
    now, before = (records(folder, name) for folder in (copy, ROOT))
    # On another kind of processor it may say something else; who is called stays.
    assert list(routing(now)) == list(routing(before))
    said = [line["output"]["content"] for line in now if "output" in line]
    assert all(said)


@pytest.mark.real_program
def test_the_programs_recorded_anew_are_as_before(copy: Path) -> None:
    recorded_anew(copy, record_real.PROGRAMS)
    now, before = (
        without(records(folder, record_real.PROGRAMS), VARIES) for folder in (copy, ROOT)
    )
    assert now == before
