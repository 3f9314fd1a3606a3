"""`given: {transcript: FILE, until: SEQ}`: a scenario starts from what was said in a session."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from past_sessions import ends, events, talk
from product import Event, FileFaults, MessageEvent, ReplyStarted, Runner, ScenarioResult, doctor
from stage import Stage, printed

ASK = "@架构师 @tester 请拆解：做一个登录页"
ASK_AGAIN = "@架构师 继续"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two agents that say, attach and structure something, one that fails, and a human."""
    plan = {
        "when": {"call": 1},
        "say": "两步：认证、审计。@tester 请测",
        "structured": [{"type": "task_list", "data": {"tasks": [{"title": "登录"}]}}],
        "attachments": [
            {"type": "json", "name": "计划.json", "data": {"days": 5}},
            {"type": "image", "name": "a.png", "data": "iVBORw0KGgo="},
        ],
    }
    stage = Stage(tmp_path).agent("architect", plan, "第三步。@developer @tester", name="架构师")
    stage.agent("tester", {"when": {"call": 1}, "fail": "error"}, "三组用例", {"say": "再来一组"})
    return stage.agent("developer", {"say": "好"}).team(humans=["maya"], selection="none")


def copied(stage: Stage, name: str = "s", *, attachments: bool = False) -> Path:
    """The transcript of a session beside the scenarios, as `past.jsonl`."""
    target = stage.folder / "scenarios" / "past.jsonl"
    target.parent.mkdir(exist_ok=True)
    shutil.copy(stage.folder / "sessions" / name / "transcript.jsonl", target)
    if attachments:
        shutil.copytree(
            stage.folder / "sessions" / name / "attachments", target.parent / "attachments"
        )
    return target


def starting(given: str, *steps: str) -> str:
    lines = "".join(f"  - {step}\n" for step in steps or ('send: "@架构师 继续"',))
    return f"scenario: goes on\ngiven: {given}\nsteps:\n{lines}"


def played(stage: Stage, text: str) -> tuple[ScenarioResult, list[Event]]:
    """The result of a scenario, and its session's events."""
    (result,) = stage.play_all(text, keep="all")
    return result, events(stage, result.sessions[0])


def planted(found: list[Event]) -> list[MessageEvent]:
    return [event for event in found if isinstance(event, MessageEvent) and event.planted]


def hashes(found: list[Event], after: int = 0) -> dict[tuple[str, int], str]:
    """What each agent was shown, by agent and turn of what comes after an event."""
    started = [event for event in found if isinstance(event, ReplyStarted) and event.seq > after]
    first = started[0].turn
    return {(event.agent, event.turn - first): event.input_hash for event in started}


def faults(stage: Stage, *texts: str) -> list[str]:
    with pytest.raises(FileFaults) as raised:
        stage.load(*texts)
    return [f"{f.file}:{f.line}: {f.field}: {f.what}" for f in raised.value.faults]


def test_agents_are_shown_what_they_were_shown_then(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "说明.txt").write_text("每页五十行", encoding="utf-8")
    talk(stage, ASK, author="maya", files=[tmp_path / "说明.txt"])
    whole = talk(stage, ASK_AGAIN)
    copied(stage, attachments=True)
    shutil.rmtree(stage.folder / "sessions")
    # The script's first entries were used up by then.
    stage.agent("architect", "第三步。@developer @tester", name="架构师")
    stage.agent("tester", {"say": "再来一组"})
    first_chain = ends(whole)[0]
    result, again = played(stage, starting(f"{{transcript: past.jsonl, until: {first_chain}}}"))
    assert result.status == "passed", printed(result)
    assert [(turn, agent) for agent, turn in hashes(again)] == [
        (0, "architect"),
        (1, "developer"),
        (1, "tester"),
    ]
    assert hashes(again) == hashes(whole, after=first_chain)


def test_the_past_is_what_others_were_shown(stage: Stage) -> None:
    talk(stage, ASK, author="maya")
    copied(stage, attachments=True)
    _, again = played(stage, starting("{transcript: past.jsonl}"))
    found = [event.message for event in planted(again)]
    assert [(one.author_id, one.author_name, one.author_type, one.mentions) for one in found] == [
        ("maya", "Maya", "human", ["architect", "tester"]),
        ("architect", "架构师", "agent", ["tester"]),
    ]
    plan, picture = found[1].attachments
    assert (plan.name, picture.name) == ("计划.json", "a.png")
    assert json.loads((stage.folder / str(plan.path)).read_bytes()) == {"days": 5}
    assert (stage.folder / str(picture.path)).read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert found[1].structured[0].data == {"tasks": [{"title": "登录"}]}


