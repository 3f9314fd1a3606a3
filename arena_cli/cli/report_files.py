"""Write the report files of a run; check that each can be written before the run begins.

Each report is written completely, at the end, and replaces an existing one. After Ctrl-C, or if an
error ends the run, it contains the results up to that point.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from arena_cli.cli import common
from arena_cli.errors import DiskRefused, UsageError
from arena_cli.reports import lines
from arena_cli.reports.ci import MOST_BYTES, commands, document, in_repository, summary
from arena_cli.util.files import read_commit
from arena_cli.util.text import escape_line

if TYPE_CHECKING:
    from arena_cli.reports.lines import Words
    from arena_cli.scenarios.result import RunResult


class Reports:
    """All reports that were requested for a run.

    They are opened before anything runs: raises UsageError if one cannot be written. Missing
    folders are created, as pytest does. `root` is the workspace's folder.
    """

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        junit: Path | None = None,
        html: Path | None = None,
        github: bool = False,
    ) -> None:
        self._root = root
        self._environ = environ
        self._github = github
        self._junit = opened("--junit", junit) if junit is not None else None
        self._html = opened("--html", html) if html is not None else None
        if self._junit and self._junit == self._html:
            raise UsageError(
                f"--junit and --html are one file: {escape_line(str(self._junit))}",
                "give each its own",
            )
        self._summary = _summary(environ) if github else None

    @property
    def detail(self) -> bool:
        """True if a report also needs the details of passed scenarios."""
        return self._junit is not None or self._html is not None

    def write(self, run_result: RunResult, error: str = "") -> None:
        """Write all reports; `error` is why the run ended early, if it did.

        Raises DiskRefused after all other reports were written.
        """
        say = lines.user_words()
        refused: list[str] = []
        for write in (self._write_junit, self._write_html, self._tell_github):
            try:
                write(run_result, say, error)
            except DiskRefused as failed:
                refused.append(failed.what)
        if refused:
            raise DiskRefused("\n".join(refused))

    def _write_junit(self, run_result: RunResult, say: Words, error: str) -> None:
        if self._junit:
            replace(self._junit, document(run_result, say, error))

    def _write_html(self, run_result: RunResult, say: Words, error: str) -> None:  # noqa: ARG002 - as the others
        if self._html:
            from arena_cli.reports.html import render

            command = shlex.join(["arena", *sys.argv[1:]])
            origin = render.RunOrigin(self._root.name, read_commit(self._root), command)
            replace(self._html, render.page(run_result, say, origin).encode())

    def _tell_github(self, run_result: RunResult, say: Words, error: str) -> None:
        """Print annotations on stderr: the CI runner reads both streams, and stdout may be JSON."""
        if not self._github:
            return
        path = in_repository(self._root, self._environ)
        for line in commands(run_result, say, path, error):
            common.warn(line)
        if self._summary:
            with _told_refusal(self._summary):
                present_bytes = self._summary.stat().st_size if self._summary.exists() else 0
                text = summary(run_result, say, MOST_BYTES - present_bytes, error)
                with self._summary.open("ab") as file:
                    file.write(text.encode())


def opened(option: str, path: Path) -> Path:
    """Return the file to write, with links resolved. Raises UsageError if it cannot be written."""
    if str(path) == "-" or _is_stdout(path):
        raise UsageError(
            f"{option} writes a file, and `{escape_line(str(path))}` is stdout",
            f"name one: {option} report{'.xml' if option == '--junit' else '.html'}",
        )
    target = Path(os.path.realpath(path))
    with _told_use(option, path):
        if path.is_fifo():
            raise UsageError(f"{option}: {escape_line(str(path))} is a pipe", "name a file")
        if target.is_dir():
            raise UsageError(f"{option}: {escape_line(str(path))} is a folder", "name a file in it")
        if target.exists() and not target.is_file():  # a device: it is written to, never replaced
            target.open("ab").close()
            return target
        if target.is_file():
            _refuse_other(option, path, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        _part(target).unlink()
    return target


def _is_stdout(path: Path) -> bool:
    """Return True if the file is stdout, which is reserved for the results."""
    with contextlib.suppress(OSError, ValueError):
        target_status, here = path.stat(), os.fstat(1)
        return os.path.samestat(target_status, here) and not stat.S_ISCHR(target_status.st_mode)
    return False


def _refuse_other(option: str, path: Path, target: Path) -> None:
    """Refuse to replace a file that is not a report, such as `--junit scenarios/a.yaml`."""
    with target.open("r+b") as file:
        begins = file.read(64).lstrip()
    if begins and not begins.startswith(b"<"):
        raise UsageError(
            f"{option}: {escape_line(str(path))} already exists and is not a report",
            "name another file, or move that one away",
        )


def _part(target: Path) -> Path:
    """Create an empty temporary file next to the target."""
    path = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}")
    path.open("xb").close()
    return path


def replace(target: Path, data: bytes) -> None:
    """Write a file completely, or leave it unchanged."""
    with _told_refusal(target):
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        temporary = _part(target)
        try:
            temporary.write_bytes(data)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _summary(environ: Mapping[str, str]) -> Path | None:
    """Return the file for the step summary of GitHub Actions; None outside of it."""
    name = environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return None
    path = Path(name)
    with _told_use("GITHUB_STEP_SUMMARY", path):
        path.open("ab").close()
    return path


@contextlib.contextmanager
def _told_use(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"{option}: cannot write {escape_line(str(path))}: {reason}",
            "nothing was run; name another file",
        ) from error


@contextlib.contextmanager
def _told_refusal(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskRefused(
            f"{escape_line(str(path))}: could not write: {error.strerror or error}"
        ) from error
