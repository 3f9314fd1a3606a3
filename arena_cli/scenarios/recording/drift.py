"""Find how a replay differs from its recording, and the first difference in each part.

A cause is told once a scenario: one changed role prompt is one difference, however many calls it
touches. Settings and rules come first, then what agents are shown, then who is called. A note that
reads otherwise is told by its name, once for all who are shown it.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from arena_cli.scenarios.expect import judge_checks
from arena_cli.scenarios.recording import facts, recorder, settings
from arena_cli.scenarios.recording.facts import MEMORY, MESSAGE, Fact
from arena_cli.scenarios.recording.model import CaseRecord, Recorded
from arena_cli.scenarios.recording.recorder import MARK, Call, Ignoring, Tape
from arena_cli.scenarios.result import Drift
from arena_cli.transcript.events import NoteEvent, SessionEvent
from arena_cli.workspace.models import Member, MemoryRules, TeamConfig

SUMMARY = "summary"
WHOLE = "memory_context"
NOTE = "note "


def differences(
    before: str | None, after: str | None, noted_before: Sequence[str], noted: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the differences of two texts of memory: `summary`, or `note <id>`, and both texts.

    The ids are those of the notes in each, in order. Where the notes are alike, and only their
    order is another one, that is the whole text.
    """
    was, now = _pieces(before or "", noted_before), _pieces(after or "", noted)
    found = [
        (name, was.get(name, ""), now.get(name, ""))
        for name in dict.fromkeys([*was, *now])
        if was.get(name, "") != now.get(name, "")
    ]
    yield from found or [(WHOLE, before or "", after or "")]


def is_given(name: str, made: Container[str]) -> bool:
    """Return True if the difference is a note given by the scenario, which has no other cause.

    Notes that were `made` of what was said, and a summary, follow from that.
    """
    return name.startswith(NOTE) and name.removeprefix(NOTE) not in made


def _pieces(text: str, notes: Sequence[str]) -> dict[str, str]:
    """The summary with all that stands before the notes, then each note.

    A note begins with `- [id] ` in a line of its own; no other line of it does, for its text is
    indented (`context.remembered`). They are looked for from the end: a summary may read likewise.
    """
    found: dict[str, str] = {}
    end = len(text)
    for note in reversed(notes):
        mark = f"- [{note}] "
        start = text.rfind(f"\n{mark}", 0, end) + 1
        if not start and not text.startswith(mark):
            break
        found[f"{NOTE}{note}"] = text[start:end].strip("\n")
        end = start
    pieces = dict(reversed(found.items()))
    before = text[:end].strip("\n")
    return {SUMMARY: before, **pieces} if before else pieces


MEMBERS = "members"
MEMORY_CONTEXT = "memory_context"
RUBRIC = "rubric"

_Both = tuple[list[Fact], list[Fact]]


def of(tape: Tape, members: Sequence[Member]) -> list[Drift]:
    """All drift of a scenario that was replayed by these members."""
    case = tape.recorded
    assert case is not None
    roots = [*_settings(case, tape, members), *_rules(case, tape)]
    new = _new_steps(tape)
    told = _compared(case, tape, new | _silent_steps(case, tape))
    followers = [*_routing(told), *_remembered(told), *_misses(tape), *_left_over(tape)]
    for one, is_root in _inputs(case, tape):
        (roots if is_root else followers).append(one)
    if roots or followers:
        inputs = [one for one in (*roots, *followers) if one.kind == "input"]
        roots[:0] = _workspace(case, tape, members, inputs)
    if not any(root.field == MEMBERS for root in roots):
        roots += _members(case, tape)
    if roots or followers:
        roots += list(_said_otherwise(_compared(case, tape, new), roots))
    followers.sort(key=_when)
    if not roots and followers:
        roots.append(followers.pop(0))
    return [*roots, *(one.model_copy(update={"follows": True}) for one in followers)]


def _when(drift: Drift) -> tuple[float, int, bool]:
    """Return the sort key of a difference: causes before what follows from them."""
    step = float("inf") if drift.step is None else drift.step
    return (step, drift.turn or 0, drift.kind != "input")