def test_a_content_that_is_gone_is_told_of_as_gone(stage: Stage) -> None:
    talk(stage, ASK)
    whole = talk(stage, ASK_AGAIN)
    copied(stage)
    shutil.rmtree(stage.folder / "sessions")
    stage.agent("architect", "第三步。@developer @tester", name="架构师")
    stage.agent("tester", {"say": "再来一组"})
    until = ends(whole)[0]
    _, again = played(stage, starting(f"{{transcript: past.jsonl, until: {until}}}"))
    parts = planted(again)[1].message.attachments
    assert [(part.name, part.path, part.data) for part in parts] == [
        ("计划.json", None, None),
        ("a.png", None, None),
    ]
    assert hashes(again) == hashes(whole, after=until)


def test_a_content_that_is_another_now_is_a_fault(stage: Stage) -> None:
    talk(stage, ASK)
    path = copied(stage, attachments=True)
    (plan,) = (path.parent / "attachments").rglob("计划.json")
    plan.write_text("{}")
    (told,) = faults(stage, starting("{transcript: past.jsonl}"))
    assert told.startswith("scenarios/s0.yaml:2: given.transcript: ")
    assert told.endswith("计划.json: differs from the file attached to m6 as 计划.json")


def test_a_path_in_a_transcript_leads_nowhere_else(stage: Stage) -> None:
    talk(stage, ASK)
    path = copied(stage)
    (stage.folder.parent / "secret.txt").write_text("password")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for one in lines:
        message = one.get("message")
        for part in message["attachments"] if isinstance(message, dict) else ():
            part["path"] = "../secret.txt"
            part["sha256"] = None
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    _, again = played(stage, starting("{transcript: past.jsonl}"))
    assert [part.path for part in planted(again)[1].message.attachments] == [None, None]
    (stage.folder.parent / "secret.txt").unlink()


def test_until_cuts_a_chain_where_it_says(stage: Stage) -> None:
    found = talk(stage, ASK)
    copied(stage, attachments=True)
    replies = [event for event in found if event.type == "reply_finished"]
    before = min(event.seq for event in replies) - 1
    _, again = played(stage, starting(f"{{transcript: past.jsonl, until: {before}}}"))
    assert [event.message.author_id for event in planted(again)] == ["user"]
    said = next(event.seq for event in replies if event.message)  # type: ignore[attr-defined]  # they are replies
    _, again = played(stage, starting(f"{{transcript: past.jsonl, until: {said}}}"))
    assert [event.message.author_id for event in planted(again)] == ["user", "architect"]


def test_replies_stand_in_the_order_of_call_not_of_arrival(stage: Stage) -> None:
    for name, delay in (("slow", 0.05), ("quick", 0)):
        stage.agent(name, {"say": f"I am {name}", "delay_s": delay})
    stage.team()
    found = talk(stage, "@slow @quick hi")
    arrived = [event.agent for event in found if event.type == "reply_finished"]  # type: ignore[attr-defined]  # they are replies
    assert arrived == ["quick", "slow"]
    copied(stage)
    _, again = played(stage, starting("{transcript: past.jsonl}", 'send: "@quick and?"'))
    assert [event.message.author_id for event in planted(again)] == ["user", "slow", "quick"]


def test_it_stands_after_fill_and_before_messages(stage: Stage) -> None:
    talk(stage, ASK)
    copied(stage)
    given = "{fill: {messages: 3}, transcript: past.jsonl, messages: [{maya: 早}]}"
    _, again = played(stage, starting(given))
    texts = [event.message.content for event in planted(again)]
    assert len(texts) == 6
    assert texts[3] == ASK
    assert texts[-1] == "早"


