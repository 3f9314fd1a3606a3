"""Flows from files: every kind of step, what fails, what goes on, and what is refused on load."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from product import dump_yaml, flow_values
from program import Done, Program, gone, until

Answer = tuple[int, str, Any]


class Server:
    """Answers each path with the next of its answers, the last one again and again."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.heard: list[tuple[str, str, str, str]] = []
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode()
                key = self.headers.get("Authorization") or ""
                path = self.path.partition("?")[0]
                outer.heard.append((self.command, self.path, body, key))
                answers = outer.answers[path]
                status, kind, value = answers[0] if len(answers) == 1 else answers.pop(0)
                if kind == "hang":
                    outer.released.wait(60)
                data = value if isinstance(value, str) else json.dumps(value)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data.encode())))
                with contextlib.suppress(OSError):
                    self.end_headers()
                    self.wfile.write(data.encode())

            do_GET = do_POST = respond  # noqa: N815 - as http.server has it

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.released.set()
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.agent("writer", {"say": "You said: ${message}"})
    made.agent("silent", {"fail": "error", "say": "it broke"})
    made.file(
        "work.py",
        '''
import os, time
from pathlib import Path


def add(rows: list[dict], more: int = 0) -> dict:
    return {"sum": sum(row["n"] for row in rows) + more}


def once(name: str) -> str:
    """Fail at the first call."""
    path = Path(name)
    if not path.exists():
        path.write_text("x")
        raise ValueError("not yet")
    return "now"


def log(name: str) -> str:
    with open("log.txt", "a") as file:
        file.write(name + "\\\\n")
    return name


def sleep(name: str) -> None:
    Path(name).write_text(str(os.getpid()))
    time.sleep(300)


async def later(items: list[int]) -> list[int]:
    return [item * 2 for item in items]
'''.replace("\\\\", "\\"),
    )
    return made


def echo(*words: str) -> list[str]:
    """The arguments of a program that prints these words."""
    return [sys.executable, "-c", "import sys; print(*sys.argv[1:])", *words]


def write(program: Program, *steps: dict[str, Any], name: str = "flow.yaml", **keys: Any) -> None:
    program.file(name, dump_yaml({"flow": "Test", **keys, "steps": list(steps)}))


def run(program: Program, *args: str, name: str = "flow.yaml") -> Done:
    return program.run("flow", "run", name, "--session", "s", "--quiet", *args)


def result(program: Program, *args: str, code: int = 0) -> dict[str, Any]:
    done = run(program, "--json", *args)
    assert done.code == code, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def outputs(program: Program, *args: str) -> dict[str, Any]:
    return {key: step["output"] for key, step in result(program, *args)["steps"].items()}


def events(program: Program, kind: str) -> list[dict[str, Any]]:
    return [record for record in program.records() if record["type"] == kind]


def check(program: Program) -> list[str]:
    """The errors of the flow file, `line: field: problem`, without the file's name."""
    done = program.run("flow", "check", "flow.yaml")
    assert done.code == 2, done.stdout
    lines = [line for line in done.stderr.splitlines() if "flow.yaml:" in line]
    return [line.partition("flow.yaml:")[2] for line in lines]


def test_every_kind_hands_its_output_on(program: Program, server: Server) -> None:
    server.answers["/rows"] = [(200, "application/json", {"rows": [{"n": 1}, {"n": 2}]})]
    server.answers["/made"] = [(201, "text/plain", "fine")]
    write(
        program,
        {"id": "get", "http": {"url": server.url + "/rows?day=${inputs.day}"}},
        {"id": "add", "python": "work.py:add", "inputs": {"rows": "${steps.get.output.body.rows}"}},
        {"id": "twice", "python": "work.py:later", "inputs": {"items": [1, 2]}},
        {
            "id": "post",
            "http": {
                "method": "POST",
                "url": server.url + "/made",
                "headers": {"Authorization": "Bearer ${env:TOKEN}"},
                "body": {"sum": "${steps.add.output.sum}"},
                "expect": [200, 201],
            },
        },
        {
            "id": "keep",
            "sql": {
                "database": "r.db",
                "run": [
                    "create table r (n int)",
                    {"statement": "insert into r values (:n)",
                     "values": "${steps.get.output.body.rows}"},
                    "select sum(n) as total from r",
                ],
            },
        },
        {"id": "say", "send": "@writer: ${steps.keep.output.rows[0].total} in all"},
        {"id": "ask", "agent": "writer", "message": "${steps.twice.output}"},
        {"id": "print", "shell": echo("${steps.add.output.sum}", "${steps.get.output.body.rows}")},
        {"id": "each", "each": "${steps.get.output.body.rows}", "parallel": 2,
         "steps": [{"id": "one", "shell": echo("${index}: ${item.n}")}]},
        {"id": "until", "repeat": {"until": "round == 2", "max": 5},
         "steps": [{"id": "tick", "shell": echo("${round}")}]},
        {"id": "choose", "choose": [
            {"when": "steps.add.output.sum > 5", "steps": [{"id": "big", "shell": echo("big")}]},
            {"steps": [{"id": "small", "shell": echo("small")}]}]},
        {"id": "group", "group": [
            {"id": "first", "shell": echo('{"a": [7]}')},
            {"id": "second", "shell": echo("${steps.first.output.json.a[0]}")}]},
        {"id": "never", "when": "inputs.day != '1'", "shell": echo("x")},
        {"id": "after", "shell": echo("[${steps.never.output.stdout}]", "$${x}")},
        {"id": "inner", "flow": "inner.yaml", "inputs": {"name": "${steps.add.output.sum}"}},
        inputs={"day": {"default": "0"}},
    )  # fmt: skip
    write(
        program,
        {"id": "hello", "shell": echo("hello ${inputs.name}")},
        name="inner.yaml",
        inputs={"name": {"type": "integer"}},
    )
    program.env["TOKEN"] = "s3cret-value-of-the-token"
    outcome = outputs(program, "--input", "day=1")
    assert outcome["get"]["status"] == 200
    assert outcome["add"] == {"sum": 3}
    assert outcome["twice"] == [2, 4]
    assert outcome["post"]["body"] == "fine"
    assert outcome["keep"] == {"rows": [{"total": 3}], "changed": 2}
    assert outcome["say"]["replies"] == [{"agent": "writer", "text": "You said: @writer: 3 in all"}]
    assert outcome["ask"] == "You said: [2, 4]"
    assert outcome["print"]["stdout"] == '3 [{"n": 1}, {"n": 2}]\n'
    assert [item["one"]["stdout"] for item in outcome["each"]] == ["0: 1\n", "1: 2\n"]
    assert outcome["until"]["rounds"] == 3
    assert list(outcome["choose"]) == ["small"]
    assert outcome["group"]["second"]["stdout"] == "7\n"
    assert outcome["never"] is None
    assert outcome["after"]["stdout"] == "[] ${x}\n"
    assert outcome["inner"]["hello"]["stdout"] == "hello 3\n"
    posted = ("POST", "/made", '{"sum": 3}', "Bearer s3cret-value-of-the-token")
    assert server.heard == [("GET", "/rows?day=1", "", ""), posted]
    assert "s3cret" not in program.written()


