"""The program as a user runs it: files, arguments, stdin, environment; exact text and a code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forks
import inprocess
import typer
from product import main
from stage import Stage

ROOT = Path(__file__).parent.parent
SPEAK = [sys.executable, str(ROOT / "tests" / "programs" / "speak.py")]
LIMIT_S = 60.0

_HELLO = """\
session {session} · every agent

TIME  user
  {message}

── turn 1{turn_id} · must reply: dev
TIME  dev · turn 1 A · N s · N tokens
  {reply}

══ quiet · 1 reply in 1 turn · N tokens

"""

_SYSTEM = ("PATH", "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "TMP", "LOCALAPPDATA", "APPDATA")
_VARIES = [
    (re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}"), "SESSION"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+\.\d s\b"), "N s"),
    (re.compile(r"~\d+ → ~\d+ tokens"), "N tokens"),
]


@dataclass(frozen=True)
class Done:
    """What came of a run. `check` compares exactly, after what varies is taken out."""

    out: bytes
    problems: bytes
    code: int
    folder: Path
    encoding: str = "utf-8"

    @property
    def stdout(self) -> str:
        return self.out.decode(self.encoding).replace("\r\n", "\n")

    @property
    def stderr(self) -> str:
        return self.problems.decode(self.encoding).replace("\r\n", "\n")

    def normal(self, text: str) -> str:
        """The text with the times, durations, estimates, session names and the folder named."""
        for shape, name in _VARIES:
            text = shape.sub(name, text)
        return text.replace(str(self.folder), "ROOT")

    def check(self, *, code: int = 0, stdout: str | None = None, stderr: str = "") -> Done:
        """The whole of stderr, of stdout where it is given, and the exit code."""
        assert self.normal(self.stderr) == stderr
        if stdout is not None:
            assert self.normal(self.stdout) == stdout
        assert self.code == code
        return self


@dataclass
class Program(Stage):
    """arena in its own folder, with an environment that holds nothing of the tester's.

    With `real`, each run is a process: for signals, pipes, terminals, encodings, locks. It is a
    fork (`forks.py`), unless that would be another process than a user's, or `fresh` asks for one.
    """

    env: dict[str, str] = field(default_factory=dict)
    real: bool = False
    fresh: bool = False

    def file(self, path: str, content: str | bytes) -> Path:
        """Write a file of the workspace."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return target

    def program(self, agent_id: str, *words: str, **profile: Any) -> None:
        """Add a `cli` agent that does what these words of `programs/speak.py` say."""
        adapter = {"type": "cli", "command": [*SPEAK, *words]}
        self.agent(agent_id, adapter={**adapter, **profile.pop("adapter", {})}, **profile)

    def environment(self) -> dict[str, str]:
        """What a run is given: a fixed width, zone and encoding, no settings of Python or arena."""
        kept = {name: os.environ[name] for name in _SYSTEM if name in os.environ}
        fixed = {"COLUMNS": "80", "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        fixed["ARENA_LANG"] = "en"
        fixed["ARENA_TRUST"] = "1"  # tests/test_trust.py tests what happens without it
        home = {"HOME": str(self.folder), "USERPROFILE": str(self.folder)}
        return {**kept, **fixed, **home, **self.env}

    def start(self, *args: str, cwd: str = "", **options: Any) -> subprocess.Popen[bytes]:
        """The running program; its stdin is empty and its output kept unless `options` say else."""
        options = {
            "cwd": self.folder / cwd,
            "env": self.environment(),
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        if not self.fresh and forks.can_fork(self.env, options):
            return forks.Fork(args, **options)
        return subprocess.Popen([sys.executable, "-m", "arena_cli", *args], **options)

    def finish(self, running: subprocess.Popen[bytes], given: bytes | None = None) -> Done:
        """What came of a running program."""
        with running:
            try:
                out, problems = running.communicate(given, timeout=LIMIT_S)
            except BaseException:
                running.kill()
                raise
        encoding = self.env.get("PYTHONIOENCODING", "utf-8")
        return Done(out or b"", problems or b"", running.returncode, self.folder, encoding)

    def run(self, *args: str, given: bytes | None = None, cwd: str = "", **options: Any) -> Done:
        """Run it to its end: in this process, or in its own where `real` or `options` need one."""
        if self.real or options or any(name.startswith("PYTHON") for name in self.env):
            if given is not None:
                options["stdin"] = subprocess.PIPE
            return self.finish(self.start(*args, cwd=cwd, **options), given)
        ran = inprocess.run(args, self.folder / cwd, self.environment(), given or b"")
        return Done(ran.stdout, ran.stderr, ran.code, self.folder)

    def list_imported(self, *args: str) -> list[str]:
        """Return the modules that a process of its own has imported when a command succeeded."""
        code = (
            "import sys; from arena_cli.__main__ import main\n"
            f"sys.argv[1:] = {list(args)!r}\n"
            "try: main()\n"
            "except SystemExit as end: assert not end.code, end.code\n"
            "print(*sorted(sys.modules), file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()[-1].split()

    def transcript(self, session: str = "s") -> Path:
        return self.folder / "sessions" / session / "transcript.jsonl"

    def raw(self, session: str = "s") -> bytes:
        """The transcript's bytes; none before it is there."""
        path = self.transcript(session)
        return path.read_bytes() if path.exists() else b""

    def records(self, session: str = "s") -> list[dict[str, Any]]:
        """The transcript's events, decoded; each line must be whole."""
        raw = self.raw(session)
        assert raw.endswith(b"\n")
        found = [json.loads(line) for line in raw.splitlines()]
        assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
        return found

    def finished(self, session: str = "s") -> list[tuple[str, str]]:
        """(agent, status) of every reply that ended, in the order of the transcript."""
        records = self.records(session)
        return [(one["agent"], one["status"]) for one in records if one["type"] == "reply_finished"]

    def written(self) -> str:
        """Return the paths and contents of the files under `sessions/`.

        A running arena may remove files and folders meanwhile; they are left out.
        """
        texts = []
        for folder, _, names in os.walk(self.folder / "sessions"):
            for path in (Path(folder, name) for name in sorted(names)):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        texts.append(f"{path}\n{path.read_bytes().decode('utf-8', 'replace')}")
        return "\n".join(texts)


def command_names() -> set[str]:
    """Return every command of the program; a group only where it does something by itself."""
    context = typer.Context(typer.main.get_command(main.app))

    def names(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        below = command.list_commands(context) if hasattr(command, "list_commands") else []
        if path and (not below or command.invoke_without_command):
            yield " ".join(path)
        for name in below:
            yield from names(command.get_command(context, name), (*path, name))

    return set(names(context.command, ()))


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds that another process brings about."""
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.02)


def has_open(pid: int, name: str) -> bool:
    """Return True if a running process has a file of this name open."""
    import psutil

    return any(Path(file.path).name == name for file in psutil.Process(pid).open_files())


def growing_limits() -> Iterator[float]:
    """Yield time limits in seconds, each longer, for a call that must begin before it is cut off.

    The test leaves the loop at the first limit that the call began within, which depends on the
    machine. Raises AssertionError if it began within none.
    """
    yield from (0.5, 4.0, LIMIT_S)
    raise AssertionError("the call did not begin within any limit")


def gone(*pids: int) -> bool:
    """Whether none of these processes runs; one that was not reaped runs no more."""
    import psutil

    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            continue
    return True


def hello(session: str, message: str = "hello", turn: int = 1) -> str:
    """What is told when `dev`, all alone, answers a message in that turn of the session."""
    turn_id = "" if turn == 1 else f" (t{turn})"
    return _HELLO.format(
        session=session, message=message, turn_id=turn_id, reply=f"heard: {message}"
    )
