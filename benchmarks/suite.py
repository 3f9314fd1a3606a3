"""CPU and wall time of 1,000 small scenarios as whole `arena run` processes, beside other tools.

    python benchmarks/suite.py --promptfoo node_modules/.bin/promptfoo --inspect-python PYTHON

A scenario is one message to one scripted agent and three expectations; they stand in 1,000 files,
or in one file of 1,000 cases. CPU is user and system time of the process and all its children.
Figures are of rounds taken in turn; a ratio is the median of those against `--jobs 1` over files
in the same round. First every number of jobs is checked to find the same wrong scenarios, and to
print of a replay the same `--json`, byte for byte but for times. A disk that others use makes the
figures swing; `TMPDIR=/dev/shm` takes it out.

- `bare loop`: an empty Python that writes the bytes of the transcripts into as many folders.
- `--keep all`: the transcripts stay; otherwise those of scenarios that passed are removed again.
- `--replay`: the same scenarios, recorded before.
- 12 replies: two messages to six agents, replayed; CPU of one more scenario, by the difference
  between two numbers of them.
- promptfoo: as many tests of its `echo` provider with one assertion, cache off, telemetry off;
  it keeps the results in a database of its own.
- inspect_ai: as many samples of its mock model, which is given its usage (else it would count
  tokens), with one scorer; it keeps a log.

Those two judge one answer a test; neither plays a conversation, nor writes a transcript for each.

Exits 1 where a replay misses its aims: of 1,000 scenarios 4 s of CPU and 300 MB, of a scenario of
12 replies 5 ms. The least of the rounds counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ARENA = [sys.executable, "-m", "arena_cli"]
JOBS = (1, 4, 16)
BASE = "arena run, files, --jobs 1"
REPLAY = "arena run --replay, "
WRONG = 7  # of so many scenarios one expects what does not come, where equal results are checked
TWELVE = (50, 250)  # scenarios of 12 replies
MOST_S, MOST_MB, MOST_MS = 4.0, 300, 5.0  # the aims, of 1,000 scenarios and of one of 12 replies

AGENT = """\
agent_id: helper
adapter: {type: scripted, replies: [{say: "Noted: ${message}"}]}
"""
STEPS = """\
agents: [helper]
steps:
  - send: "@helper question NUMBER"
    expect: {replied: [helper], end: quiet, replies: {helper: [{contains: "question EXPECTED"}]}}
"""
MEMBERS = ("ann", "ben", "cleo", "dan", "eve", "finn")
MEMBER = """\
agent_id: NAME
role_prompt: You are NAME. Say in a sentence what you make of it.
adapter: {type: scripted, replies: [{say: "NAME read: ${message}"}]}
"""
TWELVE_REPLIES = """\
scenario: Twelve replies NUMBER
config: {max_responders: 6, selection: none}
steps:
  - send: "@all question NUMBER"
    expect: {replies_count: 6, end: quiet, replies: {ann: [{contains: "question NUMBER"}]}}
  - send: "@all and once more"
    expect: {replied: [ann, ben, cleo, dan, eve, finn], end: quiet}
"""
LOOP = """\
import pathlib, sys
root, count, source = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
content = source.read_bytes()
for number in range(count):
    folder = root / f"{number}"
    folder.mkdir(parents=True)
    (folder / "transcript.jsonl").write_bytes(content)
"""
INSPECT = """\
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

def answer(*_):
    said = ModelOutput.from_content(model="mockllm", content="Noted")
    said.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return said