def test_independent_steps_run_side_by_side(program: Program) -> None:
    """Each waits for a file that the other one writes."""
    wait = (
        "import pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\n"
    )
    steps = [
        {"id": name, "timeout_s": 60, "shell": [sys.executable, "-c", wait, name, other]}
        for name, other in (("a", "b"), ("b", "a"))
    ]
    write(program, *steps)
    assert result(program)["status"] == "success"


def test_a_server_that_answers_500_is_asked_again(program: Program, server: Server) -> None:
    server.answers["/"] = [(500, "text/plain", "no"), (200, "text/plain", "yes")]
    write(program, {"id": "get", "retry_delay_s": 0, "http": {"url": server.url + "/"}})
    assert outputs(program)["get"]["body"] == "yes"
    assert [event["attempt"] for event in events(program, "step_started")] == [1, 2]


def test_a_server_that_refuses_is_not_asked_again(program: Program, server: Server) -> None:
    server.answers["/"] = [(404, "text/plain", "nothing here")]
    write(
        program,
        {"id": "get", "http": {"url": server.url + "/"}},
        {"id": "after", "needs": ["get"], "shell": echo("x")},
    )
    outcome = result(program, code=3)
    assert outcome["status"] == "failed"
    assert outcome["failed"] == {"get": f"GET {server.url}/ answered 404: nothing here"}
    (finished,) = events(program, "step_finished")
    assert (finished["error_code"], finished["retryable"]) == ("http_status", False)
    assert finished["output"]["status"] == 404
    assert len(server.heard) == 1


def test_a_server_that_hangs_is_given_up(program: Program, server: Server) -> None:
    server.answers["/"] = [(200, "hang", "")]
    write(
        program,
        {"id": "get", "timeout_s": 0.3, "on_failure": "skip", "http": {"url": server.url + "/"}},
        {"id": "after", "shell": echo("${steps.get.output.body}")},
    )
    outcome = result(program)
    assert outcome["steps"]["get"]["status"] == "skipped"
    assert "time limit" in outcome["steps"]["get"]["error"]
    assert outcome["steps"]["after"]["output"]["stdout"] == "\n"


def test_failed_sql_leaves_nothing_behind(program: Program) -> None:
    sql = {"database": "r.db", "run": ["create table t (n int)", "insert into t values (1)"]}
    write(program, {"id": "ok", "sql": sql})
    assert run(program).code == 0
    run_list = ["insert into t values (2)", "insert into nowhere values (3)"]
    write(program, {"id": "bad", "sql": {"database": "r.db", "run": run_list}})
    outcome = result(program, code=3)
    assert outcome["failed"] == {"bad": "no such table: nowhere"}
    rows = sqlite3.connect(program.folder / "r.db").execute("select n from t").fetchall()
    assert rows == [(1,)]


def test_another_database_by_its_dsn(program: Program) -> None:
    pytest.importorskip("sqlalchemy")
    path = (program.folder / "other.db").as_posix()
    insert = {"statement": "insert into t values (:n)", "values": [{"n": 1}, {"n": 2}]}
    statements = ["create table t (n int)", insert, "select n from t order by n"]
    write(program, {"id": "db", "sql": {"dsn": "sqlite:///${env:DB}", "run": statements}})
    program.env["DB"] = path
    assert outputs(program)["db"]["rows"] == [{"n": 1}, {"n": 2}]
    statements = ["insert into t values (3)", "insert into nowhere values (4)"]
    write(program, {"id": "db", "sql": {"dsn": "sqlite:///${env:DB}", "run": statements}})
    assert "nowhere" in result(program, code=3)["failed"]["db"]
    assert sqlite3.connect(path).execute("select count(*) from t").fetchone() == (2,)


def test_failures_of_programs_functions_and_agents(program: Program) -> None:
    failing: dict[str, dict[str, Any]] = {
        "exit_code": {"shell": [sys.executable, "-c", "import sys; sys.exit('broken')"]},
        "unavailable": {"shell": ["no-such-program"]},
        "python": {"python": "work.py:add", "inputs": {"rows": 3}},
        "missing_value": {"shell": echo("${steps.list.output.json.nothing}")},
        "too_large": {"shell": [sys.executable, "-c", "print('x' * 2_000_000)"]},
        "max_rounds": {"repeat": {"until": "false", "max": 2},
                       "steps": [{"id": "tick", "shell": echo("x")}]},
        "usage": {"each": "${steps.list.output.json.a}",
                  "steps": [{"id": "item", "shell": echo("x")}]},
    }  # fmt: skip
    steps = [{"id": key, "on_failure": "skip", **value} for key, value in failing.items()]
    write(
        program,
        {"id": "list", "shell": echo('{"a": 1}')},
        *steps,
        {"id": "broken", "on_failure": "skip", "agent": "silent", "message": "x"},
    )
    outcome = result(program)
    codes = {event["step"]: event.get("error_code") for event in events(program, "step_finished")}
    assert {key: codes[key] for key in failing} == {key: key for key in failing}
    assert "broken" in outcome["steps"]["exit_code"]["error"]
    assert outcome["steps"]["broken"]["error"] == "silent: an error, as scripted"


