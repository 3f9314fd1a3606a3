"""Files of messages for coding agents: shown in the way each takes them, else named by path."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import agent_programs
import pytest
from adapter_setups import PROGRAMS, Heard, a_setup, an_input
from product import AcpAdapter, AcpSettings, AgentInput, Attachment, ProgramAdapter
from product import kinds as clis
from program import Program

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CONTENTS = {"图 a.png": PNG, "plan.txt": "第一步".encode(), "x.bin": b"\xff\xfe\x00\x01"}
FOLDER = Path("sessions/s/attachments/m2")


def attached(folder: Path) -> AgentInput:
    """An input whose message has an image, a text and a file of no known kind."""
    (folder / FOLDER).mkdir(parents=True)
    items = []
    for name, content in CONTENTS.items():
        (folder / FOLDER / name).write_bytes(content)
        items.append(Attachment(name=name, path=(FOLDER / name).as_posix()))
    given = an_input("看一下")
    message = given.messages[0].model_copy(update={"attachments": items})
    return given.model_copy(update={"messages": [message]})


DONE: dict[type[ProgramAdapter], list[dict[str, Any]]] = {
    clis.CodexAdapter: [
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed"},
    ],
    clis.GeminiAdapter: [
        {"type": "message", "role": "assistant", "content": "done"},
        {"type": "result", "status": "success"},
    ],
    clis.OpencodeAdapter: [
        {"type": "text", "part": {"text": "done"}},
        {"type": "step_finish", "part": {"reason": "stop"}},
    ],
    clis.PiAdapter: [
        {"type": "message_end", "message": {"role": "assistant", "content": "done"}},
        {"type": "agent_end"},
    ],
    clis.CursorAdapter: [
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "done"}]}},
        {"type": "result", "subtype": "success"},
    ],
}


@pytest.mark.parametrize(
    ("adapter", "options"),
    [
        (clis.CodexAdapter, {"图 a.png": "--image={path}"}),
        (clis.OpencodeAdapter, {"图 a.png": "--file={path}", "plan.txt": "--file={path}"}),
        (clis.PiAdapter, {"图 a.png": "@{path}", "plan.txt": "@{path}"}),
        (clis.GeminiAdapter, {}),
        (clis.CursorAdapter, {}),
    ],
)
def test_a_program_gets_the_files_that_it_takes_and_the_paths_of_the_others(
    tmp_path: Path, adapter: type[ProgramAdapter], options: dict[str, str]
) -> None:
    played = agent_programs.Played(tmp_path, adapter.program)
    played.plan({"stdout": "".join(json.dumps(event) + "\n" for event in DONE[adapter])})
    heard = Heard()
    given = attached(tmp_path)
    asyncio.run(played.adapter(adapter).invoke(given, heard))
    (call,) = played.calls()
    paths = {name: str((tmp_path / FOLDER / name).resolve()) for name in CONTENTS}
    expected = [option.format(path=paths[name]) for name, option in options.items()]
    assert [word for word in call["args"] if "attachments/m2/" in word] == expected
    hidden = [name for name in CONTENTS if name not in options]
    assert [name for name in CONTENTS if paths[name] in call["stdin"]] == hidden
    assert heard.notes["not_shown"] == hidden
    if adapter is clis.GeminiAdapter:  # else it could not read them
        assert f"--include-directories={(tmp_path / FOLDER).resolve()}" in call["args"]


def test_codex_gets_an_image_in_a_session_that_it_resumes(tmp_path: Path) -> None:
    played = agent_programs.Played(tmp_path, "codex")
    played.plan({"stdout": "".join(json.dumps(event) + "\n" for event in DONE[clis.CodexAdapter])})
    heard = Heard()
    asyncio.run(played.adapter(clis.CodexAdapter).invoke(an_input(), heard))
    given = attached(tmp_path).model_copy(update={"own_session": heard.own_session(upto_seq=1)})
    asyncio.run(played.adapter(clis.CodexAdapter).invoke(given, Heard()))
    image = f"--image={(tmp_path / FOLDER / '图 a.png').resolve()}"
    assert played.calls()[1]["args"][-4:] == ["resume", image, "t1", "-"]


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (["--images", "--resources"], ["image", "resource"]),
        (["--images"], ["image"]),
        (["--resources"], ["resource"]),
        ([], []),
    ],
)
def test_an_acp_agent_gets_the_blocks_that_it_can_take(
    tmp_path: Path, flags: list[str], kinds: list[str]
) -> None:
    pytest.importorskip("acp", reason="the SDK of the Agent Client Protocol is not installed")
    log = tmp_path / "log.jsonl"
    command = [sys.executable, str(PROGRAMS / "acp_agent.py"), str(log), *flags, "say:done"]
    settings = AcpSettings.model_validate({"type": "acp", "command": command})
    adapter = AcpAdapter(a_setup(tmp_path, settings))
    heard, given = Heard(), attached(tmp_path)

    async def call() -> None:
        try:
            await adapter.invoke(given, heard)
        finally:
            await adapter.stop()

    asyncio.run(call())
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    blocks = next((line["files"] for line in lines if "files" in line), [])
    (texts,) = [line["prompt"] for line in lines if "prompt" in line]
    assert [block["type"] for block in blocks] == kinds
    for block in blocks:
        if block["type"] == "image":
            assert base64.b64decode(block["data"]) == PNG
        else:
            assert block["resource"]["text"] == "第一步"
    shown = {"image": "图 a.png", "resource": "plan.txt"}
    hidden = [name for name in CONTENTS if name not in {shown[kind] for kind in kinds}]
    assert heard.notes["not_shown"] == hidden
    assert [name for name in CONTENTS if f"/{name}" in "".join(texts)] == hidden


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_claude_code_is_sent_blocks_and_the_timeline_names_what_it_was_not_shown(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    script = tmp_path / "claude"
    fake = PROGRAMS / "fake_claude.py"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "看到了"}
    program.file("turn.jsonl", json.dumps(result) + "\n")
    for name, content in CONTENTS.items():
        program.file(name, content)
    env = {"FAKE_CLAUDE": str(tmp_path / "turn.jsonl"), "FAKE_CLAUDE_LOG": str(tmp_path / "log")}
    adapter = {"type": "claude_code", "program": str(script), "env": env, "tools": ["Read"]}
    program.agent("ed", adapter=adapter)
    files = [word for name in CONTENTS for word in ("--attach", name)]
    sent = program.run("send", "-s", "s", *files, "@ed 看一下").check(code=0, stdout=None)
    assert "  not shown, only its path was given: x.bin\n" in sent.stdout
    log = [json.loads(line) for line in (tmp_path / "log").read_text("utf-8").splitlines()]
    (content,) = [line["read"]["message"]["content"] for line in log if "read" in line]
    (args,) = [line["args"] for line in log if "args" in line]
    image, text = content[1]["source"], content[3]["source"]
    assert base64.b64decode(image["data"]) == PNG
    assert image["media_type"] == "image/png"
    assert text["data"] == "第一步"
    (path,) = [line for line in content[4]["text"].split() if line.endswith("x.bin")]
    assert Path(path).read_bytes() == CONTENTS["x.bin"]
    rule = args[args.index("--allowedTools") + 1]
    assert rule == f"Read(/{Path(path).parents[1].as_posix()}/**)"
    assert "Write your reply." in content[-1]["text"]
