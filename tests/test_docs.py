"""README and docs, held to the program: files load, commands run, tables and help tell the truth.

A fence names the file that it shows (```yaml agents/dev.yaml; `faulty` if arena should refuse it).
A console block is run as it stands (`$ ` before a command, `> ` before its further lines, `...` for
any output), in the order of the page, in the workspace that the page begins with; `exit=N` is its
exit code, `busy=SESSION` a session that somebody holds meanwhile. What is for a shell that is not
here (PowerShell, cmd.exe) is read by the rules that the page tells of it, and arena is given what
comes of that.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import inprocess
import pytest
from product import (
    EVENT_TYPES,
    KINDS,
    STATUSES,
    ArenaError,
    CarriedFile,
    CarriedPart,
    Cost,
    DeviationRow,
    End,
    Exactly,
    Expect,
    Note,
    Noted,
    NoteRow,
    NotesShown,
    PassedOverBy,
    Range,
    Replied,
    ReplyRow,
    Selected,
    Shape,
    TextCheck,
    Which,
    base,
    main,
    mentions,
    models,
    protocol,
    workspace,
)
from product import scenarios_loader as loader
from product import scenarios_model as model
from product import session_store as store
from program import command_names
from pydantic import BaseModel
from support import member, team

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
README_ZH = ROOT / "README.zh-CN.md"
READMES = [README, README_ZH]
PAGES = [*READMES, *sorted(path for path in DOCS.glob("*/*.md") if path.stem != "help")]
INDEXES = [DOCS / "README.md", ROOT / "CONTRIBUTING.md"]
HELP = DOCS / "reference" / "help.md"
SHELLS = DOCS / "guides" / "shells.md"
BEGINS_WITH = {  # the command that made the workspace of a page; of the others, `arena init`
    "README.md": "arena init --template incident",
    "control.md": "true",
    "first-team.md": "true",
    "mcp.md": "true",
    "real-agents.md": "true",
    "your-scripts.md": "true",
    "your-scripts.zh-CN.md": "true",
}
COMMANDS = (
    "",
    "init",
    "trust",
    "send",
    "plan",
    "resume",
    "wait",
    "approvals",
    "approve",
    "reject",
    "choose",
    "pause",
    "cancel",
    "steer",
    "terminate",
    "status",
    "checkpoint",
    "checkpoints",
    "fork",
    "rewind",
    "edit",
    "reassign",
    "react",
    "read",
    "unread",
    "task add",
    "task show",
    "task assign",
    "task reassign",
    "task block",
    "task unblock",
    "task done",
    "task cancel",
    "tasks",
    "work",
    "run",
    "flow check",
    "flow draw",
    "flow run",
    "promote",
    "diff",
    "show",
    "context",
    "usage",
    "export",
    "knowledge",
    "knowledge add",
    "knowledge list",
    "knowledge show",
    "knowledge submit",
    "knowledge approve",
    "knowledge reject",
    "knowledge archive",
    "knowledge restore",
    "knowledge history",
    "knowledge search",
    "knowledge inspect",
    "sessions",
    "sessions archive",
    "sessions restore",
    "sessions rename",
    "sessions delete",
    "agents",
    "agents add",
    "agents check",
    "agents find",
    "agents test",
    "agents run",
    "teams",
    "doctor",
    "mcp",
    "schema",
    "path",
)

_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ANYTHING = "..."
# a command that needs no shell: variables, words, a file for its output
_PLAIN = re.compile(
    r"""(?P<variables>(?:(?!PYTHON|_)\w+=[\w.-]+ )*)"""
    r"""(?P<words>arena(?: (?:[\w@./:=+,✅-]+|"[^"$`\\!\n]*"|'[^'\n]*'))*)"""
    r"""(?: > (?P<file>[\w.-]+))?"""
)
_VARIES = [
    (re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}"), "SESSION"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+\.\d+ (?:s\b|秒)"), "N s"),
    (re.compile(r"~\d+ → ~\d+ tokens"), "N tokens"),
]

needs_sh = pytest.mark.skipif(shutil.which("sh") is None, reason="the commands are for a shell")


def _page(name: str) -> Path:
    (path,) = DOCS.rglob(name)
    return path


@dataclass(frozen=True)
class Block:
    """A fenced block; `words` stand after its language (`exit=3`, a path)."""

    language: str
    words: list[str]
    text: str

    def option(self, name: str) -> str | None:
        """The value of `name=value` among the words."""
        found = (word.partition("=") for word in self.words)
        return next((value for key, _, value in found if key == name), None)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text_of(page)):
        language, *words = match[2].split() or [""]
        found.append(Block(language, words, match[3]))
    return found


def rows(page: Path, first_heading: str, *, under: str = "") -> list[list[str]]:
    """The cells of the table whose first column is called that, the heading apart."""
    text = text_of(page)
    lines = (text.partition(f"\n## {under}\n")[2] if under else text).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line.strip("|"))
        found.append([cell.strip().replace(r"\|", "|") for cell in cells])
    return found


def spans(text: str) -> list[str]:
    """What stands between backticks."""
    return [match[2].strip() if len(match[1]) > 1 else match[2] for match in _SPAN.finditer(text)]


def known_fields(*shape_types: type[BaseModel]) -> set[str]:
    return {info.alias or name for one in shape_types for name, info in one.model_fields.items()}


@dataclass(frozen=True)
class Ran:
    """What came of a command line; stderr stands where it came, as on a terminal."""

    output: str
    code: int


@dataclass
class Reader:
    """Somebody who does what a page says, step by step, in the workspace `folder`."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    language: str = "en"
    newcomer: bool = False  # whose environment trusts nothing
    plugins: list[str] = field(default_factory=list)
    commands: int = 0

    @property
    def bin(self) -> Path:
        return self.folder.parent / "bin"

    def prepare(self, begin: str = "arena init") -> None:
        """A workspace as `begin` makes it, and on PATH: arena, and a program like `claude -p`."""
        self.folder.mkdir()
        self.bin.mkdir()
        self._script("arena", f'exec "{sys.executable}" -m arena_cli "$@"')
        self._script("python3", f'exec "{sys.executable}" "$@"')
        answer = {"type": "result", "is_error": False, "result": "I found no problem."}
        said = json.dumps(answer, ensure_ascii=False)
        self._script("claude", f"cat > /dev/null\necho '{said}'")
        assert self.shell(begin).code == 0

    def _script(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def take(self, block: Block) -> None:
        match block.language:
            case "yaml":
                self._yaml(block)
            case "python" | "markdown":
                self._file(block)
            case "sh" if block.words:
                self._file(block)
            case "toml":
                self._install(self._file(block))
            case "json":
                json.loads(block.text)
            case "console":
                self._console(block)
            case "powershell" | "bat":
                self._elsewhere(block)
            case language:
                assert language in ("sh", "text"), f"nobody checks a block of `{language}`"

    def _file(self, block: Block) -> Path:
        path = self.folder / block.words[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return path

    def _yaml(self, block: Block) -> None:
        path = self._file(block)
        if "faulty" in block.words:
            with pytest.raises(ArenaError):
                self._load(path)
        else:
            self._load(path)

    def _load(self, path: Path) -> None:
        loaded = workspace.load_workspace(self.folder, kinds=base.KINDS)
        if path.parent.name == "scenarios":
            loader.load(Selected((path.resolve(),), frozenset({path.resolve()})), loaded)

    def _install(self, pyproject: Path) -> None:
        """What pip would write for a package of which only the entry points matter."""
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
        info = (
            pyproject.parent / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        )
        info.mkdir()
        lines = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {where}" for name, where in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
            encoding="utf-8",
        )
        self.plugins.append(str(pyproject.parent))
        self.monkeypatch.syspath_prepend(str(pyproject.parent))

    def _console(self, block: Block) -> None:
        if "by-hand" in block.words:
            return
        busy = block.option("busy")
        held = None
        if busy:
            folder = self.folder / "sessions" / busy
            folder.mkdir(parents=True, exist_ok=True)
            held = store.acquire(folder, f"session {busy}", wait_s=0, on_wait=lambda: None)
        try:
            for command, shown in _commands(block.text):
                self._run(command, shown, int(block.option("exit") or 0))
        finally:
            if held:
                held.release()

    def _elsewhere(self, block: Block) -> None:
        """Commands for a shell that is not here: there are such commands and options."""
        for command, rest in re.findall(r"\barena (\w+)([^|\n]*)", block.text):
            told = text_of(HELP).partition(f"\n## arena {command}\n")[2].partition("\n## ")[0]
            assert told, command
            for option in re.findall(r" (-[-\w]+)", rest):
                assert re.search(rf"[ ,]{option}\b", told), option

    def _run(self, command: str, shown: str, code: int) -> None:
        self.commands += 1
        ran = self.shell(command)
        assert ran.code == code, f"{command}\n{ran.output}"
        if shown:
            actual = self._steady(ran.output)
            expected = re.escape(self._steady(shown))
            for gap in (f"{re.escape(_ANYTHING)}\\\n", re.escape(_ANYTHING)):
                expected = expected.replace(gap, r"[\s\S]*?")
            assert re.fullmatch(expected, actual), f"{command}\n{actual}\nis not\n{shown}"

    def shell(self, command: str) -> Ran:
        """Run a command line in the workspace without stdin; in process if it needs no shell."""
        env = self._environment()
        if plain := _PLAIN.fullmatch(command):
            env |= dict(word.split("=") for word in plain["variables"].split())
            words, file = shlex.split(plain["words"])[1:], plain["file"]
            ran = inprocess.run(words, self.folder, env, b"", one_stream=not file)
            if file:
                (self.folder / file).write_bytes(ran.stdout)
            return Ran((ran.stderr if file else ran.stdout).decode("utf-8"), ran.code)
        ended = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        return Ran(ended.stdout.decode("utf-8"), ended.returncode)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ARENA_")}
        return {
            **kept,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *self.plugins]),
            "PYTHONUTF8": "1",
            "ARENA_LANG": self.language,
            "ARENA_CONFIG_HOME": str(self.folder.parent / "config"),
            **({} if self.newcomer else {"ARENA_TRUST": "1"}),
        }

    def _steady(self, text: str) -> str:
        """Without what differs from run to run, and without blank lines at the end."""
        for shape, name in _VARIES:
            text = shape.sub(name, text)
        return text.replace(str(self.folder), "ROOT").rstrip("\n") + "\n"


def _commands(text: str) -> list[tuple[str, str]]:
    """(command, the output that is shown) of a console block; `> ` goes on with a command."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].rstrip("\n"), ""))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:].rstrip()}", "")
        else:
            command, shown = found[-1]
            found[-1] = (command, shown + line)
    return found


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path / "workspace", monkeypatch)


@needs_sh
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_load_and_commands_run(page: Path, reader: Reader) -> None:
    reader.language = "zh" if page.stem.endswith("zh-CN") else "en"
    reader.newcomer = page.name.startswith(("README", "your-scripts"))
    reader.prepare(BEGINS_WITH.get(page.name, "arena init"))
    for block in blocks(page):
        reader.take(block)
    shown = sum(
        len(_commands(block.text))
        for block in blocks(page)
        if block.language == "console" and "by-hand" not in block.words
    )
    assert reader.commands == shown
    assert shown > 0


@needs_sh
@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_first_command_of_a_readme_works_in_an_empty_folder(page: Path, reader: Reader) -> None:
    reader.prepare("true")
    lines = [block.text.strip() for block in blocks(page) if block.language == "sh"]
    assert len(lines) == 2
    install, _, main_job = lines[0].partition(" && ")
    assert install == "python -m pip install ."
    done = reader.shell(main_job)
    assert done.code == 0, done.output
    (opening,) = [block for block in blocks(page) if "opening" in block.words]
    assert _commands(opening.text)[0][0] in main_job
    assert (reader.folder / "demo" / "sessions").is_dir()


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_ci_runs_the_test_command_of_the_readmes(page: Path) -> None:
    command = [block.text.strip() for block in blocks(page) if block.language == "sh"][1]
    install, _, run = command.partition(" && ")
    assert install == "python -m pip install '.[test]'"
    assert run.startswith("python -m pytest")
    assert text_of(page).count(command) == 1
    assert "&& python -m pytest" in text_of(ROOT / ".ci" / "run")
    assert command not in text_of(ROOT / ".ci" / "run")


QUOTED = "you write"  # the first column of the tables of quoting
_POWERSHELL = re.compile(
    r"""'(?P<verbatim>(?:[^']|'')*)'|"(?P<filled>(?:[^"`$]|`.)*)"
    |(?P<plain>(?:[^\s'"`,;(){}|&<>@#$]|`.)(?:[^\s'"`,;(){}|&$]|`.)*)|\s+""",
    re.VERBOSE,
)


def powershell_words(line: str) -> list[str]:
    """What PowerShell passes to a program; a line in which it would do more is refused."""
    found = []
    at = 0
    while at < len(line):
        match = _POWERSHELL.match(line, at)
        assert match, f"PowerShell does something with {line[at:]!r}"
        at = match.end()
        if match["verbatim"] is not None:
            found.append(match["verbatim"].replace("''", "'"))
        elif (word := match["filled"] or match["plain"]) is not None:
            if word == "--%":
                return found + program_words(line[at:])
            found.append(re.sub("`(.)", r"\1", word))
    return found


def cmd_words(line: str) -> list[str]:
    """What a program gets from cmd.exe; a line in which cmd.exe would do more is refused."""
    for number, part in enumerate(line.split('"')):
        assert not re.search("%[^%]+%", part), f"cmd.exe fills in {part!r}"
        assert number % 2 or not re.search("[&|<>^()]", part), f"cmd.exe reads {part!r}"
    return program_words(line)


def program_words(line: str) -> list[str]:
    """A command line as programs on Windows split it."""
    found = [""]
    quoted = False
    for part in re.findall(r'\\*"|\\+|[ \t]+|[^\\" \t]+', line.strip()):
        if part.endswith('"'):
            slashes = len(part) - 1
            found[-1] += "\\" * (slashes // 2) + '"' * (slashes % 2)
            quoted ^= not slashes % 2
        elif part.isspace() and not quoted:
            found.append("")
        else:
            found[-1] += part
    return found


@pytest.mark.parametrize(
    ("shell", "words"), [("PowerShell", powershell_words), ("cmd.exe", cmd_words)]
)
def test_what_shells_on_windows_pass_arrives(
    shell: str, words: Callable[[str], list[str]], reader: Reader
) -> None:
    reader.prepare()
    table = rows(SHELLS, QUOTED, under=shell)
    assert len(table) > 5
    for left, right in table:
        (line,), (message,) = spans(left), spans(right)
        program, command, *rest = words(line)
        assert (program, command) == ("arena", "send")
        assert received_message(reader, rest) == message, line


def received_message(reader: Reader, arguments: list[str]) -> str:
    """Return the message that `arena send` receives with these arguments."""
    from typer.testing import CliRunner

    options = ["-w", str(reader.folder), "send", "--dry-run", "--json"]
    done = CliRunner().invoke(main.app, [*options, *arguments])
    return str(json.loads(done.stdout)["message"]["content"])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("arena send @architect", "splatting"),
        ('arena send "it costs $5"', "a variable"),
        ("arena send 100% sure; done", "the end of the command"),
    ],
)
def test_what_powershell_would_not_pass_on_is_refused(line: str, why: str) -> None:
    with pytest.raises(AssertionError):
        powershell_words(line)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_what_shells_pass_arrives(shell: str, reader: Reader) -> None:
    """As somebody types it: with the history expansion of bash."""
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    reader.prepare()
    table = rows(SHELLS, QUOTED, under="bash, zsh, fish")
    assert len(table) > 5
    script = ["set -o history -o histexpand"] if shell == "bash" else []
    script += ["arena() { printf '%s\\0' \"$@\"; printf '\\n'; }"]
    script += [spans(left)[0] for left, _ in table]
    (reader.folder / "typed.sh").write_text("\n".join(script) + "\n", encoding="utf-8")
    lines = reader.shell(f"{shell} typed.sh 2>/dev/null").output.splitlines()
    for line, (_, right) in zip(lines, table, strict=True):
        command, *arguments = line.removesuffix("\0").split("\0")
        assert command == "send"
        assert received_message(reader, arguments) == spans(right)[0], line