def test_a_value_that_leads_out_of_the_workspace_is_refused(program: Program) -> None:
    may_fail = {"on_failure": "skip", "retries": 0}
    outside = "${inputs.folder}"
    sql = {"database": f"{outside}/outside.db", "run": ["create table t (n)"]}
    write(
        program,
        {"id": "folder", "shell": echo("x"), "cwd": outside, **may_fail},
        {"id": "database", "sql": sql, **may_fail},
        inputs={"folder": {"default": ".."}},
    )
    assert run(program).code == 0
    done = {event["step"]: event["error_code"] for event in events(program, "step_finished")}
    assert done == {"folder": "refused", "database": "refused"}
    assert not (program.folder.parent / "outside.db").exists()


def test_secrets_are_neither_kept_nor_printed(program: Program) -> None:
    secret = "hunter22-is-it"
    program.env["API_KEY"] = secret
    code = "import os, sys; print(os.environ['API_KEY']); sys.exit(int(sys.argv[1]))"
    environ = {"env": {"API_KEY": "${env:API_KEY}"}, "retries": 0}
    write(
        program,
        {"id": "good", "shell": [sys.executable, "-c", code, "0"], **environ},
        {"id": "bad", "needs": ["good"], "shell": [sys.executable, "-c", code, "1"], **environ},
        inputs={"word": {}},
    )
    done = run(program, "--json", "--input", f"word={secret}")
    assert done.code != 0
    good, bad = events(program, "step_finished")
    assert "[redacted]" in good["output"]["stdout"]
    assert "[redacted]" in bad["output"]["stdout"]
    assert "[redacted]" in bad["error"]
    assert secret not in program.raw().decode() + done.stdout + done.stderr


def test_an_output_that_is_too_large_fails_its_step(program: Program, server: Server) -> None:
    server.answers["/big"] = [(200, "text/plain", "x" * 1_100_000)]
    program.file("big.py", "def big() -> str:\n    return 'x' * 1_100_000\n")
    shell = [sys.executable, "-c", "print('x' * 1_100_000)"]
    may_fail = {"on_failure": "skip", "retries": 0}
    write(
        program,
        {"id": "shell", "shell": shell, **may_fail},
        {"id": "http", "http": {"url": f"{server.url}/big"}, **may_fail},
        {"id": "python", "python": "big.py:big", **may_fail},
    )
    assert run(program).code == 0
    done = {event["step"]: event["error_code"] for event in events(program, "step_finished")}
    assert done == {"shell": "too_large", "http": "too_large", "python": "too_large"}
    assert len(program.raw()) < 10_000


def test_an_error_of_a_step_cannot_act_on_a_terminal(program: Program) -> None:
    program.file("bad.py", "def bad() -> None:\n    raise ValueError('no \\x1b[2Jway')\n")
    write(program, {"id": "a", "python": "bad.py:bad", "retries": 0})
    done = program.run("flow", "run", "flow.yaml", "--session", "s")
    assert done.code == 3
    shown = program.run("show", "s").stdout
    assert "step a (python) failed" in shown
    assert "way" in shown
    assert "way" in done.stderr
    assert "\x1b" not in shown + done.stdout + done.stderr


def test_attempts_and_delays(program: Program) -> None:
    once = {"python": "work.py:once", "retry_delay_s": 0}
    write(
        program,
        {"id": "again", **once, "inputs": {"name": "a"}},
        {"id": "skipped", **once, "inputs": {"name": "b"}, "on_failure": "skip"},
        {"id": "own", **once, "inputs": {"name": "c"}, "on_failure": "skip", "retries": 1},
    )
    assert outputs(program) == {"again": "now", "skipped": None, "own": "now"}
    write(program, {"id": "stop", **once, "inputs": {"name": "d"}, "on_failure": "abort"})
    problem = result(program, code=3)["failed"]["stop"]
    assert problem.startswith("work.py:once: ValueError: not yet (")


def test_a_block_that_may_be_skipped(program: Program) -> None:
    bad = {"id": "bad", "on_failure": "abort", "shell": [sys.executable, "-c", "exit(1)"]}
    write(
        program,
        {"id": "block", "on_failure": "skip", "group": [bad]},
        {"id": "after", "needs": ["block"], "shell": echo("on")},
    )
    outcome = result(program)
    assert outcome["steps"]["block"]["status"] == "skipped"
    assert outcome["failed"] == {}
    assert outcome["steps"]["after"]["status"] == "success"


def test_a_failed_flow_goes_on_where_it_failed(program: Program) -> None:
    def log(name: str) -> dict[str, Any]:
        return {"python": "work.py:log", "inputs": {"name": name}}

    loop = {
        "id": "loop",
        "needs": ["first"],
        "each": ["a", "b", "c"],
        "steps": [{"id": "do", **log("${item}")},
                  {"id": "check", "needs": ["do"], "on_failure": "abort",
                   "when": "item == 'b'", "shell": ["no-such-program"]}],
    }  # fmt: skip
    after = {"id": "after", **log("after ${steps.first.output} ${inputs.day}"), "needs": ["loop"]}
    write(program, {"id": "first", **log("first")}, loop, after, inputs={"day": {}})
    assert result(program, "-i", "day=mon", code=3)["failed"]["loop[1].check"]
    assert run(program).code == 2  # it has to be continued, or started elsewhere
    assert run(program, "--resume", "-i", "day=tue").code == 2
    assert run(program, "--resume").code == 3
    logged = (program.folder / "log.txt").read_text().splitlines()
    assert logged == ["first", "a", "b"]
    text = (program.folder / "flow.yaml").read_text()
    words = ", ".join(map(json.dumps, echo("fine")))
    program.file("flow.yaml", text.replace("[no-such-program]", f"[{words}]"))
    done = run(program, "--resume")
    assert done.code == 0, done.stderr
    logged = (program.folder / "log.txt").read_text().splitlines()
    assert logged == ["first", "a", "b", "c", "after first mon"]