count = int(sys.argv[1])
samples = [Sample(input=f"question {number}", target="Noted") for number in range(count)]
task = Task(dataset=samples, solver=generate(), scorer=includes())
model = get_model("mockllm/model", custom_outputs=answer)
[log] = eval(task, model=model, display="none", log_dir="logs")
done = log.results and log.results.completed_samples
sys.exit(0 if (log.status, done) == ("success", count) else f"{log.status}: {log.error}")
"""


class Command(NamedTuple):
    """A row: what is run, where, with what beside the environment; None where nothing is there."""

    arguments: Sequence[str] | None
    folder: Path
    environ: Mapping[str, str] = {}
    leaves: str = ""  # a folder that is removed after each run


class Cost(NamedTuple):
    """Seconds, and the most memory at a time in MB, of the process itself."""

    cpu: float
    wall: float
    peak: float


def written(workspace: Path, count: int, *, cases: bool, wrong: int = 0) -> Path:
    """A workspace of so many scenarios; of every `wrong` the first expects what does not come."""
    (workspace / "agents").mkdir(parents=True)
    (workspace / "scenarios").mkdir()
    (workspace / "agents" / "helper.yaml").write_text(AGENT, encoding="utf-8")
    expected = ["none" if wrong and number % wrong == 0 else number for number in range(count)]
    if cases:
        lines = ["scenario: Small talk", "cases:"]
        for number, wanted in enumerate(expected):
            lines.append(f"  - {{id: c{number}, vars: {{n: '{number}', wanted: '{wanted}'}}}}")
        text = STEPS.replace("NUMBER", "${vars.n}").replace("EXPECTED", "${vars.wanted}")
        file = workspace / "scenarios" / "all.yaml"
        file.write_text("\n".join([*lines, text]), encoding="utf-8")
        return workspace
    for number, wanted in enumerate(expected):
        text = STEPS.replace("NUMBER", f"{number}").replace("EXPECTED", f"{wanted}")
        file = workspace / "scenarios" / f"s{number:05}.yaml"
        file.write_text(f"scenario: Small talk {number}\n{text}", encoding="utf-8")
    return workspace


def twelve(workspace: Path, count: int) -> Path:
    """A workspace of so many scenarios of 12 replies, recorded."""
    (workspace / "agents").mkdir(parents=True)
    (workspace / "scenarios").mkdir()
    for name in MEMBERS:
        text = MEMBER.replace("NAME", name)
        (workspace / "agents" / f"{name}.yaml").write_text(text, encoding="utf-8")
    for number in range(count):
        text = TWELVE_REPLIES.replace("NUMBER", f"{number}")
        (workspace / "scenarios" / f"s{number:05}.yaml").write_text(text, encoding="utf-8")
    return recorded(workspace)


def recorded(workspace: Path) -> Path:
    """The workspace, its scenarios recorded."""
    told([*ARENA, "run", "--record", "--keep", "none", "--json"], workspace, codes=(0, 1))
    return workspace


def told(command: Sequence[str], workspace: Path, *, codes: Sequence[int]) -> str:
    """What a run prints that ends with one of these codes."""
    done = subprocess.run(command, cwd=workspace, stdout=subprocess.PIPE, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}, {codes} expected")
    return done.stdout.decode("utf-8")


def check_equal(folder: Path, count: int) -> None:
    """Play scenarios of which some are wrong; any number of jobs must find just these.

    Of a replay it must print the same, save times.
    """
    wanted = ["passed" if number % WRONG else "failed" for number in range(count)]
    for cases in (False, True):
        workspace = written(folder / f"wrong-{cases}", count, cases=cases, wrong=WRONG)
        command = [*ARENA, "run", "--json", "--keep", "none", "--jobs"]
        for jobs in JOBS:
            text = told([*command, f"{jobs}"], workspace, codes=[1])
            found = [one["status"] for one in json.loads(text)["scenarios"]]
            if found != wanted:
                raise SystemExit(f"--jobs {jobs} does not find what is wrong: {found}")
        recorded(workspace)
        replays = {
            _SECONDS.sub("", told([*command, f"{jobs}", "--replay"], workspace, codes=[1]))
            for jobs in JOBS
        }
        if len(replays) > 1:
            raise SystemExit(f"--replay --json is not the same at --jobs {JOBS}")


_SECONDS = re.compile(r'"seconds": [\d.e-]+')


def rows(
    folder: Path, count: int, promptfoo: str | None, inspect: str | None
) -> dict[str, Command]:
    """What is measured, in the order of the table."""
    files = written(folder / "files", count, cases=False)
    run = [*ARENA, "run"]
    command = Command([*run, "--live", "--keep", "all"], files, leaves="sessions")
    measured(command._replace(arguments=[*run, "--keep", "all", "s00000"], leaves=""))
    sample = shutil.move(next(files.glob("sessions/*/transcript.jsonl")), folder / "sample")
    shutil.rmtree(files / "sessions")
    loop = [sys.executable, "-c", LOOP, "bare", f"{count}", f"{sample}"]
    commands = {
        "python -c pass": Command([sys.executable, "-c", "pass"], folder),
        "bare loop": Command(loop, folder, leaves="bare"),
    }
    forms = {"files": files, "cases": written(folder / "cases", count, cases=True)}
    for form, place in forms.items():
        for jobs in JOBS:
            name = f"arena run, {form}, --jobs {jobs}"
            commands[name] = Command([*run, "--live", "--jobs", f"{jobs}"], place)
    commands["arena run, files, --keep all"] = command
    for form, place in forms.items():
        recorded(place)
        for jobs in JOBS:
            name = f"{REPLAY}{form}, --jobs {jobs}"
            commands[name] = Command([*run, "--replay", "--jobs", f"{jobs}"], place)
    for number in TWELVE:
        place = twelve(folder / f"twelve-{number}", number)
        commands[f"12 replies, {number} scenarios"] = Command([*run, "--replay"], place)
    commands["promptfoo"] = _promptfoo(folder / "promptfoo", count, promptfoo)
    commands["inspect_ai"] = _inspect(folder / "inspect", count, inspect)
    return commands


def _promptfoo(folder: Path, count: int, program: str | None) -> Command:
    folder.mkdir()
    tests = [
        {"vars": {"n": n}, "assert": [{"type": "contains", "value": f"question {n}"}]}
        for n in range(count)
    ]
    config = {"prompts": ["question {{n}}"], "providers": ["echo"], "tests": tests}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    environ = {
        "PROMPTFOO_CONFIG_DIR": f"{folder / 'home'}",
        **{f"PROMPTFOO_DISABLE_{what}": "1" for what in ("TELEMETRY", "UPDATE")},
        # its log files at times end it with `write after end`
        **{f"PROMPTFOO_DISABLE_{what}_LOG": "1" for what in ("DEBUG", "ERROR")},
    }
    options = ["-c", "config.json", "--no-cache", "--no-table", "--no-progress-bar"]
    arguments = [_absolute(program), "eval", *options] if program else None
    return Command(arguments, folder, environ, "home")


def _inspect(folder: Path, count: int, python: str | None) -> Command:
    folder.mkdir()
    (folder / "samples.py").write_text(INSPECT, encoding="utf-8")
    arguments = [_absolute(python), "samples.py", f"{count}"] if python else None
    return Command(arguments, folder, {"HOME": f"{folder}"}, "logs")


def _absolute(program: str) -> str:
    return f"{Path(program).absolute()}"  # not resolved: a link is how a venv's Python finds it


def measured(command: Command) -> Cost:
    """Run it once. Leaves the folder as it was."""
    assert command.arguments is not None
    with tempfile.TemporaryFile() as problems:
        began = time.perf_counter()
        process = subprocess.Popen(
            command.arguments,
            cwd=command.folder,
            env={**os.environ, **command.environ},
            stdout=subprocess.DEVNULL,
            stderr=problems,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            problems.seek(0)
            sys.stderr.buffer.write(problems.read()[-2_000:])
            raise SystemExit(f"{' '.join(command.arguments)}: exit {process.returncode}")
    if command.leaves:
        shutil.rmtree(command.folder / command.leaves)
    of_kilobyte = 1_000_000 if sys.platform == "darwin" else 1_000
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / of_kilobyte)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scenarios", type=int, default=1_000)
    options.add_argument("--promptfoo", metavar="PATH", default=shutil.which("promptfoo"))
    here = sys.executable if importlib.util.find_spec("inspect_ai") else None
    options.add_argument("--inspect-python", metavar="PATH", default=here)
    chosen = options.parse_args()
    count = chosen.scenarios
    with tempfile.TemporaryDirectory() as folder:
        check_equal(Path(folder), count)
        print(f"{count} scenarios, one in {WRONG} wrong: the same at --jobs {JOBS}")
        commands = rows(Path(folder), count, chosen.promptfoo, chosen.inspect_python)
        figures: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(chosen.rounds):
            for name, command in commands.items():
                if command.arguments:
                    figures[name].append(measured(command))
    print(f"{count} scenarios, rounds: {chosen.rounds}; seconds, MB")
    print(f"{'':35} CPU least  median   ratio   wall  ratio   peak")
    for name, taken in figures.items():
        print(f"{name:35} {_columns(taken, figures[BASE])}")
    sys.exit(0 if _aims_are_met(figures, count) else 1)


def _columns(costs: list[Cost], base: list[Cost]) -> str:
    if not costs:
        return "not installed"
    least = min(cost.cpu for cost in costs)
    cpu, wall, peak = (statistics.median(column) for column in zip(*costs, strict=True))
    beside = list(zip(costs, base, strict=True))
    cpu_ratio = statistics.median(one.cpu / other.cpu for one, other in beside)
    wall_ratio = statistics.median(one.wall / other.wall for one, other in beside)
    return f"{least:9.2f} {cpu:7.2f} {cpu_ratio:7.2f} {wall:6.2f} {wall_ratio:6.2f} {peak:6.0f}"


def _aims_are_met(figures: Mapping[str, Sequence[Cost]], count: int) -> bool:
    """Print what replays cost, and whether that is what they may; the aims are of 1,000."""
    replays = [taken for name, taken in figures.items() if name.startswith(REPLAY)]
    cpu = max(min(cost.cpu for cost in taken) for taken in replays)
    peak = max(cost.peak for taken in replays for cost in taken)
    few, many = (min(c.cpu for c in figures[f"12 replies, {n} scenarios"]) for n in TWELVE)
    each_ms = (many - few) / (TWELVE[1] - TWELVE[0]) * 1_000
    print(f"{count} replayed: {cpu:.2f} s of CPU (aim {MOST_S}), {peak:.0f} MB (aim {MOST_MB})")
    print(f"one more scenario of 12 replies: {each_ms:.1f} ms of CPU (aim {MOST_MS})")
    return cpu <= MOST_S and peak <= MOST_MB and each_ms <= MOST_MS


if __name__ == "__main__":
    main()
