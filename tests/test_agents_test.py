"""`arena agents test`: one real call, what was sent and what came; nothing is kept of it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from program import Program, gone, growing_limits, until

PROMPT = """\
── sent: prompt
  The conversation so far:

  human "user" (@user)
  > This is a test of the connection. Answer with one short word, such as: ok

  What is asked of you now:
  It is turn 1, and you are @bot.
  New is the last message.
  Write your reply.
  Your answer may have at most 2000 tokens.
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """arena with a folder for temporary files of its own, so that what is left there is seen."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return Program(tmp_path, env=dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)))


def left(program: Program) -> list[str]:
    """What a call left behind: sessions, and temporary files."""
    sessions = [path.name for path in (program.folder / "sessions").glob("[!.]*")]
    return sessions + [path.name for path in (program.folder / "temporary").iterdir()]


def as_json(program: Program, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        program.run("agents", "test", "bot", "--json").check(code=code).stdout
    )
    return found


def test_it_shows_what_was_sent_what_came_and_what_it_took(program: Program) -> None:
    program.program("bot", "read", "say", "好 \\e[31m::stop-commands::t", role_prompt="一次一个词")
    done = program.run("agents", "test", "bot").check(stdout=None)
    told = done.normal(done.stdout)
    assert told.startswith('── sent: system\n  You are "bot" (@bot), one of a team.\n\n  一次')
    assert told.endswith(f"{PROMPT}── came\n  好 ::stop-commands::t\n── ok bot · N s · N tokens\n")
    assert left(program) == []


def test_what_came_is_shown_escaped(program: Program) -> None:
    program.agent("bot", {"say": "\x1b[31mred\x07\n::stop-commands::t"})
    told = program.run("agents", "test", "bot").check(stdout=None).stdout
    assert "── came\n  \\x1b[31mred\\x07\n  \\::stop-commands::t\n── ok bot" in told


def test_it_is_sent_what_is_shown_as_sent(program: Program) -> None:
    program.program("bot", "read", "tell")
    found = as_json(program)
    sent = f"{found['sent']['system']}\n\n{found['sent']['prompt']}"
    assert found["content"].split() == sent.split()


def test_usage_and_cost_are_those_that_the_agent_told(program: Program) -> None:
    usage = {"input_tokens": 412, "output_tokens": 3, "cost_usd": 0.0021}
    program.agent("bot", {"say": "ok", "usage": usage})
    done = program.run("agents", "test", "bot").check(stdout=None)
    told = done.stdout.splitlines()[-1]
    assert told.endswith(" · 412 → 3 tokens · $0.0021")
    found = as_json(program)
    assert {key: found["usage"][key] for key in usage} == usage
    assert (found["ok"], found["status"], found["error"]) == (True, "success", None)


def test_one_that_declines_works(program: Program) -> None:
    program.agent("bot", {"decline": True})
    done = program.run("agents", "test", "bot").check(stdout=None)
    assert done.stdout.endswith(" · it declined, which is a valid answer\n")
    assert as_json(program)["status"] == "declined"


def test_one_that_fails_says_why_and_what_to_do(program: Program) -> None:
    program.agent("bot", adapter={"type": "cli", "command": ["no-such-program"]})
    done = program.run("agents", "test", "bot").check(code=3, stdout=None)
    assert "── came" not in done.stdout
    verdict, why = done.normal(done.stdout).splitlines()[-2:]
    assert verdict == "── NOT OK bot · N s"
    assert "no-such-program" in why
    found = as_json(program, code=3)
    assert (found["ok"], found["status"], found["content"]) == (False, "error", None)
    assert left(program) == []


def test_its_own_limit_holds_and_what_it_wrote_is_shown(program: Program) -> None:
    pids = program.folder / "pids"
    for limit_s in growing_limits():
        program.program("bot", "say", "half", "pids", "pids", "sleep", timeout_s=limit_s)
        done = program.run("agents", "test", "bot").check(code=3, stdout=None)
        assert f"no answer within {limit_s:g} s" in done.stdout.splitlines()[-1]
        if pids.exists():
            break
    assert "── came\n  half\n── NOT OK bot" in done.stdout
    assert gone(*map(int, pids.read_text().split()))


def test_the_limit_of_the_team_holds_for_others(program: Program) -> None:
    program.program("bot", "sleep")
    program.team(turn_timeout_s=0.3)
    assert "no answer within 0.3 s" in as_json(program, code=3)["error"]


def test_there_is_one_call_whatever_the_profile_says(program: Program) -> None:
    program.program("bot", "err", "called", "exit", "3", on_failure="retry", retries=5)
    assert "earlier_attempts" not in as_json(program, code=3)["metadata"]


def test_secrets_are_shown_nowhere(program: Program) -> None:
    program.env["BOT_TOKEN"] = "very-secret-token"
    token = {"BOT_TOKEN": "${env:BOT_TOKEN}"}
    program.program("bot", "env", "err", "very-secret-token", adapter={"env": token})
    told = program.run("agents", "test", "bot").check(stdout=None).stdout
    assert '"BOT_TOKEN": "[redacted]"' in told
    program.program("bot", "err", "very-secret-token", "exit", "3", adapter={"env": token})
    done = program.run("agents", "test", "bot", "--json").check(code=3)
    assert "came: [redacted]" in done.stdout
    assert "very-secret-token" not in told + done.stdout


def test_an_agent_that_is_in_no_team_can_be_tested(program: Program) -> None:
    program.agent("bot", {"say": "ok"}, member=False)
    program.run("agents", "test", "bot").check(stdout=None)
    program.agent("dev", {"say": "ok"})
    program.file("agents/teams/crew.yaml", "team: crew\nmembers: [dev]\n")
    program.file("arena.yaml", "team: crew\ndefaults: {config: {default_responders: [dev]}}\n")
    program.run("agents", "test", "bot").check(stdout=None)


@pytest.mark.parametrize("called", ["bot", "@bot", "＠BOT", "助手", "@helper"])
def test_it_is_called_by_any_of_its_names(program: Program, called: str) -> None:
    program.agent("bot", {"say": "ok"}, name="助手", aliases=["helper"])
    done = program.run("agents", "test", called).check(stdout=None)
    assert "\n── ok bot · " in done.stdout


def test_an_agent_that_is_not_there(program: Program) -> None:
    program.agent("reviewer", {"say": "ok"})
    program.run("agents", "test", "revewer").check(
        code=2,
        stdout="",
        stderr="arena: there is no agent `revewer`\n  did you mean `reviewer`?\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a signal that one process sends another")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_runs(program: Program, number: signal.Signals) -> None:
    program.program("bot", "deaf", "read", "spawn", "pids", "sleep")
    running = program.start("agents", "test", "bot")
    until((program.folder / "pids").exists)
    running.send_signal(number)
    program.finish(running).check(code=130, stdout="", stderr="arena: interrupted\n")
    assert gone(*map(int, (program.folder / "pids").read_text().split()))
    assert left(program) == []


def test_agents_are_asked_at_once_whether_they_could_be_called(program: Program) -> None:
    """Each adapter's `health` waits until the others' have begun."""
    program.file(
        "plugin/arena_meet.py",
        """\
