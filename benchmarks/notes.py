"""What 10,000 notes cost: whole commands, and a message in a running process.

    python benchmarks/notes.py

Most notes belong to one session, a fifth are shared, and every third is approved. Figures are
medians of the CPU, user and system, with the wall clock in brackets. Whole commands stand beside
the same command with 10 notes. `send` in process is one message with one reply of a stub: without
notes, with 5, with 500 and with all of them; in a row, and each a second after the last, when arena
looks for files that were edited in place. The runs take turns, so that the ratios hold when the
machine's speed does not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

from arena_cli.adapters.base import Health, Settings, Setup
from arena_cli.notes import markdown, staging
from arena_cli.notes.model import CATEGORIES, KINDS, Kind, Note
from arena_cli.protocol import AgentInput, AgentOutput, Emit
from arena_cli.session.outgoing import Outgoing
from arena_cli.session.session import Session, SessionConfig
from arena_cli.transcript import events
from arena_cli.transcript.events import NoteEvent
from arena_cli.util import clock
from arena_cli.workspace.models import AgentProfile, Member, Team, TeamConfig

ARENA = [sys.executable, "-m", "arena_cli"]
SESSION = "s"
NOW = datetime.now(UTC)
HAN = [chr(0x4E00 + number) for number in range(3000)]


class Stub:
    """An agent that answers at once."""

    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self, setup: Setup) -> None: ...

    async def start(self) -> None: ...

    async def invoke(self, input: AgentInput, emit: Emit) -> AgentOutput:
        return AgentOutput(content="The nightly import finished with two warnings.")

    async def health(self) -> Health:
        return Health(True)

    async def stop(self) -> None: ...


def words(chance: random.Random, count: int) -> str:
    """Return words as rare as those of real text, one in three of them Chinese."""
    return " ".join(
        "".join(HAN[min(int(chance.paretovariate(0.6)), 2999)] for _ in range(2))
        if chance.random() < 1 / 3
        else f"word{int(chance.paretovariate(0.9))}"
        for _ in range(count)
    )


def write_notes(workspace: Path, count: int) -> None:
    """Write so many notes with the trails that record their approvals."""
    chance = random.Random(1)
    own, shared = workspace / "sessions" / SESSION, workspace / "sessions" / "knowledge"
    trails: dict[Path, list[NoteEvent]] = {own / "transcript.jsonl": []}
    trails[shared / "history.jsonl"] = []
    for number in range(count):
        is_shared = number % 5 == 4
        kind: Kind = chance.choice(tuple(CATEGORIES) if is_shared else KINDS)
        stamp = clock.format_timestamp(NOW - timedelta(days=20, seconds=-number))
        title, body = words(chance, 6), words(chance, 80)
        name = f"{CATEGORIES[kind]}/{number}" if is_shared else f"{kind}-{number}"
        folder = shared if is_shared else own / "knowledge"
        note = Note(
            id=name,
            file=(folder / f"{name}.md").relative_to(workspace).as_posix(),
            title=title,
            kind=kind,
            status="approved" if number % 3 == 0 else "draft",
            created=stamp,
            updated=stamp,
            body=body,
        )
        path = workspace / note.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown.write_note(note), encoding="utf-8")
        trail = trails[shared / "history.jsonl" if is_shared else own / "transcript.jsonl"]
        acts = ("added", "approved") if note.status == "approved" else ("added",)
        trail += [_event(note, act, stamp) for act in acts]
    for path, trail in trails.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        seq = sum(1 for _ in path.open("rb")) if path.exists() else 0
        with path.open("ab") as file:
            for number, event in enumerate(trail, seq + 1):
                file.write(events.encode_line(event.model_copy(update={"seq": number})))


def _event(note: Note, act: str, stamp: str) -> NoteEvent:
    sha = staging.sha256(note) if act == "approved" else ""
    fields = {"note": note.id, "act": act, "by": "maya", "kind": note.kind, "title": note.title}
    return NoteEvent(seq=1, ts=stamp, status=note.status, sha256=sha, **fields)


class Figure(NamedTuple):
    """Seconds of CPU, user and system, and of the wall clock."""

    cpu: float
    wall: float

    @property
    def seconds(self) -> str:
        return f"{self.cpu:.2f} s ({self.wall:.2f})"

    @property
    def milliseconds(self) -> str:
        return f"{self.cpu * 1000:.1f} ms ({self.wall * 1000:.1f})"


def run(workspace: Path, *arguments: str) -> Figure:
    """Return the cost of one whole process."""
    began = time.perf_counter()
    process = subprocess.Popen([*ARENA, *arguments], cwd=workspace, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"arena {' '.join(arguments)}: exit {process.returncode}")
    return Figure(usage.ru_utime + usage.ru_stime, wall)


def make_workspace(folder: Path, count: int) -> Path:
    """Return a workspace with one session and so many notes."""
    folder.mkdir()
    run(folder, "init", "--language", "en")
    run(folder, "send", "--session", SESSION, "hello")
    if count:
        write_notes(folder, count)
    return folder


def print_line(name: str, measured: str, aim: str = "") -> None:
    print(f"{name:44} {measured:>36} {aim and f'aim: {aim}':>16}", flush=True)


def compare(work: Sequence[Callable[[int], Figure]], rounds: int) -> list[Figure]:
    """Return the medians of each measurement; they take turns."""
    figures = [[measure(number) for measure in work] for number in range(rounds)]
    return [
        Figure(*map(statistics.median, zip(*column, strict=True)))
        for column in zip(*figures, strict=True)
    ]


def list_commands(number: int) -> dict[str, list[str]]:
    """Return the measured commands; each round adds other notes and sends other messages."""
    title = f"note {number} {os.urandom(4).hex()}"
    return {
        "list": ["knowledge", "list"],
        "add": ["knowledge", "add", title, "-s", SESSION],
        "add --shared": ["knowledge", "add", title, "--shared", "--kind", "decision"],
        "inspect": ["knowledge", "inspect", "-s", SESSION],
        "search": ["knowledge", "search", "word7 word21 word300"],
        "first send": ["send", "--session", title.replace(" ", "-"), "word7"],
        "send": ["send", "--session", SESSION, f"word{number}"],
    }


def measure_commands(root: Path, count: int, rounds: int) -> None:
    """Print the figures of whole commands, with 10 notes and with `count`."""
    few, many = make_workspace(root / "few", 10), make_workspace(root / "many", count)
    built = run(many, "knowledge", "list")
    print_line(f"list, index of {count} notes built", built.seconds)
    run(few, "knowledge", "list")
    time.sleep(2.5)  # what was read within a tick of the disk's clock is read once more
    for workspace in (few, many):
        run(workspace, "knowledge", "list")
    for name in list_commands(0):
        work = [
            lambda number, workspace=workspace, name=name: run(
                workspace, *list_commands(number)[name]
            )
            for workspace in (few, many)
        ]
        figures = " → ".join(figure.seconds for figure in compare(work, rounds))
        print_line(f"{name}, 10 → {count} notes", figures, "1 s")


def open_session(workspace: Path) -> Session:
    profile = AgentProfile(agent_id="stub", adapter={"type": "stub"})
    team = Team("bench", (Member(profile=profile, name="stub"),), config=TeamConfig())
    config = SessionConfig(workspace=workspace, adapter_type=lambda _: Stub)
    return Session(config, SESSION, team)


def measure_sends(root: Path, counts: Sequence[int], rounds: int) -> None:
    """Print the milliseconds of a message in a running process, by the number of notes."""
    sessions = []
    for count in counts:
        workspace = root / f"in-process-{count}"
        (workspace / "sessions" / SESSION).mkdir(parents=True)
        if count:
            write_notes(workspace, count)
        sessions.append(open_session(workspace))

    def send(session: Session, number: int) -> Figure:
        message = Outgoing(f"@stub {words(random.Random(number), 12)}")
        began, cpu = time.perf_counter(), time.process_time()
        asyncio.run(session.send(message))
        return Figure(time.process_time() - cpu, time.perf_counter() - began)

    for session in sessions:
        send(session, -1)
    time.sleep(2.5)
    for session in sessions:
        send(session, -2)
    work = [lambda n, s=session: send(s, n) for session in sessions]
    by_name = {
        "in a row": compare(work, rounds),
        "a second later": compare([pause, *work], rounds)[1:],
    }
    for session in sessions:
        session.close()
    for name, figures in by_name.items():
        by_count = dict(zip(counts, figures, strict=True))
        for count, figure in by_count.items():
            aim = f"{by_count[0].cpu * 1000 + 30:.0f} ms" if count == counts[-1] else ""
            print_line(f"send {name}, {count} notes", figure.milliseconds, aim)
        ratio = by_count[500].cpu / by_count[5].cpu
        print_line(f"send {name}, CPU, 500 beside 5", f"{ratio:.2f} x", "1.2 x")


def pause(_: int) -> Figure:
    """Wait until arena looks at the files of notes again."""
    time.sleep(1.05)
    return Figure(0, 0)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--notes", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=7)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_commands(Path(folder), chosen.notes, chosen.rounds)
        measure_sends(Path(folder), (0, 5, 500, chosen.notes), 3 * chosen.rounds)


if __name__ == "__main__":
    main()
