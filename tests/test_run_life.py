"""A run and its life: a key used again, a chain in a process of its own, waiting for one."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from program import Program, until

ANSWER = {"say": "It is deployed."}
KEYED = ("send", "-s", "s", "--key", "deploy-1")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.agent("dev", ANSWER)
    program.team()
    return program


def crew(tmp_path: Path) -> Program:
    """Return a workspace whose agent replies as soon as the file `go` is there."""
    program = Program(tmp_path, real=True)
    program.program("dev", "wait", str(tmp_path / "go"), "say", "done")
    program.team()
    return program


# Keys


def test_the_same_key_gives_the_earlier_chain_and_asks_no_agent(program: Program) -> None:
    first = program.run(*KEYED, "--json", "deploy it").check()
    before = program.raw()
    again = program.run(*KEYED, "--json", "deploy it").check()
    events = [json.loads(line) for line in first.stdout.splitlines()]
    assert [event["type"] for event in events][:2] == ["session", "message"]
    assert [json.loads(line) for line in again.stdout.splitlines()] == events[1:]
    assert program.raw() == before
    assert "It is deployed." in program.run(*KEYED, "deploy it").check().stdout


def test_the_chain_of_a_key_is_found_behind_later_ones(program: Program) -> None:
    program.run(*KEYED, "deploy it").check()
    program.run("send", "-s", "s", "and now?").check()
    program.run("send", "-s", "s", "--key", "other", "deploy it").check()
    again = program.run(*KEYED, "--json", "deploy it").check()
    chains = [json.loads(line).get("chain") for line in again.stdout.splitlines()]
    assert set(chains) == {1, None}
    assert chains[-1] == 1


def test_a_key_is_that_of_one_session(program: Program) -> None:
    program.run(*KEYED, "deploy it").check()
    program.run("send", "-s", "t", "--key", "deploy-1", "something else").check()
    assert len(program.finished("t")) == 1


@pytest.mark.parametrize(
    ("words", "then", "now"),
    [
        (["deploy that"], "", 'user, "deploy that"'),
        (["--to", "dev", "deploy it"], " (to none)", 'user, "deploy it" (to dev)'),
        (["--kind", "task", "deploy it"], " (kind chat)", 'user, "deploy it" (kind task)'),
        (["--reply-to", "m2", "deploy it"], " (reply to none)", 'user, "deploy it" (reply to m2)'),
        (["--from", "maya", "deploy it"], "", 'maya, "deploy it"'),
        (
            ["--attach", "plan.txt", "deploy it"],
            "",
            'user, "deploy it" + plan.txt (files with sha256 b5d68511)',
        ),
    ],
)
def test_a_key_of_another_message_is_an_error_that_shows_both(
    program: Program, words: list[str], then: str, now: str
) -> None:
    program.team(humans=["maya"])
    program.file("plan.txt", "first this, then that")
    program.run(*KEYED, "deploy it").check()
    before = program.raw()
    program.run(*KEYED, *words).check(
        code=2,
        stderr="arena: key deploy-1 was used in this session for another message: m2 of user, "
        f'"deploy it"{then}; now: {now}\n  Use another key, or send the same message.\n',
    )
    assert program.raw() == before


def test_attachments_of_a_key_are_compared_by_their_content(program: Program) -> None:
    words = [*KEYED, "--attach", "plan.txt", "deploy it"]
    program.file("plan.txt", "first this")
    program.run(*words).check()
    program.run(*words).check()
    assert len(program.finished()) == 1
    program.file("plan.txt", "first that")
    told = " ".join(program.run(*words).stderr.split())
    assert "was used in this session for another message" in told
    assert told.count("+ plan.txt (files with sha256 ") == 2


def test_the_exit_code_of_a_key_is_that_of_its_chain(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", {"fail": "error"}, retries=0)
    program.agent("ops", {"say": "May I?", "request": {"action": "deploy", "detail": "prod"}})
    program.team()
    assert program.run(*KEYED, "@dev deploy it").code == 3
    assert program.run(*KEYED, "@dev deploy it").code == 3
    asking = ("send", "-s", "t", "--key", "k", "@ops deploy it")
    assert program.run(*asking).code == 4
    before = program.raw("t")
    again = program.run(*asking)
    assert (again.code, program.raw("t")) == (4, before)
    assert "arena approve t 1" in again.stderr + again.stdout


def test_a_chain_that_was_cut_short_continues_by_its_key(program: Program) -> None:
    program.agent("ops", {"say": "I watch it."})
    program.team()
    program.run(*KEYED, "@dev @ops deploy it").check()
    lines = program.raw().splitlines(keepends=True)
    ends = [index for index, line in enumerate(lines) if b'"reply_finished"' in line]
    program.transcript().write_bytes(b"".join(lines[: ends[0] + 1]))
    program.run(*KEYED, "@dev @ops deploy it").check()
    agents = [agent for agent, status in program.finished() if status == "success"]
    assert sorted(agents) == ["dev", "ops"]
    assert [record["type"] for record in program.records()][-1] == "chain_finished"


def test_a_rewind_frees_the_keys_of_what_it_skips(program: Program) -> None:
    program.run("send", "-s", "s", "hello").check()
    last = program.records()[-1]["seq"]
    program.run(*KEYED, "deploy it").check()
    program.run("rewind", "s", "--at", str(last)).check(stdout=None)
    program.run(*KEYED, "deploy that").check()
    assert [record.get("key") for record in program.records() if record["type"] == "message"] == [
        None,
        "deploy-1",
        "deploy-1",
    ]


def test_a_secret_in_a_key_is_not_stored(program: Program) -> None:
    program.file("arena.yaml", "team: crew\nredact: ['hunter\\d']\n")
    for _ in range(2):
        program.run("send", "-s", "s", "--key", "job-hunter2", "deploy it").check()
    assert (len(program.finished()), b"hunter2" in program.raw()) == (1, False)


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "x" * 201])
def test_odd_keys_are_wrong_use(program: Program, key: str) -> None:
    done = program.run("send", "-s", "s", "--key", key, "hello")
    assert (done.code, program.raw()) == (2, b"")
    assert "cannot be used" in done.stderr


def test_a_key_without_a_session_is_warned_of(program: Program) -> None:
    warning = "warning: --key: a new session has no earlier keys"
    done = program.run("send", "--key", "k", "hello")
    assert (done.code, done.stderr.count(warning)) == (0, 1)
    for words in (("--session", "s"), ("--continue",), ("--detach",)):  # the last prints its name
        assert warning not in program.run("send", "--key", "k", *words, "hello").stderr


def test_an_audit_has_no_key(program: Program) -> None:
    program.run("send", "-s", "s", "hello").check()
    done = program.run(*KEYED, "--attach-audit", "hello")
    assert (done.code, "--key and --attach-audit" in done.stderr) == (2, True)


def test_a_step_with_a_used_key_is_judged_by_the_earlier_chain(program: Program) -> None:
    text = """