def test_authors_that_are_gone_keep_their_names(stage: Stage) -> None:
    talk(stage, ASK, author="maya")
    copied(stage)
    (stage.folder / "agents" / "architect.yaml").unlink()
    stage.team()
    result, again = played(stage, starting("{transcript: past.jsonl}", 'send: "@developer 请看"'))
    assert result.status == "passed", printed(result)
    assert [event.message.author_name for event in planted(again)] == ["Maya", "架构师"]


def test_the_notice_of_a_limit_is_part_of_the_past(stage: Stage) -> None:
    stage.agent("tester", {"say": "@developer 你来"}).agent("developer", {"say": "@tester 你来"})
    stage.team(chain_depth_limit=1, selection="none")
    found = talk(stage, "@tester 开始")
    assert found[-1].end == "chain_limit"  # type: ignore[attr-defined]  # it is the chain's end
    copied(stage)
    _, again = played(stage, starting("{transcript: past.jsonl}", 'send: "@tester 停"'))
    notice = planted(again)[-1].message
    assert (notice.author_type, notice.kind) == ("system", "system")
    assert again[-1].end == "chain_limit"  # type: ignore[attr-defined]  # it is the chain's end


def test_cases_may_start_from_different_places(stage: Stage) -> None:
    found = talk(stage, ASK, ASK_AGAIN)
    copied(stage)
    first, second = ends(found)
    text = f"""scenario: goes on
cases:
  - {{id: early, vars: {{until: {first}}}}}
  - {{id: late, vars: {{until: {second}}}}}
given: {{transcript: past.jsonl, until: "${{vars.until}}"}}
steps: [{{send: "@developer hi"}}]
"""
    early, late = stage.load(text)
    assert (len(early.past), len(late.past)) == (2, 6)


def test_a_line_end_that_an_editor_took_loses_nothing(stage: Stage) -> None:
    found = talk(stage, ASK)
    path = copied(stage)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    (one,) = stage.load(starting(f"{{transcript: past.jsonl, until: {found[-1].seq}}}"))
    assert len(one.past) == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "past.jsonl is empty"),
        (b"\n\n", "past.jsonl is not a transcript of a session"),
        (b"hello\nworld\n", "past.jsonl is not a transcript of a session"),
        ("{}".encode("utf-16"), "past.jsonl is not a transcript of a session"),
        (b'{"type":"recording","version":1}\n', "past.jsonl is not a transcript of a session"),
        (
            b'{"seq":1,"ts":"t","type":"session","version":9,"session":"s"}\n',
            "past.jsonl is of version 9; this arena reads version 1",
        ),
        (
            b'{"seq":1,"ts":"t","type":"session","session":"s"}\n',
            "no message in past.jsonl",
        ),
    ],
)
def test_a_file_that_is_no_past(stage: Stage, content: bytes, told: str) -> None:
    path = stage.folder / "scenarios" / "past.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    text = starting("{transcript: past.jsonl}")
    assert faults(stage, text) == [f"scenarios/s0.yaml:2: given.transcript: {told}"]


def test_a_line_that_cannot_be_read_is_a_fault_where_it_counts(stage: Stage) -> None:
    found = talk(stage, ASK)
    path = copied(stage)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-3] = b"not a line\n"
    path.write_bytes(b"".join(lines[:-1]) + b'{"seq":99,"to')
    number = len(lines) - 2
    wanted = (
        f"scenarios/s0.yaml:2: given.transcript: past.jsonl:{number} cannot be read: not JSON "
        "(and 1 more such lines)"
    )
    assert faults(stage, starting("{transcript: past.jsonl}")) == [wanted]
    until = found[-4].seq
    assert len(stage.load(starting(f"{{transcript: past.jsonl, until: {until}}}"))[0].past) == 2


def test_two_records_on_one_line_are_both_read(stage: Stage) -> None:
    found = talk(stage, ASK)
    path = copied(stage)
    path.write_bytes(path.read_bytes().replace(b"\n", b" ", 1))
    (one,) = stage.load(starting(f"{{transcript: past.jsonl, until: {found[-1].seq}}}"))
    assert len(one.past) == 2


