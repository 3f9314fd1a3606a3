"""How many small changes to a workspace the replayed suite catches, and how often it cries wolf.

    python benchmarks/mutations.py [--show]

Of the scenarios of this repository those that have no recording are recorded in a copy. Each change
of `mutations.yaml` is made in a copy of its own, all scenarios that it may touch are replayed there
by the program, and it is

- caught where the run exits 1 (2 where the files no longer fit each other, which is as red in CI);
- named where one of the printed reasons says what was changed, as the change itself demands it, and
  no reason of any other change's run says so: what is always printed names nothing. (Of an answer
  the expectation is named that it breaks, which others may break too.)

Unchanged copies are replayed too: in another folder, another order of files and line ends, with
more jobs, other environments. One that fails or drifts is a false alarm.

Prints a table and what was missed; exits 1 unless all are caught and named, and nothing cries wolf.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
CHANGES = Path(__file__).with_suffix(".yaml")
WORKSPACE = ("agents", "scenarios", "arena.yaml", ".env")
VARIABLES = "SMALL_MODEL_URL=http://127.0.0.1:9\n"
INNOCENT = "innocent"
TEXTS = (".yaml", ".md", ".jsonl", ".py", ".json")
RECORDINGS = "recordings"
ATTACHED = ("audit-paging.md",)  # what agents are given byte by byte
ARENA = [sys.executable, "-m", "arena_cli"]
QUIET = 200  # unchanged runs

GONE = r"(?:\{{-[^\n]*?{0}[^\n]*?-\}}|^ +- .*{0}|{0}.* → )"
NEW = r"(?:\{{\+[^\n]*?{0}[^\n]*?\+\}}|^ +\+ .*{0}| → .*{0})"


class Change(NamedTuple):
    """A change, the patterns that one reason must match, all of them, and how answers are kept."""

    kind: str
    edits: list[list[str]]
    patterns: list[re.Pattern[str]]
    anew: list[str]

    @property
    def title(self) -> str:
        """What it begins with, in one line."""
        file, old, new = (edit.strip() for edit in self.edits[0][:3])
        return f"{self.kind}: {file}: {old!r} -> {new!r}"


class Ran(NamedTuple):
    """How a run ended, and what it printed."""

    code: int
    text: str


def changes() -> list[Change]:
    """All of them, in the order of the table."""
    data = yaml.safe_load(CHANGES.read_text(encoding="utf-8"))
    return [
        _change(kind, given)
        for kind, all_given in data.items()
        if kind != INNOCENT
        for given in all_given
    ]


def innocent_edits() -> list[list[str]]:
    """Return the edits that make no difference to any agent."""
    data = yaml.safe_load(CHANGES.read_text(encoding="utf-8"))
    return [given["edit"] for given in data[INNOCENT]]


def _change(kind: str, given: dict[str, Any]) -> Change:
    edits = given.get("edits") or [given["edit"]]
    anew: list[str] = []
    if "fails" in given:
        stem, _, place = given["fails"].partition(": ")
        first = rf" +scenarios/{stem}\.yaml:\d+: {re.escape(place)}"
        anew = [stem]
    else:
        first = rf"(?:drift: |arena: | {{2}})?{re.escape(given['says'])}".replace(r"\*", ".*")
    patterns = [re.compile(rf"\A{first}\n")]
    for side, form in (("gone", GONE), ("new", NEW)):
        if side in given:
            pattern = ("{0}" if anew else form).format(re.escape(given[side]))
            patterns.append(re.compile(pattern, re.MULTILINE))
    return Change(kind, edits, patterns, anew)


def reasons(text: str) -> list[str]:
    """The reasons that a run printed: causes of drift, expectations that broke, faults of files.

    Each with the lines below it that are further in.
    """
    found: list[str] = []
    inside: str | None = None  # the indent of the first line of the reason that is being read
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if _BEGINS.match(line):
            found.append("")
            inside = indent
        elif not line or inside is None or len(indent) <= len(inside):
            inside = None
            continue
        found[-1] += f"{line}\n"
    return found


_BEGINS = re.compile(r"drift: |(?:arena: | {2})?[\w./-]+\.\w+:\d+: | {4}[\w./-]+\.\w+:\d+: \S+$")


def names(change: Change, text: str) -> bool:
    """Whether one of the reasons that a run printed names the change."""
    return any(
        all(pattern.search(reason) for pattern in change.patterns) for reason in reasons(text)
    )


def copied(source: Path, target: Path) -> Path:
    """A copy of a workspace."""
    target.mkdir(parents=True)
    for part in WORKSPACE:
        if not (source / part).exists():
            continue
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy
        copy(source / part, target / part)
    return target


def arena(workspace: Path, *arguments: str, **environ: str) -> Ran:
    """A run of the program, with nothing of this environment that is about arena or CI."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ARENA_") and name != "CI"
    }
    done = subprocess.run(
        [*ARENA, "run", *arguments],
        cwd=workspace,
        env={
            **kept,
            "ARENA_TRUST": "1",
            "ARENA_LANG": "en",
            "COLUMNS": "100",
            "PYTHONUTF8": "1",
            **environ,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return Ran(done.returncode, done.stdout)


def changed(source: Path, target: Path, change: Change) -> Ran:
    """What a replay prints where the change was made."""
    workspace = copied(source, target)
    for file, old, new, *renamed in change.edits:
        path = workspace / file
        text = edited(path, old, new)
        if path.parent.name == RECORDINGS:
            text = sealed(text)
        path.write_text(text, encoding="utf-8", newline="\n")
        if renamed:
            path.rename(workspace / renamed[0])
    if change.anew and path.parent.name != RECORDINGS:
        arena(workspace, "--record", "--keep", "none", *change.anew)
    ran = arena(workspace, "--replay", "--keep", "none", *touched(change))
    shutil.rmtree(target)
    return ran


def edited(path: Path, old: str, new: str) -> str:
    """Return the text of a file with an edit made."""
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"{CHANGES.name}: {path.name} has no {old!r}")
    return text.replace(old, new, 1)


def touched(change: Change) -> list[str]:
    """The scenarios whose own files it changes; none where it may touch all."""
    found = {_OWN.fullmatch(file) for file, *_ in change.edits}
    return [] if None in found else sorted({one[1] for one in found if one})


_OWN = re.compile(rf"scenarios/(?:{RECORDINGS}/)?([\w-]+)\.(?:yaml|jsonl)")


def sealed(recording: str) -> str:
    """A recording with another answer in it, as if that had been recorded: with its checksum."""
    lines = recording.splitlines()[:-1]
    checksum = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return "\n".join([*lines, json.dumps({"type": "end", "sha256": checksum}), ""])


class Quiet(NamedTuple):
    """An unchanged run: where, with which arguments and environment."""

    kind: str
    folder: Path
    arguments: Sequence[str] = ()
    environ: dict[str, str] = {}


def quiet_runs(source: Path, folder: Path) -> Iterator[Quiet]:
    """Unchanged runs without end, each kind in turn."""
    other = copied(source, folder / "另 一个 folder")
    crlf = copied(source, folder / "crlf")
    for path in crlf.rglob("*"):
        if path.suffix in TEXTS and path.name not in ATTACHED:
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    varied = copied(source, folder / "varied")
    log = varied / "scenarios" / "fixtures" / "build-log.md"
    text = log.read_text(encoding="utf-8")
    log.write_text(text.replace("8.1 s", "9.4 s").replace("11-24", "12-01"), encoding="utf-8")
    innocent = [
        copied(source, folder / f"innocent-{index}") for index in range(len(innocent_edits()))
    ]
    for workspace, (file, old, new) in zip(innocent, innocent_edits(), strict=True):
        path = workspace / file
        path.write_text(edited(path, old, new), encoding="utf-8", newline="\n")
    stems = [path.stem for path in sorted((source / "scenarios").glob("*.yaml"))]
    temporary = folder / "tmp dir"
    temporary.mkdir()
    anywhere = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), f"{temporary}")
    home = dict.fromkeys(("HOME", "USERPROFILE"), f"{temporary}")
    elsewhere = {
        "TZ": "Asia/Shanghai",
        "LANG": "zh_CN.UTF-8",
        "ARENA_LANG": "zh",
        "USER": "somebody",
    }
    for number in itertools.count():
        order = random.Random(number).sample(stems, len(stems))
        if number == 0:
            for workspace in innocent:
                yield Quiet("innocent change", workspace, ["--replay"])
        yield Quiet("as it is", source, ["--replay"])
        yield Quiet("another order of files", source, ["--replay", *order])
        yield Quiet("four jobs", source, ["--replay", "--jobs", "4"])
        yield Quiet("another folder", other, ["--replay"])
        yield Quiet("another TMPDIR and home", source, ["--replay"], {**anywhere, **home})
        yield Quiet("another environment, in CI", source, [], {**elsewhere, "CI": "true"})
        yield Quiet("line ends of Windows", crlf, ["--replay"])
        yield Quiet("what is declared to vary", varied, ["--replay"])
        yield Quiet(
            "another hash seed",
            source,
            ["--replay", "--jobs", "16"],
            {"PYTHONHASHSEED": f"{number}"},
        )


