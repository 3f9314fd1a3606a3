"""Outputs of everything shipped, compared with files in tests/golden/shipped.

`ARENA_RENEW_GOLDEN=1 python -m pytest tests/test_goldens.py` writes them anew: review the
difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from program import ROOT, Program

GOLDEN = ROOT / "tests" / "golden" / "shipped"
MESSAGE = "checkout returns 500 since 14:02 @架构师 @合规 请拆解"
SPOKEN = {"incident": "en", "software": "zh"}
ASKED = {"incident": "triage", "software": "architect"}

_VARIES = [
    (re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}"), "SESSION"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+\.\d+ ?(s|秒)"), "N s"),
    (re.compile(r"\n·\nN s(?=\n)"), ""),  # of a call of a tool, only where it was slow
    (re.compile(r'("(?:seconds|latency_ms)": ?)[\d.]+'), r"\1N"),
    (re.compile(r'time="[\d.]+"'), 'time="N"'),
    (re.compile(r"latency_ms:? \d+"), "latency_ms N"),
]


def steady(program: Program, text: str) -> str:
    """Return the text without times, durations, session names and folders."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text.replace(str(program.folder), "ROOT")


def page_text(html: str) -> str:
    """Return the words of a page, a line for each element that has any."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", html, flags=re.DOTALL)
    lines = (line.strip() for line in re.sub(r"<[^>]+>", "\n", body).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def compare(program: Program, name: str, text: str) -> None:
    """Compare a text with its golden file, or write that where it is asked for."""
    path = GOLDEN / name
    text = steady(program, text)
    if os.environ.get("ARENA_RENEW_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8"), f"{name} changed"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_scenarios_of_the_repository(tmp_path: Path, language: str) -> None:
    workspace = tmp_path / "repository"
    for part in ("agents", "scenarios"):
        shutil.copytree(ROOT / part, workspace / part)
    shutil.copy(ROOT / "arena.yaml", workspace)
    program = Program(workspace, env={"CI": "true", "ARENA_LANG": language})
    done = program.run("run", "--json", "--junit", "junit.xml", "--html", "page.html")
    assert done.code == 0, done.stderr
    compare(program, f"junit.{language}.xml", (workspace / "junit.xml").read_text("utf-8"))
    compare(
        program, f"page.{language}.txt", page_text((workspace / "page.html").read_text("utf-8"))
    )
    compare(program, f"explain.{language}.txt", program.run("run", "--explain").stdout)
    if language == "en":
        compare(program, "result.json", done.stdout)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("template", ["incident", "software"])
def test_a_session_of_a_new_workspace(tmp_path: Path, template: str, language: str) -> None:
    program = Program(tmp_path, env={"ARENA_LANG": language})
    program.run("init", "--template", template, "--language", SPOKEN[template], ".").check(
        stdout=None
    )
    outputs = {
        "send": program.run("send", "-s", "s", MESSAGE).check(code=0).stdout,
        "show": program.run("show", "s").stdout,
        "page": page_text(program.run("show", "s", "--html", "-").stdout),
        "audit": program.run("export", "s", "--audit", "-o", "-").stdout,
        "dry-run": program.run("send", "--dry-run", "-s", "s", MESSAGE).stdout,
        "context": program.run("context", "s", "--agent", ASKED[template]).stdout,
        "usage": program.run("usage").stdout,
        "diff": program.run("diff", "s", "s").stdout,
    }
    if language == "en":
        outputs["events"] = program.run("show", "s", "--json").stdout
    text = "".join(f"== {name}\n{output}\n" for name, output in outputs.items())
    compare(program, f"{template}.{language}.txt", text)