def test_a_changed_step_runs_again_with_those_that_need_it(program: Program) -> None:
    def steps(word: str, end: str) -> list[dict[str, Any]]:
        logs = [("one", word, []), ("two", "${steps.one.output}", []), ("three", "three", [])]
        made = [{"id": key, "python": "work.py:log", "inputs": {"name": name}}
                for key, name, _ in logs]  # fmt: skip
        return [*made, {"id": "end", "needs": ["two", "three"], "shell": echo(end)
                        if end else ["no-such-program"]}]  # fmt: skip

    write(program, *steps("old", ""))
    assert run(program).code == 3
    write(program, *steps("new", "x"))
    assert run(program, "--resume").code == 0
    logged = (program.folder / "log.txt").read_text().splitlines()
    assert sorted(logged) == ["new", "new", "old", "old", "three"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_flow_that_was_ended_leaves_no_process_and_goes_on(
    program: Program, number: signal.Signals
) -> None:
    program.real = True
    slow = "import os, sys, time; open('pid', 'w').write(str(os.getpid())); time.sleep(300)"
    shell = [sys.executable, "-c", f"import os, sys\nif os.path.exists('pid'): sys.exit()\n{slow}"]
    write(
        program,
        {"id": "first", "python": "work.py:log", "inputs": {"name": "first"}},
        {"id": "slow", "needs": ["first"], "shell": shell},
        {"id": "last", "needs": ["slow"], "python": "work.py:log", "inputs": {"name": "last"}},
    )
    running = program.start("flow", "run", "flow.yaml", "--session", "s")
    pid_file = program.folder / "pid"
    until(lambda: pid_file.exists() and pid_file.read_text())
    assert program.run("sessions", "--running").stdout.startswith("s · every agent · open · ")
    for resume in ((), ("--resume",)):
        done = program.run("flow", "run", "flow.yaml", "--session", "s", *resume)
        assert (done.code, "session s is busy" in done.stderr) == (5, True)
    going_on = "session s · flow · running\n  steps that run: slow\n"
    assert program.run("status", "s").check().stdout == going_on
    running.send_signal(number)
    done = program.finish(running)
    shown = program.run("status", "s").stdout
    assert shown.startswith("session s · flow · cut short\n")
    assert ("steps that were cut short: slow" in shown) == (number == signal.SIGKILL)
    assert done.code == (130 if number == signal.SIGINT else -number)
    until(lambda: gone(int(pid_file.read_text())))
    done = program.run("flow", "run", "flow.yaml", "--session", "s", "--resume")
    assert done.code == 0, done.stderr
    assert (program.folder / "log.txt").read_text().splitlines() == ["first", "last"]
    program.run("status", "s").check(stdout="session s · flow · idle\n")


def test_a_session_is_listed_by_its_flow_and_resume_continues_it(program: Program) -> None:
    write(program, {"id": "a", "shell": ["no-such-program"]})
    assert run(program).code == 3
    (row,) = json.loads(program.run("sessions", "--json").stdout)
    assert (row["end"], row["first"]) == ("failed", "Test")
    done = program.run("resume", "s")
    assert done.code == 3
    assert "  a failed (" in done.stderr
    done = program.run("resume", "s", "--budget", "+10tokens")
    assert (done.code, "has no budget" in done.stderr) == (2, True)
    write(program, {"id": "a", "shell": echo("fine")})
    done = program.run("resume", "s", "--json")
    assert (done.code, json.loads(done.stdout)["status"], done.stderr) == (0, "success", "")
    assert " · success · " in program.run("sessions").stdout
    done = program.run("resume", "s")
    assert (done.code, "nothing to resume" in done.stderr) == (0, True)
    program.run("send", "-s", "s", "@writer hello").check(stdout=None)
    assert " · quiet · " in program.run("sessions").stdout


def test_resume_continues_a_flow_without_agents_and_one_before_a_message(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.file("arena.yaml", "{}")
    first = {"id": "a", "shell": echo("one")}
    write(program, first, {"id": "b", "needs": ["a"], "shell": ["no-such-program"]})
    assert run(program).code == 3
    write(program, first, {"id": "b", "needs": ["a"], "shell": echo("two")})
    done = program.run("resume", "s")
    assert (done.code, "b success" in done.stderr, "a success" in done.stderr) == (0, True, False)
    program.agent("writer", {"say": "You said: ${message}"})
    write(program, {"id": "a", "shell": ["no-such-program"]})
    assert run(program).code == 3
    program.run("send", "-s", "s", "@writer hello").check(stdout=None)
    write(program, {"id": "a", "shell": echo("fine")})
    done = program.run("resume", "s")
    assert (done.code, "a success" in done.stderr) == (0, True)


@pytest.mark.skipif(sys.platform == "win32", reason="a program of a shell")
def test_a_time_limit_ends_the_whole_tree(program: Program) -> None:
    child = "import os, time; open('child', 'w').write(str(os.getpid())); time.sleep(300)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    wait = "import os, time\nwhile not os.path.exists('child'): time.sleep(0.01)\n"
    write(
        program,
        {"id": "slow", "timeout_s": 20, "retries": 0, "shell": [sys.executable, "-c", parent]},
        {"id": "stop", "on_failure": "abort", "shell": [sys.executable, "-c", f"{wait}exit(1)"]},
    )
    outcome = result(program, code=3)
    assert list(outcome["failed"]) == ["stop"]
    statuses = {event["step"]: event["status"] for event in events(program, "step_finished")}
    assert statuses == {"slow": "cancelled", "stop": "failed"}
    assert gone(int((program.folder / "child").read_text()))


def test_a_failure_has_its_class_and_its_output(program: Program) -> None:
    """For programs, and for steps after one that may be skipped."""
    fail = [sys.executable, "-c", "print('so far'); raise SystemExit(3)"]
    write(
        program,
        {"id": "may", "shell": fail, "on_failure": "skip"},
        {"id": "tell", "shell": echo("${steps.may.error_code} ${steps.may.retryable}"),
         "when": "steps.may.error_code == 'exit_code'"},
        {"id": "stop", "needs": ["tell"], "shell": fail, "retries": 0},
    )  # fmt: skip
    outcome = result(program, code=3)
    steps = outcome["steps"]
    assert steps["tell"]["output"]["stdout"].strip() == "exit_code true"
    assert steps["may"]["error_code"] == "exit_code"
    assert steps["tell"]["error_code"] is None
    stop = steps["stop"]
    assert (stop["status"], stop["error_code"], stop["retryable"]) == ("failed", "exit_code", True)
    assert stop["output"]["stdout"].strip() == "so far"
    assert outcome["failed"] == {"stop": stop["error"]}
    lines = run(program, "--resume").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["may", "tell"]


@pytest.mark.skipif(sys.platform == "win32", reason="a program of a shell")
def test_a_container_is_run_by_what_there_is(program: Program) -> None:
    step = {"id": "box", "container": {"image": "alpine:3", "command": ["echo", "${inputs.word}"],
                                       "env": {"A": "b"}, "network": "none"}}  # fmt: skip
    write(program, step, inputs={"word": {"default": "hi"}})
    bin_folder = program.folder / "bin"
    program.env["PATH"] = str(bin_folder)
    outcome = result(program, code=3)
    problem = "a `container` step needs docker or podman, and neither is on PATH"
    assert outcome["failed"] == {"box": problem}
    script = f"#!{sys.executable}\nimport sys; print(' '.join(sys.argv[1:]))\n"
    program.file("bin/podman", script).chmod(0o755)
    words = result(program, "--resume")["steps"]["box"]["output"]["stdout"].split()
    assert words[:3] == ["run", "--rm", "--name"]
    assert words[4:] == ["--network", "none", "--env", "A=b", "alpine:3", "echo", "hi"]


@pytest.mark.skipif(sys.platform == "win32", reason="a program of a shell")
def test_a_container_runs_code(program: Program) -> None:
    """In Python, unless `command` names another interpreter; the question of trust shows it."""
    script = (
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "words = sys.argv[sys.argv.index('alpine:3') + 1:]\n"
        "sys.exit(subprocess.call([sys.executable if words[0] == 'python3' else words[0],"
        " *words[1:]]))\n"
    )
    program.file("bin/podman", script).chmod(0o755)
    program.env["PATH"] = f"{program.folder / 'bin'}:/usr/bin:/bin"
    code = "import json\nprint(json.dumps({'sum': ${inputs.count} + 1}))"
    write(
        program,
        {"id": "python", "container": {"image": "alpine:3", "code": code}},
        {"id": "shell", "container": {"image": "alpine:3", "command": ["sh", "-c"],
                                      "code": "echo 'a b' | tr a ${steps.python.output.json.sum}"}},
        inputs={"count": {"type": "integer", "default": 2}},
    )  # fmt: skip
    drawn = program.run("flow", "draw", "flow.yaml").check().stdout
    assert "container alpine:3 sh -c echo" in drawn
    steps = result(program)["steps"]
    assert steps["python"]["output"]["json"] == {"sum": 3}
    assert steps["shell"]["output"]["stdout"] == "3 b\n"


def test_a_container_needs_some_code(program: Program) -> None:
    write(program, {"id": "box", "container": {"image": "alpine:3", "code": ""}})
    (problem,) = check(program)
    assert problem.startswith("6: steps[0].container.code: "), problem


@pytest.mark.skipif(sys.platform == "win32", reason="a program of a shell")
def test_a_container_whose_time_is_over_is_removed(program: Program) -> None:
    script = (
        f"#!{sys.executable}\nimport sys, time\n"
        "open('calls', 'a').write(' '.join(sys.argv[1:4]) + '\\n')\n"
        "if sys.argv[1] == 'run': time.sleep(300)\n"
    )
    program.file("bin/docker", script).chmod(0o755)
    program.env["PATH"] = str(program.folder / "bin")
    step = {"id": "box", "timeout_s": 3, "retries": 0, "container": {"image": "alpine:3"}}
    write(program, step)
    assert "time limit" in result(program, code=3)["failed"]["box"]
    calls = (program.folder / "calls").read_text().splitlines()
    assert calls[-1].startswith("rm --force arena-")


@pytest.mark.skipif(sys.platform == "win32", reason="a program of a shell")
def test_a_container_runtime_that_fails_is_explained_by_its_error(program: Program) -> None:
    """Docker's last line is only a hint on `--help`."""
    cause = "docker: Cannot connect to the Docker daemon."
    hint = "Run 'docker run --help' for more information"
    script = f"#!{sys.executable}\nimport sys; sys.exit({cause + chr(10) + chr(10) + hint!r})\n"
    program.file("bin/docker", script).chmod(0o755)
    program.env["PATH"] = str(program.folder / "bin")
    write(program, {"id": "box", "retries": 0, "container": {"image": "alpine:3"}})
    failed = result(program, code=3)["failed"]
    assert failed == {"box": f"docker failed with exit code 1: {cause}"}


def test_a_long_output_is_shown_with_its_cut(program: Program) -> None:
    write(program, {"id": "cat", "shell": echo("miau " * 100)})
    done = run(program).check()
    assert done.stdout.startswith('cat: success {"code": 0, "stdout": "miau miau')
    assert done.stdout.endswith("…\n")
    drawn = program.run("flow", "draw", "flow.yaml").check().stdout
    assert '…"]' in drawn


def test_rules_restrict_the_steps_that_run(program: Program) -> None:
    program.file(
        "rules.py",
        """
def check(decision):
    assert decision["kind"] == "step" and decision["step_kind"] == "shell", decision
    return "no dog" if "dog" in decision["work"]["shell"] else None
""",
    )
    rules = [
        {"id": "safe_nodes", "name": "only safe nodes", "step_kinds": ["shell", "http"]},
        {"id": "no_rm", "on": "step", "priority": 1, "forbid": {"contains": "rm -rf"}},
        {"id": "dogs", "python": "rules.py:check", "on": "step", "when": {"step": "shell"}},
    ]
    steps = [
        {"id": "cat", "shell": echo("cat")},
        {
            "id": "rm",
            "shell": echo("rm", "-rf", "${steps.cat.output.stdout}"),
            "on_failure": "skip",
        },
        {"id": "dog", "shell": echo("${steps.cat.status}", "dog"), "on_failure": "skip"},
        {
            "id": "block",
            "needs": ["rm", "dog"],
            "group": [{"id": "talk", "agent": "writer", "message": "hi"}],
        },
    ]
    write(program, *steps, rules=rules)
    outcome = result(program, code=3)
    assert outcome["steps"]["cat"]["status"] == "success"
    assert outcome["steps"]["rm"]["error"].startswith("refused by rule no_rm: ")
    assert outcome["steps"]["dog"]["error"] == "refused by rule dogs: no dog"
    problem = "refused by rule safe_nodes: only steps of these kinds run: shell, http"
    assert outcome["failed"]["block.talk"] == problem
    ended = {event["step"]: event for event in events(program, "step_finished")}
    talk = ended["block.talk"]
    assert (talk["error_code"], talk["retryable"], talk["attempts"]) == ("rule", False, 1)
    decisions = {event["step"]: event for event in events(program, "decision")}
    assert decisions["cat"]["allowed"]
    assert decisions["cat"]["kind"] == "step"
    assert decisions["cat"]["rules"] == ["no_rm", "safe_nodes", "dogs"]
    assert not decisions["rm"]["allowed"]
    assert [event["rule"] for event in events(program, "rule_broken")] == [
        "no_rm",
        "dogs",
        "safe_nodes",
    ]
    assert len({event["decision"] for event in events(program, "decision")}) == 4
    shown = program.run("show", "s").stdout
    assert "refused by rule safe_nodes" in shown
    assert "decisions: 4, 3 rejected (75 %)" in program.run("status", "s").stdout


def test_rules_of_the_team_hold_for_its_flows_and_of_a_file_for_inner_ones(
    program: Program,
) -> None:
    program.file(
        "arena.yaml",
        dump_yaml({"defaults": {"config": {"rules": [{"id": "t", "step_kinds": "shell"}]}}}),
    )
    python = {"id": "add", "python": "work.py:later", "inputs": {"items": [1]}}
    write(program, {**python, "on_failure": "skip"}, {"id": "hi", "shell": echo("hi")})
    outcome = result(program)
    assert outcome["steps"]["add"]["error"].startswith("refused by rule t: ")
    program.file("arena.yaml", "{}")
    inner = [{"id": "a", "shell": echo("a")}, {"id": "b", **python}]
    inner[1]["id"] = "b"
    write(program, *inner, name="inner.yaml", rules=[{"id": "i", "step_kinds": "shell"}])
    outer = {"id": "in", "flow": "inner.yaml", "on_failure": "skip"}
    write(program, python, outer, rules=[{"id": "o", "step_kinds": ["python", "shell"]}])
    done = program.run("flow", "run", "flow.yaml", "--session", "two", "--json", "--quiet")
    outcome = json.loads(done.stdout)
    assert outcome["steps"]["add"]["status"] == "success"
    assert "in.b: refused by rule i" in outcome["steps"]["in"]["error"]
    looked = [event for event in program.records("two") if event["type"] == "decision"]
    assert {event["step"]: event["rules"] for event in looked} == {
        "add": ["o"],
        "in.a": ["o", "i"],
        "in.b": ["o", "i"],
    }


def test_rules_of_a_flow_that_are_none(program: Program) -> None:
    rules = [
        {"id": "a", "max_chars": 3},
        {"id": "b", "step_kinds": ["shel"]},
        {"id": "c", "on": "step", "require": {"contain": "x"}},
        {"id": "d", "on": "step", "python": "none.py:check"},
    ]
    write(program, {"id": "hi", "shell": echo("hi")}, rules=rules)
    assert any("rules[1].step_kinds" in line and "shell" in line for line in check(program))
    write(program, {"id": "hi", "shell": echo("hi")}, rules=[rules[0], *rules[2:]])
    lines = check(program)
    assert [line.split(": ")[1] for line in lines] == [
        "rules[0]",
        "rules[1].require.contain",
        "rules[2].python",
    ]


def test_an_agent_that_waits_for_approval_pauses_the_flow(program: Program) -> None:
    request = {"action": "execute_command", "detail": "git push"}
    program.agent("boss", {"request": request, "say": "pushed"})
    log = {"python": "work.py:log", "inputs": {"name": "${steps.push.output}"}}
    write(
        program,
        {"id": "push", "agent": "boss", "message": "push"},
        {"id": "after", **log},
        {"id": "other", "python": "work.py:log", "inputs": {"name": "other"}},
    )
    outcome = result(program, code=4)
    assert outcome["waits"] == ["s.push"]
    assert outcome["steps"]["push"]["status"] == outcome["steps"]["after"]["status"] == "waiting"
    assert run(program, "--resume").code == 4
    assert program.run("approve", "s.push", "1").code == 0
    done = run(program, "--resume")
    assert done.code == 0, done.stderr
    assert (program.folder / "log.txt").read_text().splitlines() == ["other", "pushed"]


def test_an_inner_flow_checks_its_inputs(program: Program) -> None:
    write(program, {"id": "a", "shell": echo("x")}, name="in.yaml",
          inputs={"n": {"type": "integer"}})  # fmt: skip
    write(
        program,
        {"id": "list", "shell": echo('{"n": "three"}')},
        {"id": "inner", "flow": "in.yaml", "inputs": {"n": "${steps.list.output.json.n}"}},
    )
    problem = '`n` must be a whole number, not "three"'
    assert result(program, code=3)["failed"] == {"inner": problem}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_agents_continue_where_they_were_interrupted(program: Program) -> None:
    program.real = True
    program.agent("slow", {"say": "late", "delay_s": 300})
    program.agent("one", {"say": "first @slow"})
    write(program, {"id": "talk", "send": "@one go"})
    running = program.start("flow", "run", "flow.yaml", "--session", "s")
    until(lambda: b'"agent":"slow"' in program.raw("s.talk").partition(b"first @slow")[2])
    running.send_signal(signal.SIGINT)
    assert program.finish(running).code == 130
    program.agent("slow", {"say": "late"})
    done = program.run("flow", "run", "flow.yaml", "--session", "s", "--resume", "--json")
    assert done.code == 0, done.stderr
    replies = json.loads(done.stdout)["steps"]["talk"]["output"]["replies"]
    assert [reply["text"] for reply in replies] == ["first @slow", "late"]


def test_reflection_runs_failed_steps_again(program: Program) -> None:
    answer = {"assessment": "It failed.", "should_retry": True, "confidence": 0.9,
              "recommendations": ["wait"]}  # fmt: skip
    program.agent("critic", {"say": f"Here:\n{json.dumps(answer)}"})
    once = {"id": "try", "python": "work.py:once", "inputs": {"name": "a"}, "on_failure": "abort"}
    log = {"id": "log", "python": "work.py:log", "inputs": {"name": "x"}}
    write(program, log, {**once, "needs": ["log"]}, reflect={"agent": "critic"})
    assert result(program)["status"] == "success"
    (reflected,) = events(program, "reflected")
    assert {key: reflected[key] for key in answer} == answer
    assert (program.folder / "log.txt").read_text() == "x\n"


def test_a_reflection_that_is_none_changes_nothing(program: Program) -> None:
    write(program, {"id": "a", "shell": ["no-such-program"]}, reflect={"agent": "writer"})
    assert result(program, code=3)["status"] == "failed"
    (reflected,) = events(program, "reflected")
    assert reflected["error"]


NIGHTLY = """\
scenario: A nightly report
agents: [writer]
steps:
  - flow: {file: flow.yaml, inputs: {day: "2026-11-28"}}
    expect:
      flow:
        orders: {status: success, output: {path: status, equals: 200}}
        store: {output: [{path: "rows[0].total", equals: TOTAL}]}
        tell: {output: {path: text, equals: "You said: @writer: 42 on 2026-11-28"}}
        alarm: {status: skipped}
        gone: {status: none}
"""


def test_a_nightly_report_as_a_scenario(program: Program, server: Server) -> None:
    rows = [{"price": 40}, {"price": 2}]
    server.answers["/orders"] = [(503, "text/plain", "busy"), (200, "application/json", rows)]
    insert = {
        "statement": "insert into orders values (:price)",
        "values": "${steps.orders.output.body}",
    }
    run_list = [
        "create table if not exists orders (price integer)",
        "delete from orders",
        insert,
        "select sum(price) as total from orders",
    ]
    total = "${steps.store.output.rows[0].total}"
    write(
        program,
        {"id": "orders", "retry_delay_s": 0,
         "http": {"url": server.url + "/orders?day=${inputs.day}"}},
        {"id": "store", "sql": {"database": "orders.db", "run": run_list}},
        {"id": "alarm", "when": "steps.store.output.rows[0].total > 100", "send": "@writer: alarm"},
        {"id": "tell", "send": f"@writer: {total} on ${{inputs.day}}"},
        inputs={"day": {}},
    )  # fmt: skip
    program.file("scenarios/nightly.yaml", NIGHTLY.replace("TOTAL", "42"))
    done = program.run("run", "nightly")
    assert done.code == 0, done.stdout
    assert [path for _, path, *_ in server.heard] == ["/orders?day=2026-11-28"] * 2
    assert list((program.folder / "sessions").glob("[!.]*")) == []
    program.file("scenarios/nightly.yaml", NIGHTLY.replace("TOTAL", "43"))
    done = program.run("run", "nightly", "--record")
    assert done.code == 1
    assert "scenarios/nightly.yaml:8: flow.store.output[0]" in done.stdout
    program.file("scenarios/nightly.yaml", NIGHTLY.replace("TOTAL", "42"))
    server.heard.clear()
    assert program.run("run", "nightly", "--replay").code == 0
    assert server.heard == []


def test_a_flow_that_fails_fails_its_scenario(program: Program) -> None:
    write(program, {"id": "bad", "shell": ["no-such-program"]})
    text = "scenario: one\nagents: [writer]\nsteps:\n  - flow: flow.yaml\n"
    program.file("scenarios/one.yaml", text)
    done = program.run("run", "one")
    assert done.code == 3
    assert "the flow did not succeed: bad: there is no program no-such-program" in done.stdout
    program.file("scenarios/one.yaml", f"{text}    expect: {{flow: {{bad: {{status: failed}}}}}}\n")
    assert program.run("run", "one").code == 0
    expected = "expect: {flow: {bad: {error_code: timeout}}}"
    program.file("scenarios/one.yaml", f"{text}    {expected}\n")
    done = program.run("run", "one")
    assert done.code == 1
    assert "unavailable (failed: there is no program no-such-program" in done.stdout
    for empty in ("error_code: ''", "output: []"):
        program.file("scenarios/one.yaml", f"{text}    expect: {{flow: {{bad: {{{empty}}}}}}}\n")
        assert program.run("run", "one").code == 1
    program.file("scenarios/one.yaml", text.replace("flow.yaml", "none.yaml"))
    done = program.run("run", "one")
    assert (done.code, "scenarios/one.yaml:4" in done.stderr) == (2, True)


ERRORS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"id": "a", "needs": ["b"], "shell": ["x"]}, {"id": "b", "needs": ["a"], "shell": ["x"]}],
     "the steps need each other in a circle: a → b → a"),
    ([{"id": "a", "needs": ["c"], "shell": ["x"]}], "there is no step `c` in this list of steps"),
    ([{"id": "a", "shell": ["${steps.b.output}"]}], "there is no step `b` here"),
    ([{"id": "a", "shell": ["${steps.a.output}"]}], "the step `a` refers to itself"),
    ([{"id": "a", "shell": ["x"]}, {"id": "b", "shell": ["${steps.a.output.stdot}"]}],
     "the output of `a` (shell) has no `stdot`"),
    ([{"id": "a", "shell": ["x"]}, {"id": "b", "shell": ["${steps.a.result}"]}],
     "a step has no `result`"),
    ([{"id": "a", "shell": ["${inputs.day}"]}], "there is no input `day`"),
    ([{"id": "a", "shell": ["${item}"]}], "there is a `item` only within an `each`"),
    ([{"id": "a", "shell": ["${nothing}"]}], "`${nothing}` refers to nothing"),
    ([{"id": "a", "shell": ["x"]}, {"id": "a", "shell": ["x"]}], "there is another step `a`"),
    ([{"id": "a"}], "the step does nothing"),
    ([{"id": "a", "shell": ["x"], "http": {"url": "http://x"}}], "are two kinds of steps"),
    ([{"id": "a", "shell": ["x"], "team": "t"}], "`team` belongs to send"),
    ([{"id": "a", "shell": ["x"], "when": "1 +"}], "is no expression"),
    ([{"id": "a", "shell": ["x"], "when": "open('x')"}], "expressions have no function `open`"),
    ([{"id": "a", "shell": ["x"], "when": "x == 1"}], "there is no value `x`"),
    ([{"id": "a", "shell": ["x"], "when": "${inputs.x}"}], "an expression has no `${...}`"),
    ([{"id": "a", "agent": "nobody"}], "there is no agent `nobody`"),
    ([{"id": "a", "agent": "writer"}], "writer has no `query`"),
    ([{"id": "a", "send": "x", "team": "none"}], "there is no team `none`"),
    ([{"id": "a", "flow": "flow.yaml"}], "call each other in a circle: flow.yaml → flow.yaml"),
    ([{"id": "a", "flow": "none.yaml"}], "there is no file none.yaml"),
    ([{"id": "a", "flow": "../x.yaml"}], "`../x.yaml` is not in the workspace"),
    ([{"id": "a", "sql": {"database": "../x.db", "run": ["x"]}}], "is not in the workspace"),
    ([{"id": "a", "sql": {"database": "x.db", "run": ["select ${inputs.x}"]}}],
     "a statement has no placeholders"),
    ([{"id": "a", "sql": {"database": "x.db", "run": ["COMMIT"]}}], "ends the transaction"),
    ([{"id": "a", "sql": {"run": ["select 1"]}}], "name either `database` or `dsn`"),
    ([{"id": "a", "each": "x", "steps": [{"id": "b", "shell": ["x"]}]}], "must be a list"),
    ([{"id": "a", "group": [{"id": "b", "shell": ["x"]}]},
      {"id": "c", "shell": ["${steps.b.output}"]}], "there is no step `b` here"),
    ([{"id": "坏", "shell": ["x"]}], "steps[0].id: may have letters a to z, digits and `_` only"),
    ([{"id": "a-b", "shell": ["x"]}], "steps[0].id: may have letters a to z, digits and `_` only"),
    ([{"id": "a", "python": "work.py"}], "steps[0].python: must be FILE.py:FUNCTION"),
    ([{"id": "a", "shell": "echo x"}], 'steps[0].shell: must be a list of words: ["echo", "x"]'),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "problem"), ERRORS, ids=[problem for _, problem in ERRORS])