def alarm(run: Quiet) -> str:
    """What an unchanged run cries wolf about; empty where it is quiet."""
    ran = arena(run.folder, "--json", "--keep", "none", *run.arguments, **run.environ)
    try:
        # Warnings stand before it: an innocent change may be a suspicious one.
        told = json.loads("{" + f"\n{ran.text}".partition("\n{\n")[2])
    except ValueError:
        return ran.text[-2_000:]
    if (ran.code, told["drifted"], told["warned"]) == (0, 0, 0):
        return ""
    return json.dumps({"exit": ran.code, "drift": told["drift"]}, ensure_ascii=False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--show", action="store_true", help="print all that each change's run prints"
    )
    options.add_argument("--quiet-runs", type=int, default=QUIET, help="how many are unchanged")
    options.add_argument(
        "-k", metavar="WORD", default="", help="only the changes with this in their title"
    )
    chosen = options.parse_args()
    began = time.perf_counter()
    wanted = [change for change in changes() if chosen.k in change.title]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(name)
        source = copied(ROOT, folder / "source")
        (source / ".env").write_text(VARIABLES, encoding="utf-8")
        ready = arena(source, "--record=missing", "--keep", "none", CI="1")
        if ready.code:
            raise SystemExit(f"the scenarios cannot be recorded:\n{ready.text}")
        # A recording of an earlier version takes over what it does not have of files and variables.
        arena(source, "--update", "--keep", "none", "small-model", "red-build", "programs")
        runs = list(
            pool.map(
                lambda one: changed(source, folder / f"change-{one[0]}", one[1]), enumerate(wanted)
            )
        )
        quiet = list(itertools.islice(quiet_runs(source, folder), chosen.quiet_runs))
        alarms = list(pool.map(alarm, quiet))
    if chosen.show:
        for change, ran in zip(wanted, runs, strict=True):
            print(f"=== {change.title}\n{ran.text}")
    good = report(wanted, runs) & report_quiet(quiet, alarms)
    cpu = sum(os.times()[2:4])
    print(f"{time.perf_counter() - began:.0f} s, {cpu:.0f} s of CPU")
    sys.exit(0 if good else 1)