@needs_sh
def test_history_takes_an_exclamation_mark_in_double_quotes(reader: Reader) -> None:
    if not shutil.which("bash"):
        pytest.skip("there is no bash")
    reader.prepare("true")
    lines = ["set -o history -o histexpand", "echo one", 'echo "well done!!"', "echo 'well done!!'"]
    (reader.folder / "typed.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = reader.shell("bash typed.sh 2>/dev/null")
    assert done.output.splitlines() == ["one", "well doneecho one", "well done!!"]


def test_help_is_what_the_program_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.setenv("COLUMNS", "80")
    parts = [
        "# Commands\n\nWhat `--help` prints, of every command."
        " Written by `ARENA_RENEW_GOLDEN=1 python -m pytest tests/test_docs.py`.\n"
    ]
    for command in COMMANDS:
        done = CliRunner().invoke(main.app, [*command.split(), "--help"], prog_name="arena")
        assert done.exit_code == 0, done.output
        lines = "\n".join(line.rstrip() for line in done.output.strip().splitlines())
        parts.append(f"## arena {command}".rstrip() + f"\n\n```text\n{lines}\n```\n")
    text = "\n".join(parts)
    if os.environ.get("ARENA_RENEW_GOLDEN"):
        HELP.write_text(text, encoding="utf-8")
    assert text_of(HELP) == text


def test_help_has_every_command() -> None:
    assert command_names() | {"", "knowledge"} == set(COMMANDS)


def test_the_mentions_that_the_rules_show() -> None:
    ids = ("architect", "compliance", "developer", "tester", "dev", "chief", "chief-ops")
    members = [*(member(name) for name in ids), member("editor", name="编辑")]
    there = team(*members, humans=["maya"])
    roster = mentions.Roster(there.members, there.humans)
    table = rows(_page("turn-rules.md"), "text")
    assert len(table) > 12
    for text, named, nobody in table:
        (said,) = spans(text)
        found = mentions.parse_mentions(said, roster, author="user", opener="maya")
        assert list(found.ids) == spans(named), said
        assert list(found.unresolved) == spans(nobody), said


def test_the_relevance_that_the_rules_show() -> None:
    cells = rows(_page("turn-rules.md"), "hits")
    assert [float(value) for value in cells[0][1:]] == [round(1 - 0.6**n, 4) for n in range(6)]


def test_every_end_is_explained() -> None:
    ends = [spans(cells[0])[0] for cells in rows(_page("turn-rules.md"), "end")]
    assert sorted(ends) == sorted(get_args(End))


def test_the_event_table_has_every_event_with_its_fields() -> None:
    table = rows(_page("transcript.md"), "type")
    told = {spans(cells[0])[0]: set(spans(cells[1])) for cells in table}
    common = {"seq", "ts", "type"}
    fields = {
        name: {field.alias or key for key, field in shape.model_fields.items()}
        for name, shape in EVENT_TYPES.items()
    }
    assert told == {name: names - common for name, names in fields.items()}


@pytest.mark.parametrize(
    "shape",
    [
        protocol.AgentInput,
        protocol.AgentOutput,
        protocol.Message,
        protocol.StatusEvent,
        protocol.Attachment,
        protocol.StructuredContent,
        protocol.Usage,
        protocol.MemberInfo,
    ],
    ids=lambda shape: shape.__name__,
)
def test_the_protocol_names_every_field(shape: type[Shape]) -> None:
    section = text_of(_page("adapters.md")).partition(f"`{shape.__name__}`:")[2]
    told = section.partition("\n\n")[0]
    assert set(shape.model_fields) <= set(spans(told))


@pytest.mark.parametrize("kind", base.list_kinds())
def test_every_key_of_an_adapter_is_explained(kind: str) -> None:
    settings = base.adapter_type(kind).settings_type
    text = text_of(_page("adapters.md")) + text_of(_page("kinds.md"))
    section = next(one for one in text.split("\n## ") if kind in spans(one.splitlines()[0]))
    assert set(settings.model_fields) - {"type", "fallback"} <= set(spans(section))


def default_of(cell: str) -> Any:
    """A default as a table tells it: `5`, `[]`, `skip`; empty where there is none."""
    told = spans(cell)
    if not told:
        return None
    try:
        return json.loads(told[0])
    except ValueError:
        return told[0]


@pytest.mark.parametrize(
    ("heading", "shape"), [("rule", models.TeamConfig), ("key of an agent", models.AgentProfile)]
)
def test_the_tables_of_keys_have_every_key_and_its_default(
    heading: str, shape: type[BaseModel]
) -> None:
    told = {spans(cells[0])[0]: default_of(cells[1]) for cells in rows(_page("files.md"), heading)}
    flat: dict[str, Any] = {}
    for name, info in shape.model_fields.items():
        nested = info.default_factory() if info.default_factory else None  # type: ignore[call-arg] # none takes data
        if isinstance(nested, BaseModel):
            flat |= {f"{name}.{key}": value for key, value in nested.model_dump().items()}
        else:
            flat[name] = None if info.is_required() or info.default == "" else info.default
    assert told == flat


def test_the_table_of_memory_has_every_rule_and_its_default() -> None:
    table = rows(_page("memory.md"), "rule of memory")
    told = {spans(cells[0])[0]: default_of(cells[1]) for cells in table}
    assert told == dict(models.MemoryRules())


@pytest.mark.parametrize(
    ("page", "shape"),
    [
        ("memory.md", models.WorkspaceMemory),
        ("memory.md", models.Embedding),
        ("search.md", models.Embedding),
        ("usage.md", models.ModelFacts),
        ("files.md", models.WorkspaceFile),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_the_keys_of_the_workspace_are_explained(page: str, shape: type[BaseModel]) -> None:
    told = set(re.findall("[a-z_]+", text_of(_page(page))))
    assert known_fields(shape) <= told


def test_the_keys_of_a_note_are_explained() -> None:
    told = {name for cells in rows(_page("knowledge.md"), "key") for name in spans(cells[0])}
    assert told == set(Note.model_fields) - {"id", "file", "body", "approval"}


def test_every_kind_of_note_is_named() -> None:
    told = set(spans(text_of(_page("knowledge.md"))))
    assert {*KINDS, *STATUSES} <= told


def test_the_slips_that_the_files_page_shows(reader: Reader) -> None:
    reader.prepare()
    path = reader.folder / "agents" / "row.yaml"
    table = rows(_page("files.md"), "written")
    assert len(table) > 5
    for wrong, _, right in table:
        for line, loads in [(one, False) for one in spans(wrong)] + [
            (one, True) for one in spans(right)
        ]:
            text = f"agent_id: row\nadapter:\n  type: scripted\n  replies:\n    - {line}\n"
            path.write_text(text, encoding="utf-8")
            if loads:
                workspace.load_workspace(reader.folder, kinds=base.KINDS)
            else:
                with pytest.raises(ArenaError):
                    workspace.load_workspace(reader.folder, kinds=base.KINDS)


def test_scenario_keys_are_all_explained() -> None:
    spelled = " ".join(
        span for page in ("scenarios.md", "checks.md") for span in spans(text_of(_page(page)))
    )
    told = set(re.findall("[a-z_]+", spelled))
    known = known_fields(
        model.ScenarioFile,
        model.Step,
        model.Saved,
        model.SaidMessage,
        model.FromFile,
        model.Given,
        model.Fill,
        model.Case,
        Expect,
        Range,
        Cost,
        TextCheck,
        Which,
        Replied,
        PassedOverBy,
        ReplyRow,
        Exactly,
        CarriedPart,
        CarriedFile,
        NoteRow,
        Noted,
        NotesShown,
        DeviationRow,
    )
    assert known <= told


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_what_is_not_built_is_not_promised(page: Path) -> None:
    unbuilt = {"arena flow", "arena reflect"}
    assert not unbuilt & set(spans(_FENCE.sub("", text_of(page))))


@pytest.mark.parametrize("page", [*PAGES, *INDEXES, HELP], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", text_of(page))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text_of(linked)), re.MULTILINE)
            assert anchor in [_anchor(heading) for heading in headings], target


def test_the_index_has_every_page() -> None:
    links = (DOCS / target for target in _LINK.findall(text_of(DOCS / "README.md")))
    assert {*DOCS.glob("*/*.md")} <= {link.resolve() for link in links}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES[2:], ids=lambda page: page.name)
def test_every_page_ends_with_a_link_to_the_next(page: Path) -> None:
    last = text_of(page).rstrip("\n").split("\n")[-1]
    match = re.fullmatch(r"(?:Next: |下一页：)\[[^]]+\]\(([^)#]+)\).*[.。]", last)
    assert match, last
    target = (page.parent / match[1]).resolve()
    assert target.is_file()
    assert target != page.resolve()


def test_the_page_about_the_code_names_files_that_are_there() -> None:
    page = (_page("code.md")).read_text(encoding="utf-8")
    named = re.findall(r"`((?:arena_cli|tests)/[\w/]+\.py)`", page)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []
    layers = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(layers) == sorted(
        path.name for path in (ROOT / "arena_cli").iterdir() if (path / "__init__.py").is_file()
    )
