"""`python: "checks.py:names"`: functions of one's own, what they see, and what they may answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checking import checked, faults, holds, stage_in, text_of
from product import python_checks
from program import Program
from stage import Stage, broken


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return stage_in(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def written(stage: Stage, body: str, name: str = "checks.py") -> Stage:
    path = stage.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body, encoding="utf-8")
    return stage


def test_true_holds_a_text_says_why_not_and_false_says_no(stage: Stage) -> None:
    written(
        stage,
        "def yes(reply, run): return True\n"
        "def why(reply, run): return f'{reply.agent} did not say 好: {reply}'\n"
        "def no(reply, run): return False\n",
    )
    results = checked(
        stage, "hi", *({"python": f"checks.py:{name}"} for name in ("yes", "why", "no"))
    )
    assert [(one.status, one.actual) for one in results] == [
        ("passed", 'dev in turn 1: "hi"'),
        ("failed", "dev in turn 1: dev did not say 好: hi"),
        ("failed", 'dev in turn 1: it returned False: "hi"'),
    ]
    assert results[1].expected == "checks.py:why returns True"
    assert holds(stage, "hi", {"not": {"python": "checks.py:no"}})
    assert holds(stage, "hi", {"any_of": [{"equals": "x"}, {"python": "checks.py:yes"}]})


def test_it_is_shown_the_reply_and_the_run(stage: Stage) -> None:
    written(
        stage,
        """
from __future__ import annotations
from dataclasses import dataclass
import json

@dataclass
class Kept:
    name: str

def seen(reply, run):
    return json.dumps({
        "reply": [reply.agent, reply.turn, reply.mentions, reply.usage.input_tokens],
        "structured": reply.structured,
        "attachments": [(name, path.read_text("utf-8")) for name, path in reply.attachments],
        "replies": [(one.agent, one.turn, str(one)) for one in run.replies],
        "messages": [(one.author, one.kind, one.text) for one in run.messages],
        "run": [run.turns, run.end, run.awaits],
        "workspace": (run.workspace / "checks.py").is_file(),
    }, ensure_ascii=False)
""",
    )
    stage.agent("qa").team(humans=["maya"], selection="none")
    first = {
        "say": "@qa 好",
        "structured": [{"type": "diff", "data": "-a"}],
        "attachments": [{"name": "a.md", "data": "# A"}],
        "usage": {"input_tokens": 7},
    }
    told = stage.play(
        json.dumps(
            {
                "scenario": "x",
                "profiles": {
                    "dev": {"adapter": {"type": "scripted", "replies": [first]}},
                    "qa": {"adapter": {"type": "scripted", "replies": ["@maya?"]}},
                },
                "steps": [
                    {"system": "night"},
                    {"send": "@dev go"},
                ],
                "expect": {"replies": {"dev": [{"python": "checks.py:seen"}]}},
            }
        )
    )
    (result,) = broken(told)
    assert json.loads(result.actual.removeprefix("dev in turn 1: ")) == {
        "reply": ["dev", 1, ["qa"], 7],
        "structured": [["diff", "-a"]],
        "attachments": [["a.md", "# A"]],
        "replies": [["dev", 1, "@qa 好"], ["qa", 2, "@maya?"]],
        "messages": [
            ["system", "system", "night"],
            ["user", "human", "@dev go"],
            ["dev", "agent", "@qa 好"],
            ["qa", "agent", "@maya?"],
        ],
        "run": [2, "awaiting_human", ["maya"]],
        "workspace": True,
    }


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("def f(reply, run):\n    x = {}\n    return x['好']\n", "checks.py:3: KeyError: '好'"),
        ("import json\ndef f(reply, run):\n    json.loads('{')\n", "checks.py:3: JSONDecodeError"),
        ("import sys\ndef f(reply, run): sys.exit(4)\n", "checks.py:2: SystemExit: 4"),
        ("def f(reply, run): ...\n", "it returned None; return True, or a text"),
        ("def f(reply, run): return 1\n", "it returned 1;"),
        ("def f(reply, run): return ' '\n", "it returned an empty text;"),
        ("def f(reply, run):\n    yield True\n", "it returned a generator;"),
        (
            "async def a(reply, run): return True\nf = lambda reply, run: a(reply, run)\n",
            "it returned a coroutine;",
        ),
        ("f = lambda reply: True\n", "TypeError: <lambda>() takes 1 positional"),
        (
            "class E(Exception):\n    def __str__(self): raise self\ndef f(reply, run): raise E\n",
            "checks.py:3: E",
        ),
        ("def f(reply, run): return True\n1 / 0\n", "checks.py:2: ZeroDivisionError"),
        (
            "import nothing_of_that_name\ndef f(reply, run): return True\n",
            "checks.py:1: ModuleNotFoundError",
        ),
        ("f = 3\n", "AttributeError: there is no function `f` in checks.py"),
    ],
)
def test_what_gives_no_verdict_is_an_error_and_never_a_pass(
    stage: Stage, body: str, what: str
) -> None:
    written(stage, body)
    for check in ({"python": "checks.py:f"}, {"not": {"python": "checks.py:f"}}):
        (result,) = checked(stage, "hi", check)
        assert (result.status, result.judge) == ("error", None), body
        assert result.expected == "checks.py:f returns True"
        assert result.actual.startswith(what)


def test_what_says_nothing_is_told_by_its_name(stage: Stage) -> None:
    written(stage, "import sys\ndef f(reply, run): sys.exit()\n")
    (result,) = checked(stage, "hi", {"python": "checks.py:f"})
    assert result.actual == "checks.py:2: SystemExit"


def test_a_message_of_the_system_can_be_checked(stage: Stage) -> None:
    written(stage, "def f(reply, run): return f'{reply.agent} {reply.turn} {reply}'\n")
    told = stage.play("""