def test_what_is_planted_is_redacted(stage: Stage) -> None:
    talk(stage, ASK)
    copied(stage, attachments=True)
    scenarios = stage.load(starting("{transcript: past.jsonl}", 'send: "@developer hi"'))
    place = replace(stage.place(), redact=["登录", "days"])
    told: list[ScenarioResult] = []
    asyncio.run(Runner(scenarios, place, told.append, keep="all").run())
    found = [event.message for event in planted(events(stage, told[0].sessions[0]))]
    assert found[0].content == "@架构师 @tester 请拆解：做一个[redacted]页"
    assert found[1].structured[0].data == {"tasks": [{"title": "[redacted]"}]}
    plan = found[1].attachments[0]
    assert "days" not in (stage.folder / str(plan.path)).read_text(encoding="utf-8")


def test_what_comes_after_until_is_not_looked_at(stage: Stage) -> None:
    found = talk(stage, ASK)
    with copied(stage).open("a") as file:
        file.write('{"seq":99,"ts":"t","type":"session","version":9,"session":"s"}\n')
    (told,) = faults(stage, starting("{transcript: past.jsonl}"))
    assert told.endswith("past.jsonl is of version 9; this arena reads version 1")
    assert len(stage.load(starting(f"{{transcript: past.jsonl, until: {found[-1].seq}}}"))) == 1


def test_what_is_gone_is_no_fault_of_the_session_that_starts_from_it(stage: Stage) -> None:
    talk(stage, ASK)
    copied(stage)
    shutil.rmtree(stage.folder / "sessions")
    _, again = played(stage, starting("{transcript: past.jsonl}"))
    transcript = stage.folder / "sessions" / again[0].session / "transcript.jsonl"  # type: ignore[attr-defined]  # it is the session's event
    assert doctor.examine(transcript, stage.folder).problems == []
    text = transcript.read_text(encoding="utf-8")
    transcript.write_text(text.replace('"planted":true', '"planted":false'), encoding="utf-8")
    told = doctor.examine(transcript, stage.folder).problems
    assert [one.partition(": ")[2] for one in told] == [
        "attachment 计划.json: it names no file",
        "attachment a.png: it names no file",
    ]


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ("{transcript: gone.jsonl}", "given.transcript", "there is no file `gone.jsonl`"),
        ("{transcript: past.jsonl, until: 99}", "given.until", "past.jsonl has no event 99: its"),
        ("{transcript: past.jsonl, until: 1}", "given.until", "no message in past.jsonl up"),
        ("{transcript: past.jsonl, until: 0}", "given.until", "must be"),
        ("{transcript: past.jsonl, until: m4}", "given.until", "must be"),
        ("{until: 4}", "given", "`until` requires `transcript`"),
    ],
)
def test_a_place_that_there_is_not(stage: Stage, given: str, field: str, told: str) -> None:
    talk(stage, ASK)
    copied(stage)
    (found,) = faults(stage, starting(given))
    assert found.startswith(f"scenarios/s0.yaml:2: {field}: {told}")


@pytest.mark.parametrize(
    ("ignore", "told"),
    [
        (r"[{regex: '('}]", "ignore[0].regex: not a regular expression: "),
        (r"[{regex: 'x*'}]", "ignore[0].regex: it matches the empty text"),
        (r"[{regex: ''}]", "ignore[0].regex: an empty text matches every text"),
        (r"[{regexp: x}]", "ignore[0].regexp: unknown key"),
        (r"['x']", "ignore[0]: must be a mapping"),
    ],
)
def test_what_varies_in_a_prompt_is_checked_on_load(stage: Stage, ignore: str, told: str) -> None:
    text = f"scenario: x\nignore: {ignore}\nsteps: [{{send: hi}}]\n"
    assert faults(stage, text)[0].startswith(f"scenarios/s0.yaml:2: {told}")


def test_what_varies_in_a_prompt_may_be_included(stage: Stage) -> None:
    (stage.folder / "scenarios").mkdir(exist_ok=True)
    (stage.folder / "scenarios" / "clock.yaml").write_text(r"ignore: [{regex: '\d{4}-\d\d-\d\d'}]")
    own = "scenario: x\ninclude: clock.yaml\nsteps: [{send: hi}]\n"
    (one,) = stage.load(own)
    assert [ignored.regex for ignored in one.file.ignore] == [r"\d{4}-\d\d-\d\d"]
    (other,) = stage.load(own + r"ignore: [{regex: '\d\d:\d\d'}]")
    assert [ignored.regex for ignored in other.file.ignore] == [r"\d\d:\d\d"]
