"""What an agent is shown, layer by layer: the newest, what is pinned, the summary, the notes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from product import (
    NOTHING,
    AgentProfile,
    Chat,
    ContextSettings,
    History,
    Member,
    Memory,
    Message,
    Note,
    Pinned,
    RecalledNote,
    Team,
    hashing,
    history,
    layers,
    summary,
    window,
)
from product import context_render as render


def message(number: int, author: str = "maya", text: str = "") -> Message:
    return Message(
        id=f"m{number}",
        author_id=author,
        author_name=author,
        author_type="human" if author == "maya" else "agent",
        content=text or f"message {number} says 第{number}条",
        timestamp="2026-11-28T09:30:00.000Z",
    )


def a_note(number: int, **fields: Any) -> Note:
    given_fields = {
        "id": f"decision-{number}",
        "file": f"decision-{number}.md",
        "title": f"We decided the point {number}",
        "kind": "decision",
        "source": f"m{number}",
        **fields,
    }
    return Note.model_validate(given_fields)


def pinned(number: int, text: str = "") -> Pinned:
    shown = history.shown_to_others(message(number, "architect", text))
    return Pinned(shown, a_note(number))


def a_head(window_tokens: int = 32_000, role: str = "") -> window.Head:
    context = ContextSettings(window_tokens=window_tokens, reserved_output_tokens=0)
    profile = AgentProfile(agent_id="tester", adapter={"type": "scripted"}, context=context)
    member = Member(profile, "Tester", role_prompt=role)
    return window.Head.of(Team(None, (member,)), member)


def a_history(count: int, text: str = "") -> History:
    told = History()
    for number in range(1, count + 1):
        told.append(message(number, text=text))
    return told


def build(
    told: History,
    memory: Memory = NOTHING,
    *,
    head: window.Head | None = None,
    trigger: str = "",
    **limits: Any,
) -> window.Built:
    last = trigger or told.after()[-1].id
    call = window.CallContext("s", "t1", 1, 1, [last], "must_reply")
    return window.build(head or a_head(), told, call, memory, window.Limits(**limits))


def ids(built: window.Built) -> list[str]:
    return [one.id for one in built.input.messages]


def test_what_is_summarised_is_shown_as_its_summary_before_the_messages() -> None:
    memory = Memory("Core goal: a shop", upto=6, summarised=6)
    built = build(a_history(10), memory)
    assert ids(built) == ["m7", "m8", "m9", "m10"]
    _, prompt = render.render(built.input)
    assert prompt.index("> Core goal: a shop") < prompt.index("message 7")
    assert "message 6" not in prompt


def test_a_summary_that_leaves_no_room_for_messages_is_shortened() -> None:
    facts = "\n".join(
        f"- The gateway {number} listens on port {4000 + number}" for number in range(60)
    )
    text = f"# Core goal\n- A shop\n# Key decisions\n- SQLite\n# Important facts\n{facts}"
    built = build(a_history(60), Memory(text, 6, 6), head=a_head(1000))
    assert built.chosen.has_summary
    shown = built.input.memory_context or ""
    assert "- A shop" in shown
    assert "- SQLite" in shown
    assert "port 4059" in shown
    assert "port 4000" not in shown
    assert ids(built)[-1] == "m60"
    assert "m6" not in ids(built)
    assert built.input_tokens <= 1000


def test_a_summary_without_items_that_is_too_long_is_left_out() -> None:
    memory = Memory("Core goal: a shop. " * 400, upto=6, summarised=6)
    built = build(a_history(10), memory, head=a_head(1000))
    assert not built.chosen.has_summary
    assert built.input.memory_context is None
    assert ids(built) == [f"m{number}" for number in range(1, 11)]


def test_pinned_messages_are_shown_whole_however_old() -> None:
    memory = Memory("Core goal", 900, 900, pinned=[pinned(2), pinned(700)])
    told = a_history(1000)
    built = build(told, memory, head=a_head(1500))
    assert ids(built)[:2] == ["m2", "m700"]
    assert len(set(ids(built))) == len(ids(built))
    assert ids(built)[-1] == "m1000"


def test_pinned_messages_that_the_history_no_longer_has_are_shown_too() -> None:
    told = History(2_000)
    for number in range(1, 5001):
        told.append(message(number))
    assert told.message("m3") is None
    built = build(told, Memory(pinned=[pinned(3, "word " * 300)]), head=a_head(1500))
    assert ids(built)[0] == "m3"
    assert built.input_tokens <= 1500
    assert built.input.input_hash == hashing.input_digest(built.input)


def test_of_pinned_messages_that_overflow_the_newest_stay_and_the_rest_are_titles() -> None:
    text = "A decision with all of its reasons. " * 30
    memory = Memory(pinned=[pinned(number, text) for number in range(1, 21)])
    told = a_history(20, text)
    for number in range(21, 2001):
        told.append(message(number))
    built = build(told, memory, head=a_head(3000))
    shown = [number for number in range(1, 21) if f"m{number}" in ids(built)]
    assert shown
    assert shown == list(range(shown[0], 21))
    titles = [f"the point {number}" for number in range(1, shown[0])]
    before = (built.input.memory_context or "")[: built.input.memory_stable]
    assert all(title in before for title in titles)
    assert "no room for more than its title" in before
    assert ids(built)[-1] == "m2000"


def test_notes_stand_after_the_messages_with_their_ids() -> None:
    found = RecalledNote(a_note(99, source=None, body="Auditors ask."), "audit")
    built = build(a_history(3), Memory(notes=[found]))
    _, prompt = render.render(built.input)
    assert prompt.index("message 3") < prompt.index("[decision-99]") < prompt.index("asked of you")
    assert "Auditors ask." in prompt


def test_a_note_is_not_shown_beside_the_message_that_it_comes_from() -> None:
    built = build(a_history(3), Memory(notes=[RecalledNote(a_note(2))]))
    assert built.input.memory_context is None
    assert built.chosen.withheld == [(RecalledNote(a_note(2)), layers.SHOWN_WHOLE)]


def test_a_shared_note_of_another_session_is_shown_though_its_source_has_a_namesake() -> None:
    shared = a_note(2, id="decisions/point-2")
    built = build(a_history(3), Memory(notes=[RecalledNote(shared)]))
    assert "decisions/point-2" in (built.input.memory_context or "")


def test_notes_take_a_small_part_of_the_room_and_the_best_come_first() -> None:
    notes = [RecalledNote(a_note(100 + n, source=None, body="x y z " * 100)) for n in range(6)]
    built = build(a_history(300), Memory(notes=notes), head=a_head(4000))
    assert 0 < len(built.chosen.notes) < 6
    assert built.chosen.notes == notes[: len(built.chosen.notes)]
    assert {why for _, why in built.chosen.withheld} == {layers.NO_ROOM}


def test_the_next_input_begins_as_the_one_before() -> None:
    told = a_history(20)
    first = RecalledNote(a_note(50, source=None), "one")
    memory = Memory("Core goal", 5, 5, pinned=[pinned(2)], notes=[first])
    _, before = render.render(build(told, memory).input)
    told.append(message(21))
    other = RecalledNote(a_note(60, source=None), "two")
    _, after = render.render(build(told, memory._replace(notes=[other])).input)
    shared = before[: before.index(render.NOTES)]
    assert after.startswith(shared)
    assert "message 20" in shared


def test_the_next_request_of_an_api_begins_as_the_one_before() -> None:
    told = a_history(20)
    memory = Memory(
        "Core goal", 5, 5, pinned=[pinned(2)], notes=[RecalledNote(a_note(50, source=None))]
    )
    before = render.chat(build(told, memory).input)
    told.append(message(21))
    other = memory._replace(notes=[RecalledNote(a_note(60, source=None))])
    after = render.chat(build(told, other).input)

    def parts(chat: Chat) -> list[object]:
        return [part for turn in chat.turns for part in turn.parts]

    assert after.system == before.system
    kept = parts(before)[:-1]
    assert parts(after)[: len(kept)] == kept
    assert "decision-50" in str(parts(before)[-1])


def test_a_model_that_takes_less_than_the_window_says_narrows_it() -> None:
    context = ContextSettings(window_tokens=32_000, reserved_output_tokens=0)
    profile = AgentProfile(agent_id="tester", adapter={"type": "scripted"}, context=context)
    members = Team(None, (Member(profile, "Tester"),))
    wide, narrow = window.make_head(members, "tester"), window.make_head(members, "tester", 2_000)
    assert (wide.room, narrow.room) == (32_000, 2_000)
    assert window.make_head(members, "tester", 200_000).room == 32_000


def test_an_agent_is_asked_to_be_concise_once_its_window_fills() -> None:
    head = a_head(2000)
    roomy, full = a_history(5), a_history(200)
    assert not build(roomy, head=head, concise_from=0.8).input.prefer_concise
    built = build(full, head=head, concise_from=0.8)
    assert built.input.prefer_concise
    assert built.input.input_hash == hashing.input_digest(built.input)


def test_what_the_model_counts_is_reported_and_narrows_the_window() -> None:
    told, head = a_history(500), a_head(3000)
    plain, corrected = build(told, head=head), build(told, head=head, factor=1.5)
    assert len(ids(corrected)) < len(ids(plain))
    assert corrected.input_tokens <= 3000
    low = build(told, head=head, factor=0.8)
    assert ids(low) == ids(plain)
    assert low.input_tokens < plain.input_tokens


def test_a_window_smaller_than_the_role_prompt_still_shows_what_is_new() -> None:
    memory = Memory(
        "Core goal", 1, 1, pinned=[pinned(1)], notes=[RecalledNote(a_note(9, source=None))]
    )
    built = build(a_history(4), memory, head=a_head(50, role="You are thorough. " * 100))
    assert ids(built) == ["m4"]
    assert [note.id for note in built.chosen.titles] == ["decision-1"]


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    pins=st.sets(st.integers(1, 40), max_size=8),
    upto=st.integers(0, 39),
    room=st.integers(300, 4000),
)
@example(sizes=[1, 1, 1, 16], pins={1, 2}, upto=0, room=300)  # titles leave no room for the other
def test_every_message_is_shown_once_in_order_and_the_new_one_always(
    sizes: list[int], pins: set[int], upto: int, room: int
) -> None:
    told = History()
    for number, size in enumerate(sizes, 1):
        told.append(message(number, text="word " * size))
    chosen = [pinned(number, "word " * sizes[number - 1]) for number in sorted(pins)
              if number <= len(sizes)]  # fmt: skip
    memory = Memory("Core goal" if upto else "", min(upto, len(sizes) - 1), upto, pinned=chosen)
    built = build(told, memory, head=a_head(room))
    shown = [one.seq for one in built.input.messages]
    assert shown == sorted(set(shown))
    assert shown[-1] == len(sizes)
    kept = {one.message.id for one in chosen} & set(ids(built))
    titled = {note.source for note in built.chosen.titles}
    assert kept | titled >= {one.message.id for one in chosen}
    assert built.input.input_hash == hashing.input_digest(built.input)
    head = a_head(room)
    must = head.tokens + built.chosen.stable_tokens + told.weight_of(told.after()[-1])
    assert built.input_tokens <= max(room, must)


def test_what_is_pinned_and_noted_takes_only_what_the_new_message_leaves() -> None:
    told = History()
    for number in range(1, 9):
        told.append(message(number, text="word " * (560 if number == 8 else 60)))
    notes = [RecalledNote(a_note(90, source=None, body="line " * 60))]
    memory = Memory(
        "Core goal: a shop. " * 40, 3, 3, [pinned(n, "word " * 60) for n in (1, 2)], notes
    )
    built = build(told, memory, head=a_head(900))
    assert ids(built)[-1] == "m8"
    assert len(built.chosen.titles) == 2
    assert built.input_tokens <= 900
    assert not built.chosen.has_summary


def test_a_note_whose_message_the_notes_push_out_is_shown_itself() -> None:
    told = a_history(60)
    notes = [
        RecalledNote(a_note(90, source=None, body="line " * 60)),
        *map(RecalledNote, map(a_note, range(1, 60))),
    ]
    for room in range(700, 1_100, 7):
        built = build(told, Memory(notes=notes), head=a_head(room))
        shown = set(ids(built))
        whole = [one.note.source for one, why in built.chosen.withheld if why == layers.SHOWN_WHOLE]
        assert shown.issuperset(whole)
        assert built.input_tokens <= room


def test_what_reaches_an_agent_is_what_is_not_summarised_and_has_room() -> None:
    told, short, long = a_history(40), "Core goal: a shop", "Core goal: a shop. " * 400

    def reached(seq: int, summary: str = "", room: int = 4_000, **limits: Any) -> bool:
        memory = Memory(summary, 6, 6) if summary else NOTHING
        return window.reaches(a_head(room), told, seq, memory, window.Limits(**limits))

    assert reached(1)
    assert not reached(1, room=600)
    assert reached(40, room=600)
    assert not reached(1, most=600)
    assert not reached(6, short)
    assert reached(7, short)
    assert reached(6, long)


def test_a_model_that_counts_less_is_not_said_to_have_more_room() -> None:
    head, told = a_head(), a_history(50)
    chosen = build(told, head=head).chosen
    plain = window.sum_usage(head, told, NOTHING, chosen)
    assert window.sum_usage(head, told, NOTHING, chosen, 0.5) == plain
    assert window.sum_usage(head, told, NOTHING, chosen, 2.0) == 2 * plain


def test_a_note_tells_its_owner_and_no_title_twice() -> None:
    task = a_note(7, kind="task", owner="maya", body="## Task\n\nWe decided the point 7\n")
    (line,) = history.noted(task).splitlines()
    assert line == "- [decision-7] task, draft, for maya: We decided the point 7"
    longer = history.noted(a_note(7, body="## Decision\n\nAuditors ask.\n\n## Context\n"))
    assert longer.splitlines()[1:] == ["  ## Decision", "  Auditors ask."]


def test_of_many_titles_the_newest_are_shown_and_the_rest_are_counted() -> None:
    text = "A decision with all of its reasons. " * 30
    memory = Memory(pinned=[pinned(number, text) for number in range(1, 101)])
    told = a_history(100, text)
    for number in range(101, 400):
        told.append(message(number))
    for window_tokens in (1_500, 2_500, 4_000):
        built = build(told, memory, head=a_head(window_tokens))
        chosen = built.chosen
        listed = [
            line for line in (built.input.memory_context or "").splitlines() if line[:2] == "- "
        ]
        assert len(chosen.pinned) + len(chosen.titles) == 100
        assert 0 < chosen.listed <= history.MOST_TITLES
        assert (
            listed[:-1]
            == [history.title_line(note) for note in chosen.titles[: chosen.listed]][::-1]
        )
        left = len(chosen.titles) - chosen.listed
        assert listed[-1] == f"- and {left} more; a search of the notes finds them"


def test_a_title_that_the_summary_quotes_is_not_listed_again() -> None:
    text = "A decision with all of its reasons. " * 30
    pins = [pinned(number, text) for number in range(1, 41)]
    told = a_history(40, text)
    for number in range(41, 400):
        told.append(message(number))
    quoted = [entry.note.title for entry in pins[-3:]]
    lines = "\n".join(f"- {title} (Dev)" for title in quoted)
    memory = Memory(f"# Core goal\n- A shop\n# Key decisions\n{lines}", 6, 6, pinned=pins)
    built = build(told, memory, head=a_head(2_500))
    shown = (built.input.memory_context or "").splitlines()
    for title in quoted:
        assert sum(title in line for line in shown) == 1
    listed = [note.title for note in built.chosen.titles]
    assert listed
    assert not set(listed) & set(quoted)


def test_of_pinned_messages_approved_ones_come_first() -> None:
    text = "A decision with all of its reasons. " * 20
    approved = {3, 40}
    pins = [
        Pinned(
            pinned(number, text).message,
            a_note(number, status="approved" if number in approved else "draft"),
        )
        for number in range(1, 61)
    ]
    told = a_history(60, text)
    for number in range(61, 400):
        told.append(message(number))
    built = build(told, Memory(pinned=pins), head=a_head(4_000))
    shown = [entry.message.seq for entry in built.chosen.pinned]
    assert shown[:2] == [3, 40]
    assert shown[2:] == list(range(61 - len(shown[2:]), 61))


@given(
    pins=st.integers(0, 120),
    size=st.integers(5, 300),
    talk=st.integers(40, 80),
    keep=st.sampled_from([0.3, 0.5, 0.7]),
    room=st.integers(1_200, 6_000),
    summary_items=st.integers(0, 80),
)
def test_the_newest_messages_have_their_share_whatever_is_pinned_and_noted(
    pins: int, size: int, talk: int, keep: float, room: int, summary_items: int
) -> None:
    text = "word " * size
    told = a_history(pins, text) if pins else History()
    for number in range(pins + 1, pins + talk + 1):
        told.append(message(number, text="what is said now, in some ten words or so"))
    items = "\n".join(f"- Fact {number} is {number * 7}" for number in range(summary_items))
    summary = f"# Core goal\n- A shop\n# Important facts\n{items}" if summary_items else ""
    notes = [RecalledNote(a_note(900 + n, source=None, body="x y z " * 60)) for n in range(6)]
    memory = Memory(summary, pins, pins, [pinned(n, text) for n in range(1, pins + 1)], notes)
    built = build(told, memory, head=a_head(room), keep=keep)
    head = a_head(room)
    share = (room - head.tokens) * min(keep, 1 - layers.SHARE - layers.NOTES_LEFT)
    shown = {one.id for one in built.input.messages}
    for entry in reversed(told.after()[-talk:]):
        share -= told.weight_of(entry)
        if share < 0:
            break
        assert entry.id in shown
    assert built.input_tokens <= room


def test_a_note_that_is_superseded_or_archived_is_in_no_summary() -> None:
    text = "# Core goal\n- A shop\n# Key decisions\n- We use MySQL 8 (Dev)\n- Port 4711 (Dev)"
    gone = (summary.Replaced("We use MySQL 8", "We use PostgreSQL 16"),)
    assert "MySQL" not in summary.without_replaced(text, gone)
    assert "4711" in summary.without_replaced(text, gone)
    change = "# Key decisions\n- We use PostgreSQL 16 instead of MySQL 8"
    assert summary.without_replaced(change, gone) == change


@pytest.mark.parametrize("text", ["", "Core goal: a shop", "Core goal: a shop. " * 400])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_usage_without_pins_and_notes_is_that_of_the_chosen_context(
    text: str, factor: float
) -> None:
    head, told = a_head(1_200), a_history(50)
    memory = Memory(text, 20, 20) if text else NOTHING
    limits = window.Limits(factor)
    room = window.room_for_messages(head, limits)
    chosen = layers.choose_context(head.agent_id, told, (), memory, room)
    expected = window.sum_usage(head, told, memory, chosen, factor)
    assert window.measure_usage(head.agent_id, head, told, memory, limits) == (expected, 0)


def test_the_two_hashes_of_a_message_are_those_of_its_two_forms() -> None:
    message = a_history(3).after()[0]
    own = message.model_copy(update={"role": "assistant"})
    forms = hashing.message_digest(message), hashing.message_digest(own)
    assert hashing.message_digests(message) == forms
    assert forms[0] != forms[1]