scenario: A key used twice
steps:
  - {send: deploy it, key: k, expect: {replied: [dev]}}
  - send: deploy it
    key: k
    expect: {replied: [dev], end: quiet, turns: 1}
    save: {it: {from: dev}}
  - {send: "${saved.it}", expect: {replied: [dev]}}
expect: {replies_count: 2}
"""
    program.scenario(text)
    done = program.run("run", "one")
    assert done.code == 0, done.stdout + done.stderr
    for mode in ("--record", "--replay"):
        assert program.run("run", "one", mode).code == 0
    wrong = text.replace("replied: [dev], end", "replied: [], end")
    program.scenario(wrong)
    assert "replied" in program.run("run", "one").stdout


def test_a_step_with_a_used_key_and_another_message_is_an_error(program: Program) -> None:
    program.scenario(
        """
scenario: A key of another message
steps:
  - {send: deploy it, key: k, expect: {replied: [dev]}}
  - {send: deploy that, key: k, expect: {replied: [dev]}}
"""
    )
    done = program.run("run", "one")
    assert done.code == 3
    assert 'user, "deploy it"; now: user, "deploy that"' in done.stdout


# Detached chains


def test_a_detached_chain_outlives_its_caller(tmp_path: Path) -> None:
    program = crew(tmp_path)
    done = program.run("send", "-d", "-s", "s", "deploy it", start_new_session=True)
    done.check(stdout="session s · chain 1 · runs on; `arena wait s` prints it\n")
    assert [row["session"] for row in running(program)] == ["s"]
    late = program.run("wait", "s", "--timeout", "0", "-q")
    late.check(code=124, stderr="session s: chain 1 is not over after 0 s; it continues\n")
    (tmp_path / "go").touch()
    ended = program.run("wait", "s", "--chain", "1", "--timeout", "60").check()
    assert "  done\n" in ended.stdout
    assert "══ quiet · 1 reply in 1 turn" in ended.stdout
    until(lambda: not running(program))
    assert program.run("wait", "s", "--json").check().stdout.splitlines() == [
        line.decode() for line in program.raw().splitlines()[1:]
    ]


def running(program: Program) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(program.run("sessions", "--running", "--json").stdout)
    return rows


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a terminal")
def test_the_end_of_the_terminal_does_not_end_a_detached_chain(tmp_path: Path) -> None:
    program = crew(tmp_path)
    with program.start("send", "-d", "-s", "s", "--json", "go", start_new_session=True) as caller:
        out, problems = caller.communicate(timeout=60)
    assert json.loads(out) == {"session": "s", "chain": 1}, problems
    with pytest.raises(ProcessLookupError):  # no process of the terminal's group is left
        os.killpg(caller.pid, signal.SIGHUP)
    (tmp_path / "go").touch()
    program.run("wait", "s", "--timeout", "60").check()


def test_errors_before_the_start_are_reported_by_the_caller(tmp_path: Path) -> None:
    program = crew(tmp_path)
    program.run("send", "-d", "--team", "none", "go").check(
        code=2, stderr="arena: there is no team `none`\n  known: crew\n"
    )
    program.run("send", "-d", "-s", "s", "go").check()
    busy = program.run("send", "-d", "-s", "s", "--wait", "0", "go")
    assert (busy.code, busy.stdout) == (5, "")
    assert "session s is busy" in busy.stderr
    (tmp_path / "go").touch()
    program.run("wait", "s", "--timeout", "60").check()
    assert len(program.finished()) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a terminal")
def test_a_caller_that_is_interrupted_before_the_start_sends_nothing(tmp_path: Path) -> None:
    program = crew(tmp_path)
    program.run("send", "-d", "-s", "s", "first").check()
    with program.start("send", "-d", "-s", "s", "--wait", "60", "second") as caller:
        assert caller.stderr is not None
        assert b"session s is busy; waiting" in caller.stderr.readline()
        caller.send_signal(signal.SIGINT)
        assert caller.wait(60) == 130
        (tmp_path / "go").touch()
        caller.stderr.read()  # until the other process has ended, or begun its chain
    program.run("wait", "s", "--timeout", "60").check()
    opened = [record for record in program.records() if record["type"] == "message"]
    assert [record["message"]["content"] for record in opened] == ["first"]


def test_an_untrusted_workspace_starts_no_detached_process(tmp_path: Path) -> None:
    program = crew(tmp_path)
    program.env["ARENA_TRUST"] = ""
    done = program.run("send", "-d", "-s", "s", "go")
    assert (done.code, done.stdout, program.raw()) == (2, "", b"")
    assert "is not trusted yet" in done.stderr


def test_a_detached_chain_takes_all_that_is_given_to_send(tmp_path: Path) -> None:
    program = Program(tmp_path, real=True)
    program.agent("dev", ANSWER)
    program.agent("ops", {"say": "I watch it."})
    program.team(humans=["maya"])
    plan = program.file("plan.txt", "first this")
    words = ["--to", "ops", "--from", "maya", "--attach", str(plan), "--key", "k", "--json"]
    first = program.run("send", "-d", *words, "-", given="部署 — please".encode()).check()
    begun = json.loads(first.stdout)
    program.run("wait", begun["session"], "--timeout", "60").check()
    records = program.records(begun["session"])
    (message,) = [record["message"] for record in records if record["type"] == "message"]
    assert message["content"] == "部署 — please"
    assert (message["author_id"], message["mentions"]) == ("maya", ["ops"])
    assert [attachment["name"] for attachment in message["attachments"]] == ["plan.txt"]
    again = program.run(
        "send", "-d", "-s", begun["session"], *words, "-", given="部署 — please".encode()
    )
    assert json.loads(again.check().stdout) == begun


# Waiting


def test_waiting_for_a_chain_that_never_was_is_an_error(program: Program) -> None:
    program.run("send", "-s", "s", "hello").check()
    program.run("wait", "s", "--chain", "2").check(
        code=2, stderr="arena: session s has no chain 2\n  its only chain is 1\n"
    )
    program.run("send", "-s", "s", "hello").check()
    program.run("wait", "s", "--chain", "3").check(
        code=2, stderr="arena: session s has no chain 3\n  its chains are 1 to 2\n"
    )
    assert program.run("wait", "none").code == 2


def test_waiting_prints_one_chain_and_exits_as_send_did(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("dev", ANSWER, name="The Developer")
    program.agent("ops", {"fail": "error"}, retries=0)
    program.team()
    sent = program.run("send", "-s", "s", "@dev first").check().stdout
    program.run("send", "-s", "s", "@ops second")
    first = program.run("wait", "s", "--chain", "1").check().stdout
    assert first == sent, "also its head, and the names of the agents"
    second = program.run("wait", "s", "--timeout", "0")
    assert (second.code, "second" in second.stdout, "first" in second.stdout) == (3, True, False)
    assert program.run("wait", "s", "--chain", "1", "--quiet").check().stdout == ""


def test_waiting_for_a_chain_that_was_cut_short_ends_at_once(program: Program) -> None:
    program.run("send", "-s", "s", "hello").check()
    lines = program.raw().splitlines(keepends=True)
    program.transcript().write_bytes(b"".join(lines[:3]))
    program.run("wait", "s", "--quiet").check(
        code=130, stderr="session s: chain 1 was cut short; `arena resume s` continues\n"
    )


def test_waiting_ends_at_a_pause(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("ops", {"say": "May I?", "request": {"action": "deploy", "detail": "prod"}})
    program.team()
    assert program.run("send", "-s", "s", "deploy it").code == 4
    program.real = True  # which ends it if it waits for more
    waited = program.run("wait", "s", "--timeout", "600")
    assert waited.code == 4
    assert "arena approve s 1" in waited.stdout + waited.stderr


def test_waiting_for_a_paused_chain_that_was_cut_short_after_it_continued(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.agent("ops", {"say": "May I?", "request": {"action": "deploy", "detail": "prod"}})
    program.team()
    assert program.run("send", "-s", "s", "deploy it").code == 4
    program.run("approve", "s", "1").check()
    program.run("resume", "s").check()
    before, resumed, after = program.raw().partition(b'"type":"resumed"')
    program.transcript().write_bytes(before + resumed + after[: after.index(b"\n") + 1])
    program.run("wait", "s", "--quiet").check(
        code=130, stderr="session s: chain 1 was cut short; `arena resume s` continues\n"
    )


def test_no_session_runs(program: Program) -> None:
    program.run("send", "-s", "s", "hello").check()
    program.run("sessions", "--running").check(stdout="", stderr="no session is running\n")
    both = program.run("sessions", "--running", "--archived")
    assert (both.code, "--archived and --running" in both.stderr) == (2, True)