import asyncio, pathlib
from typing import Any
from arena_cli.adapters.base import Health, Settings

class MeetSettings(Settings):
    others: int

class MeetAdapter:
    settings_type = MeetSettings
    def __init__(self, setup: Any) -> None:
        self.setup = setup
    async def health(self) -> Health:
        folder = self.setup.workspace / "met"
        folder.mkdir(exist_ok=True)
        (folder / self.setup.agent_id).touch()
        while len(list(folder.iterdir())) < self.setup.settings.others:
            await asyncio.sleep(0.01)
        return Health(ok=True, detail="met")
""",
    )
    info = "plugin/arena_meet-0.1.dist-info"
    program.file(f"{info}/METADATA", "Metadata-Version: 2.1\nName: arena-meet\nVersion: 0.1\n")
    program.file(f"{info}/entry_points.txt", "[arena.adapters]\nmeet = arena_meet:MeetAdapter\n")
    separator = ";" if sys.platform == "win32" else ":"
    path = program.environment()["PYTHONPATH"]
    program.env["PYTHONPATH"] = separator.join([path, str(program.folder / "plugin")])
    for name in ("bo", "al", "cy"):
        program.agent(name, adapter={"type": "meet", "others": 3})
    met = "ok     al · met\nok     bo · met\nok     cy · met\n"
    done = program.run("agents", "check", "--connect")
    assert (done.code, done.stdout) == (0, met)
    assert program.run("doctor", "--connect").check(stdout=None).stdout.endswith(met)
    # Without a connection, a kind that does more than look is not asked.
    (program.folder / "met").rename(program.folder / "before")
    assert program.run("agents", "check").check(stdout=None).stdout.count(" · not checked; ") == 3
    assert not (program.folder / "met").exists()