def report(changes: Sequence[Change], runs: Sequence[Ran]) -> bool:
    """Print the table of changes, and what was missed; whether nothing was."""
    caught = [ran.code in (1, 2) for ran in runs]
    named = [
        caught[at]
        and names(change, runs[at].text)
        and (
            bool(change.anew)
            or not any(names(change, ran.text) for index, ran in enumerate(runs) if index != at)
        )
        for at, change in enumerate(changes)
    ]
    print(f"{'change':36} made caught named")
    for kind in dict.fromkeys(change.kind for change in changes):
        here = [at for at, change in enumerate(changes) if change.kind == kind]
        counts = len(here), sum(caught[at] for at in here), sum(named[at] for at in here)
        print("{:36} {:4} {:6} {:5}".format(kind, *counts))
    print("{:36} {:4} {:6} {:5}".format("all", len(changes), sum(caught), sum(named)))
    refused = sum(ran.code == 2 for ran in runs)
    print(f"of those caught, refused before anything ran, as files that do not fit: {refused}")
    for at, change in enumerate(changes):
        if not caught[at]:
            print(f"NOT CAUGHT (exit {runs[at].code}): {change.title}")
        elif not named[at]:
            told = names(change, runs[at].text)
            reason = "ITS NAME IS PRINTED FOR OTHERS TOO" if told else "NOT NAMED"
            print(f"{reason}: {change.title}")
    return all(named)


def report_quiet(quiet: Sequence[Quiet], alarms: Sequence[str]) -> bool:
    """Print how many unchanged runs were not quiet; whether none was."""
    print(f"{'unchanged':36} made false alarms")
    for kind in dict.fromkeys(run.kind for run in quiet):
        here = [bool(told) for run, told in zip(quiet, alarms, strict=True) if run.kind == kind]
        print(f"{kind:36} {len(here):4} {sum(here):12}")
    print(f"{'all':36} {len(quiet):4} {sum(map(bool, alarms)):12}")
    for kind, told in dict.fromkeys(
        (run.kind, told) for run, told in zip(quiet, alarms, strict=True) if told
    ):
        print(f"FALSE ALARM: {kind}: {told}")
    return not any(alarms)


if __name__ == "__main__":
    main()