scenario: x
steps:
  - system: 九点
  - check: {system: [{python: "checks.py:f"}]}
""")
    (result,) = broken(told)
    assert (result.status, result.actual) == ("failed", "a system message: system 0 九点")


def test_one_that_never_returns_holds_nothing_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_checks, "LIMIT_S", 0.05)
    written(
        stage,
        "import threading\n"
        "def f(reply, run):\n"
        "    threading.Event().wait()\n"
        "def g(reply, run):\n"
        "    return True\n",
    )
    (hanging,) = checked(stage, "hi", {"python": "checks.py:f"})
    assert hanging.status == "error"
    assert "did not return within 0.05 s" in hanging.actual
    monkeypatch.setattr(python_checks, "LIMIT_S", 60.0)
    (result,) = checked(stage, "hi", {"python": "checks.py:g"})
    assert result.status == "passed"


def test_a_reason_is_shown_whatever_is_in_it(program: Program) -> None:
    program.file("checks.py", "def f(reply, run): return '\\ud800' + 'x' * 5000\n")
    program.agent("dev")
    expect = {"replies": {"dev": [{"python": "checks.py:f"}]}}
    program.file("scenarios/one.yaml", text_of(["hi"], expect))
    (told,) = json.loads(program.run("run", "one", "--json").stdout)["scenarios"]
    (check,) = told["steps"][0]["checks"]
    assert check["actual"] == f"dev in turn 1: \ufffd{'x' * 1999}…"


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("checks.py", "write the file and the function in it"),
        ("checks:f", "write the file and the function in it"),
        ("checks.py:1f", "write the file and the function in it"),
        ("nothing.py:f", "there is no file `nothing.py`"),
        ("checks.py:g", "there is no function `g` in checks.py"),
        ("checks.py:later", "checks.py:4: `later` is async, which a check cannot be"),
        ("checks.py:one", "checks.py:6: `one` does not take a reply and a run"),
        ("checks.py:three", "checks.py:8: `three` does not take a reply and a run"),
        ("checks.py:named", "checks.py:9: `named` does not take a reply and a run"),
        ("torn.py:f", "torn.py:2: "),
        ("outside.py:f", "outside.py:1: 'return' outside function"),
    ],
)
def test_what_can_be_known_is_told_before_anything_runs(
    stage: Stage, target: str, what: str
) -> None:
    body = (
        "1 / 0  # nothing of it is run on load\n"
        "def f(reply, run): return True\n"
        "\n"
        "async def later(reply, run): return True\n"
        "\n"
        "def one(reply): return True\n"
        "\n"
        "def three(reply, run, more): return True\n"
        "def named(reply, run, *, more): return True\n"
    )
    written(written(stage, body), "def f(reply, run):\n    return (\n", "torn.py")
    written(stage, "return True\n", "outside.py")
    (fault,) = faults(stage, {"python": target})
    assert fault.startswith("steps[0].expect.replies.dev[0].python: ")
    assert what in fault


def test_a_misspelt_function_is_told_with_the_nearest_and_other_forms_are_taken(
    stage: Stage,
) -> None:
    written(stage, "def names_modules(reply, run): return True\n")
    with pytest.raises(Exception, match="did you mean `names_modules`"):
        stage.load(text_of(["hi"], {"replies": {"dev": [{"python": "checks.py:name_modules"}]}}))
    written(
        stage,
        "from helpers_of_mine import there, Has\n"
        "a = lambda reply, run: True\n"
        "b = Has('h')\n"
        "def c(*both): return len(both) == 2\n"
        "def d(reply, run, least=1): return True\n"
        "if True:\n"
        "    def e(reply, run): return True\n",
    )
    written(
        stage,
        "class Has:\n"
        "    def __init__(self, part): self.part = part\n"
        "    def __call__(self, reply, run): return self.part in reply.text\n"
        "def there(reply, run): return bool(run.replies)\n",
        "helpers_of_mine.py",
    )
    for name in ("there", "a", "b", "c", "d", "e"):
        assert holds(stage, "hi", {"python": f"checks.py:{name}"}), name


def test_files_are_found_beside_the_scenario_and_of_one_name_are_two(stage: Stage) -> None:
    written(stage, "def f(reply, run): return True\n", "scenarios/own.py")
    assert holds(stage, "hi", {"python": "own.py:f"})
    for folder, answer in (("a", "True"), ("b", "'of b'")):
        written(stage, f"def f(reply, run): return {answer}\n", f"{folder}/same.py")
    assert holds(stage, "hi", {"python": "a/same.py:f"})
    assert not holds(stage, "hi", {"python": "b/same.py:f"})
    written(stage, "def f(reply, run): return 'changed'\n", "a/same.py")
    assert not holds(stage, "hi", {"python": "a/same.py:f"})


def test_what_a_check_prints_is_no_part_of_the_result(program: Program) -> None:
    program.file("checks.py", "def f(reply, run):\n    print('seen')\n    return True\n")
    program.agent("dev")
    expect = {"replies": {"dev": [{"python": "checks.py:f"}]}}
    program.file("scenarios/one.yaml", text_of(["hi"], expect))
    done = program.run("run", "one", "--json")
    assert json.loads(done.stdout)["passed"] == 1
    assert "seen" in done.stderr
    assert done.code == 0