def _settings(case: CaseRecord, tape: Tape, members: Sequence[Member]) -> Iterator[Drift]:
    called = case.called()
    then, today = _opening(case, tape)
    rules = (then["config"] if then else {}, today.config if today else {})
    for member in (*members, *(one for one in tape.members.values() if one not in members)):
        before = case.agents.get(member.id)
        if before is None:
            continue  # whoever is called is shown other members, or misses
        after = settings.record(member, tape.redactor) | tape.called_with.get(member.id, {})
        is_called = member.id in called
        for place, was, now in settings.differences(before, after, rules, called=is_called):
            yield _setting(member.id, place, was, now)


def _setting(agent: str | None, place: str, was: Any, now: Any) -> Drift:
    return Drift(
        kind="settings", agent=agent, field=place, before=_as_text(was), after=_as_text(now)
    )


def _rules(case: CaseRecord, tape: Tape) -> Iterator[Drift]:
    """The team's rules, as its main session began."""
    before, after = _opening(case, tape)
    if before is None or after is None:
        return
    defaults = TeamConfig().model_dump(mode="json") | {"memory": MemoryRules().model_dump()}
    was, now = ({**defaults, **config} for config in (before["config"], after.config))
    for key in was | now:
        then, today = was.get(key), now.get(key)
        is_nested = isinstance(then, dict) and isinstance(today, dict)
        place = f"config.{key}"
        pairs = settings.within(place, then, today) if is_nested else [(place, then, today)]
        for name, one, other in pairs:
            if one != other:
                yield _setting(None, name, one, other)


def _workspace(
    case: CaseRecord, tape: Tape, members: Sequence[Member], inputs: Iterable[Drift]
) -> Iterator[Drift]:
    """Yield the settings of `arena.yaml`, and `ignore`, that something else may follow from."""
    if case.workspace is None or tape.workspace is None:
        return
    was, now = case.workspace, tape.workspace
    yield from _ignored(was.get("ignore", ()), now.get("ignore", ()), [*inputs])
    agents = {member.id: member for member in members} | tape.members
    used = {member.profile.adapter.get("model") for member in agents.values()}
    for name in dict.fromkeys([*was.get("models", {}), *now.get("models", {})]):
        then, today = (one.get("models", {}).get(name) or {} for one in (was, now))
        if name in used and then.get("window_tokens") != today.get("window_tokens"):
            place = f"models.{name}.window_tokens"
            yield _setting(None, place, then.get("window_tokens"), today.get("window_tokens"))
    for place, then, today in settings.within(
        "memory", was.get("memory", {}), now.get("memory", {})
    ):
        yield _setting(None, place, then, today)


def _ignored(
    before: Sequence[str], after: Sequence[str], inputs: Sequence[Drift]
) -> Iterator[Drift]:
    """Yield the patterns that are gone, and that would find something in what differs."""
    for index, pattern in enumerate(before):
        if pattern in after:
            continue
        without = Ignoring([pattern]).text
        texts = [text for one in inputs for text in (one.before, one.after)]
        if any(MARK in text or without(text) != text for text in texts):
            new = after[index] if len(after) == len(before) else None
            yield _setting(None, f"ignore[{index}]", pattern, new)


def _members(case: CaseRecord, tape: Tape) -> Iterator[Drift]:
    """Yield changes of the team that no called agent is shown."""
    before, after = _opening(case, tape)
    if before is None or after is None:
        return
    was = _told(MEMBERS, before[MEMBERS])
    now = _told(MEMBERS, [member.model_dump() for member in after.members])
    if was != now:
        yield _setting(None, MEMBERS, was, now)


def _opening(case: CaseRecord, tape: Tape) -> tuple[Mapping[str, Any] | None, SessionEvent | None]:
    """Return the beginning of its main session, in the recording and in the replay."""
    before = next((line for line in case.lines if line["type"] == "session"), None)
    return before, next((e for e in tape.stretches[0].events if isinstance(e, SessionEvent)), None)


class _Difference(NamedTuple):
    """The first field of an input that differs, and its texts."""

    field: str
    before: str
    after: str
    is_root: bool = True


