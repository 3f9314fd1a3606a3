"""Notes that agents write themselves: blocks in a reply, and structured parts."""

from __future__ import annotations

from typing import Any

import pytest
from product import Draft, ExtractedDrafts, StructuredContent, extraction
from product import notes_model as model


def written(content: str = "", *parts: tuple[str, Any]) -> ExtractedDrafts:
    structured = [StructuredContent(type=kind, data=data) for kind, data in parts]  # type: ignore[arg-type]  # ours
    return extraction.extract_from_blocks(content, structured, by="dev", source="m7")


def draft(kind: Any, title: str, **fields: Any) -> Draft:
    return Draft(kind, title, by="dev", source="m7", **fields)


WHOLE = """\
Here is what we settled.

```note
kind: decision
title: Decision: sessions live in PostgreSQL
tags: [storage, "auth"]
importance: 0.9
owner: @dev

Redis would lose them at a restart.

- it has no backup
```
That is all.
"""


def test_a_block_is_a_note_with_all_that_it_says() -> None:
    assert written(WHOLE) == ExtractedDrafts(
        [
            draft(
                "decision",
                "Decision: sessions live in PostgreSQL",
                body="Redis would lose them at a restart.\n\n- it has no backup",
                importance=0.9,
                tags=("storage", "auth"),
                owner="dev",
            )
        ],
        [],
    )


@pytest.mark.parametrize(
    "content",
    [
        "```note\nkind: pit\ntitle: T\n---\nB\n```",
        "~~~ NOTE\n---\nKind: Pit\nTitle: 'T'\n---\n\nB\n~~~",
        "````note\n\nkind：pit\ntitle： T\nB\n````",
        "- so:\n  ```note\n  kind: pit\n  title: T\n\n  B\n  ```",
        "```note\r\nkind: pit\r\ntitle: T\r\n\r\nB\r\n```\r\n",
        "```note\nkind: pit\ntitle: T\n\nB",
    ],
)
def test_the_ways_to_write_a_block(content: str) -> None:
    assert written(content) == ExtractedDrafts([draft("pit", "T", body="B")], [])


def test_a_block_may_hold_a_fence_that_is_shorter() -> None:
    content = "````note\nkind: solution\ntitle: T\n\n```sh\nmake\n```\n````"
    assert written(content).drafts == [draft("solution", "T", body="```sh\nmake\n```")]


@pytest.mark.parametrize(
    "content",
    [
        "> ```note\n> kind: pit\n> title: T\n> ```",
        "````markdown\n```note\nkind: pit\ntitle: T\n```\n````",
        "so ```note\nkind: pit\ntitle: T\n``` it is",
        "```notes\nkind: pit\ntitle: T\n```",
        "```note taking\nkind: pit\ntitle: T\n```",
        "note\nkind: pit\ntitle: T",
    ],
)
def test_what_is_no_block_is_no_note(content: str) -> None:
    assert written(content) == ExtractedDrafts([], [])


def test_tags_may_be_a_list_below_their_key() -> None:
    content = "```note\nkind: pit\ntags:\n- one\n- two、three\ntitle: T\n```"
    assert written(content).drafts == [draft("pit", "T", tags=("one", "two", "three"))]


def test_nobody_approves_what_they_wrote_themselves() -> None:
    content = "```note\nstatus: approved\nid: decision-x\nkind: decision\ntitle: T\nby: boss\n```"
    assert written(content).drafts == [draft("decision", "T")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("```note\nkind: pit\n\ntext\n```", "a note has no title: write `title: ...`"),
        ("```note\n```", "a note has no title"),
        ("```note\ntitle: T\n```", "the note 'T' has no kind: known: decision, requirement"),
        (
            "```note\nkind: descision\ntitle: T\n```",
            "the note 'T' has the unknown kind `descision`: did you mean `decision`?",
        ),
        ("```note\nkind: \x1b[31m\ntitle: T\n```", "unknown kind `\\x1b[31m`"),
        ("```note\n- kind\n- title\n```", "a note has no title"),
    ],
)
def test_a_block_that_is_no_note_is_told_of(content: str, problem: str) -> None:
    found = written(content)
    assert found.drafts == []
    assert len(found.problems) == 1
    assert problem in found.problems[0]