def test_mistakes_are_errors_on_load(
    program: Program, steps: list[dict[str, Any]], problem: str
) -> None:
    write(program, *steps)
    faults = check(program)
    assert any(problem in fault for fault in faults), faults
    assert all(int(fault.partition(":")[0]) > 0 for fault in faults)
    assert program.run("flow", "run", "flow.yaml").code == 2
    assert not (program.folder / "sessions").exists()


def test_flows_that_call_each_other(program: Program) -> None:
    write(program, {"id": "a", "flow": "other.yaml"})
    write(program, {"id": "b", "flow": "flow.yaml"}, name="other.yaml")
    done = program.run("flow", "check", "flow.yaml")
    assert "other.yaml:4" in done.stderr
    assert "in a circle: flow.yaml → other.yaml → flow.yaml" in done.stderr


def test_expressions_without_their_library(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "simpleeval", None)
    write(program, {"id": "a", "shell": echo("x")})
    assert run(program).code == 0
    write(program, {"id": "a", "when": "true", "shell": echo("x")})
    assert "expressions need the package simpleeval" in check(program)[0]


@pytest.mark.parametrize(
    "text",
    ["().__class__", "inputs.__class__.__mro__", "[].append", "'{}'.format(1)", "9 ** 9 ** 9",
     "'x' * 10 ** 9", "len.__self__", "(lambda: 1)()", "getattr(inputs, 'x')"],
)  # fmt: skip
def test_expressions_reach_nothing_of_python(text: str) -> None:
    with pytest.raises(flow_values.ValueMissing):
        flow_values.evaluate(text, {"inputs": {"x": 1}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_placeholder_alone_keeps_the_value(value: Any) -> None:
    values = {"steps": {"a": {"output": value}}}
    assert flow_values.fill({"x": ["${steps.a.output}"]}, values, {}) == {"x": [value]}


def test_a_drawing(program: Program) -> None:
    write(
        program,
        {"id": "a", "shell": ["echo", '"<b>"']},
        {"id": "loop", "each": [1], "needs": ["a"], "steps": [{"id": "b", "shell": ["x"]}]},
    )
    done = program.run("flow", "draw", "flow.yaml")
    done.check(
        stdout="flowchart TD\n"
        '  a["a: shell echo #quot;#lt;b#gt;#quot;"]\n'
        '  subgraph loop["loop: each [1]"]\n'
        '    loop__b["b: shell x"]\n'
        "  end\n"
        "  a --> loop\n"
    )
    page = program.run("flow", "draw", "flow.yaml", "--html").stdout
    assert page.startswith("<!DOCTYPE html>")
    assert "<b>" not in page.replace("<body>", "")
    assert not any(
        word in page for word in ("<script", "src=", "href=", "http:", "https:", "@import")
    )


def test_trust_names_programs_and_hosts(program: Program, server: Server) -> None:
    program.env["ARENA_TRUST"] = ""
    write(
        program,
        {"id": "a", "http": {"url": server.url, "headers": {"X": "${env:TOKEN}"}}},
        {"id": "b", "shell": ["touch", "made"]},
        {"id": "c", "python": "work.py:add", "inputs": {"rows": []}},
        {"id": "d", "sql": {"dsn": "postgresql://db.example/x", "run": ["select 1"]}},
        {"id": "e", "container": {"image": "alpine", "command": ["true"]}},
        {"id": "f", "shell": ["printenv"], "env": {"GIVEN": "${env:OWN}", "KEPT": "inherit"}},
        {"id": "g", "agent": "called", "message": "x"},
        {"id": "h", "send": "x", "team": "crew"},
        reflect={"agent": "judge"},
    )
    for agent in ("called", "sent", "judge"):
        program.program(agent, f"./{agent}.sh")
    program.file("agents/teams/crew.yaml", dump_yaml({"team": "crew", "members": ["sent"]}))
    done = run(program)
    assert done.code == 2
    for text in (
        "contact postgresql://db.example",
        "docker or podman run alpine true",
        "start printenv · with KEPT, OWN",
        *("called.sh", "sent.sh", "judge.sh"),
    ):
        assert text in done.stderr
    assert f"contact {server.url} · with TOKEN · for flow flow.yaml" in done.stderr
    assert "start touch made" in done.stderr
    assert "run work.py:add" in done.stderr
    assert server.heard == []


def test_the_flows_of_a_workspace_are_trusted_with_it(program: Program) -> None:
    program.env["ARENA_TRUST"] = ""
    write(program, {"id": "b", "shell": echo("x")}, name="flows/one.yaml")
    assert run(program, name="flows/one.yaml").code == 2
    assert "for flow flows/one.yaml" in program.run("trust").stdout
    assert run(program, name="flows/one.yaml").code == 0


def test_a_session_without_flows_imports_none_of_them(program: Program) -> None:
    imported = program.list_imported("send", "--session", "s", "hello @writer")
    assert [name for name in imported if "arena" in name and "flow" in name] == []