def _inputs(case: CaseRecord, tape: Tape) -> Iterator[tuple[Drift, bool]]:
    """Yield changed inputs of agents, and whether each has no other cause."""
    found: dict[tuple[str, _Difference], list[Call]] = {}
    pairs = [(call, call.record) for call in tape.calls if call.record and call.drifted]
    pairs += [(call, record) for call, record in tape.judged_otherwise if call.missed]
    for call, record in pairs:
        for difference in _differences(record, case, call, tape):
            found.setdefault((call.key.agent, difference), []).append(call)
    for (agent, difference), calls in found.items():
        drift = Drift(
            kind="input",
            agent=agent,
            field=difference.field,
            before=difference.before,
            after=difference.after,
            step=calls[0].key.step,
            turn=calls[0].input.turn,
            calls=len(calls),
        )
        yield drift, difference.is_root


_FOLLOWING = ("prefer_concise", "max_output_tokens", "mentioned_by", "turn")


def _differences(
    record: Recorded, case: CaseRecord, call: Call, tape: Tape
) -> Iterator[_Difference]:
    """The fields that follow from nothing else, else the first messages or fields that do."""
    before = tape.normal_input(record)
    after = recorder.normalize_input(call.input, tape.ignoring, tape.redactor)
    found = []
    for name in recorder.FIELDS:
        was, now = before[name], after[name]
        if was != now and name == MEMORY_CONTEXT:
            made = _made(case, tape)
            for piece in differences(was, now, record.notes, call.notes):
                found.append(_Difference(*piece, is_root=is_given(piece[0], made)))
        elif was != now:
            found.append(
                _Difference(name, _told(name, was), _told(name, now), name not in _FOLLOWING)
            )
    if call.is_judge:
        found += _rubric(before["messages"], after["messages"])
    roots = [one for one in found if one.is_root]
    if not roots:
        found = [*_messages(before["messages"], after["messages"], tape), *found]
    difference = _Difference("input", record.input_hash, call.input_hash)
    yield from roots or found[:1] or [difference]