def test_what_is_too_long_is_cut_and_told_of() -> None:
    found = written(f"```note\nkind: pit\ntitle: {'长' * 300}\n\n{'文' * 30_000}\n```")
    (one,) = found.drafts
    assert one.title == "长" * model.LONGEST_TITLE
    assert one.body == "文" * (extraction.LONGEST_BODY // 3)
    assert [what.rpartition("' ")[2] for what in found.problems] == [
        "was cut at 200 characters",
        "was cut at 65536 bytes",
    ]


def test_a_wrong_importance_does_not_lose_the_note() -> None:
    for said in ("high", "7", "nan"):
        found = written(f"```note\nkind: pit\ntitle: T\nimportance: {said}\n```")
        assert found.drafts == [draft("pit", "T")]
        assert "is no number from 0 to 1" in found.problems[0]


def test_one_message_makes_so_many_notes_at_most() -> None:
    one = "```note\nkind: pit\ntitle: T{}\n```\n"
    found = written("".join(one.format(number) for number in range(12)))
    assert [draft.title for draft in found.drafts] == [f"T{number}" for number in range(8)]
    assert found.problems == ["more than 8 notes in one message: the rest was left out"]
    assert written(one.format(1) * 3) == ExtractedDrafts([draft("pit", "T1")], [])


def test_structured_parts_are_notes_too() -> None:
    note = {
        "kind": "next action",
        "title": " run\nthe load test ",
        "text": "on staging",
        "tags": ["load", 7],
        "status": "approved",
        "owner": "ops",
    }
    found = written("", ("note", note), ("note", [{"kind": "pit", "title": "T"}, "no", None]))
    assert found.drafts == [
        draft(
            "next_action", "run the load test", body="on staging", tags=("load", "7"), owner="ops"
        ),
        draft("pit", "T"),
    ]
    assert len(found.problems) == 2


@pytest.mark.parametrize(
    "data",
    [
        ["write it", {"title": "read it", "assignee": "ops"}],
        {"tasks": ["write it", {"task": "read it", "owner": "ops"}, {"title": "x", "done": True}]},
        {"items": [{"text": "write it", "subtasks": [{"name": "read it", "who": "@ops"}]}]},
        {
            "title": "Plan",
            "todos": [
                {"title": "write it", "status": "open"},
                {"title": "y", "status": "已完成"},
                {"title": "read it", "state": "in progress", "agent": "ops"},
            ],
        },
    ],
)
def test_open_tasks_of_a_list_are_notes(data: Any) -> None:
    assert written("", ("task_list", data)) == ExtractedDrafts(
        [draft("task", "write it"), draft("task", "read it", owner="ops")], []
    )


@pytest.mark.parametrize("data", [None, 3, "write it", {}, {"tasks": 7}, [None, 3, {"done": 1}]])
def test_what_is_no_list_of_tasks_is_left_alone(data: Any) -> None:
    assert written("", ("task_list", data), ("code_block", "title: x")) == ExtractedDrafts([], [])


def test_tasks_that_are_nested_without_end_are_read_so_deep_only() -> None:
    tasks: Any = ["the last"]
    for _ in range(60):
        tasks = [{"done": True, "title": "x"}, {"tasks": tasks}]
    assert written("", ("task_list", tasks)) == ExtractedDrafts([], [])


def test_an_agent_can_write_what_it_is_told_to() -> None:
    assert written("```note\nkind: pit\ntitle: T\ntags: a\nowner: dev\n\nB\n```").drafts
    for word in ("```note", "kind", "title", "tags", "owner", "next_action"):
        assert word in extraction.HOW