def _rubric(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[_Difference]:
    """Yield the rubric of a judge, where it is another one."""
    was, now = (
        "\n\n".join(judge_checks.rubric_of(message["content"]) for message in messages)
        for messages in (before, after)
    )
    if was != now:
        yield _Difference(RUBRIC, was, now)


def _made(case: CaseRecord, tape: Tape) -> set[str]:
    """The notes that were taken from what was said, then or now."""
    then = {line["note"] for line in case.lines if line["type"] == "note"}
    events = [event for stretch in tape.stretches for event in stretch.events]
    return then | {event.note for event in events if isinstance(event, NoteEvent)}


def _messages(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], tape: Tape
) -> Iterator[_Difference]:
    """The first messages that differ; what a human says follows from nothing else."""
    then, now = (
        [recorder.message_text(message, tape.ignoring) for message in messages]
        for messages in (before, after)
    )
    matcher = SequenceMatcher(None, then, now, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            others = [*before[start:end], *after[new_start:new_end]]
            yield _Difference(
                f"messages[{new_start}]",
                "\n".join(then[start:end]),
                "\n".join(now[new_start:new_end]),
                any(message.get("author_type") == "human" for message in others),
            )
            return


def _told(name: str, value: Any) -> str:
    if name == MEMBERS:
        return "\n".join(_member(one) for one in value)
    return _as_text(value)


def _member(member: Mapping[str, Any]) -> str:
    role = f", {member['role']}" if member.get("role") else ""
    return f"{member['id']} ({member['name']}{role})"


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _compared(case: CaseRecord, tape: Tape, apart: set[int | None]) -> list[_Both]:
    """Return the facts of each session, then and now, without those of some steps."""
    return [
        (
            [one for one in facts.recorded(case, tape, session) if one.step not in apart],
            [one for one in facts.played(tape, session) if one.step not in apart],
        )
        for session in dict.fromkeys(stretch.session for stretch in tape.stretches)
    ]


def _routing(told: Iterable[_Both]) -> Iterator[Drift]:
    """The first thing in each session that went another way."""
    said = (MESSAGE, *MEMORY)
    for both in told:
        before, after = ([one for one in found if one.field not in said] for found in both)
        yield from _first_apart(before, after)


def _remembered(told: Iterable[_Both]) -> Iterator[Drift]:
    """The first thing in each session that was remembered otherwise; of a recording that tells."""
    for both in told:
        before, after = ([one for one in found if one.field in MEMORY] for found in both)
        if before:  # one that was made before anything was noted stays good
            yield from _first_apart(before, after)


def _said_otherwise(told: Iterable[_Both], roots: Sequence[Drift]) -> Iterator[Drift]:
    """Yield messages that changed, or moved to another step, where no cause explains it."""
    for both in told:
        then, now = (
            [one for one in found if one.field == MESSAGE and one.step != 0] for found in both
        )
        was, said = ([(one.agent, one.value) for one in found] for found in (then, now))
        for kind, *region in SequenceMatcher(None, was, said, autojunk=False).get_opcodes():
            start, end, new_start, new_end = region
            before, after = then[start:end], now[new_start:new_end]
            if kind != "equal" and not any(_tells(root, before, after) for root in roots):
                yield Drift(
                    kind="input",
                    field=MESSAGE,
                    before="\n".join(f"{one.agent}: {one.value}" for one in before),
                    after="\n".join(f"{one.agent}: {one.value}" for one in after),
                    step=(after or before)[0].step,
                )


def _tells(root: Drift, facts: Iterable[Fact], after: Iterable[Fact]) -> bool:
    """Return True if the difference is exactly this change of an agent's input."""
    return (
        root.field.startswith("messages[")
        and all(one.value in root.before for one in facts)
        and all(one.value in root.after for one in after)
    )


def _silent_steps(case: CaseRecord, tape: Tape) -> set[int | None]:
    """Return the steps that only one side has, and in which nobody was called."""
    called = {call.key.step for call in case.calls} | {call.key.step for call in tape.calls}
    played = {stretch.step for stretch in tape.stretches if stretch.step}
    return {step for step in case.steps() ^ played if step and step not in called}


def _new_steps(tape: Tape) -> set[int | None]:
    """The steps for which agents were called: there is nothing to compare them with."""
    if tape.replays:
        return set()
    called = {
        call.key.step
        for call in tape.calls
        if call.record is None and not call.missed and not call.is_judge
    }
    return called | tape.new_steps


def _first_apart(facts: Sequence[Fact], after: Sequence[Fact]) -> Iterator[Drift]:
    if facts == after:
        return
    index = next(
        (
            index
            for index, (one, other) in enumerate(zip(facts, after, strict=False))
            if one != other
        ),
        min(len(facts), len(after)),
    )
    was = facts[index] if index < len(facts) else None
    now = after[index] if index < len(after) else None
    where = now or was
    assert where is not None
    same = was is not None and now is not None and was[:4] == now[:4]
    yield Drift(
        kind="routing",
        agent=where.agent,
        field=where.field,
        before=_value(was, where, same=same),
        after=_value(now, where, same=same),
        step=where.step,
        turn=where.turn,
    )


def _value(fact: Fact | None, where: Fact, *, same: bool) -> str:
    if fact is None:
        return ""
    if same or fact[:4] == where[:4]:
        return fact.value
    name = f" {fact.agent}" if fact.agent else ""
    return f"{fact.field}{name}: {fact.value}"


def _misses(tape: Tape) -> Iterator[Drift]:
    recorded = [step for step in (tape.recorded.steps() if tape.recorded else ()) if step]
    last = max(recorded, default=0)
    found: dict[str, list[Call]] = {}
    for call in tape.calls:
        if call.missed:
            found.setdefault(call.key.agent, []).append(call)
    for agent, calls in found.items():
        yield Drift(
            kind="miss",
            agent=agent,
            field="calls",
            after=calls[0].key.invocation,
            is_followed=any((call.key.step or last) < last for call in calls if not call.is_judge),
            step=calls[0].key.step,
            turn=calls[0].input.turn,
            calls=len(calls),
        )


def _left_over(tape: Tape) -> Iterator[Drift]:
    found: dict[str, list[Recorded]] = {}
    for record in tape.left_over:
        found.setdefault(record.key.agent, []).append(record)
    for agent, records in found.items():
        yield Drift(
            kind="left_over",
            agent=agent,
            field="calls",
            before=records[0].key.invocation,
            step=records[0].key.step,
            turn=records[0].turn,
            calls=len(records),
        )
