"""Find how a replay differs from its recording, and the first difference in each part.

A cause is reported once per scenario: one changed role prompt is one difference, regardless of the
number of calls that it affects. Settings and rules come first, then the inputs of agents, then the
routing. A changed note is reported by its name, once for all agents that are shown it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeVar

from arena_cli.scenarios.expect import judge_checks
from arena_cli.scenarios.recording import inner_calls, recorder, settings, steps
from arena_cli.scenarios.recording.model import TOOLS, CaseRecord, Recorded
from arena_cli.scenarios.recording.recorder import MARK, Ignoring, Tape, TapedCall
from arena_cli.scenarios.recording.steps import MESSAGE, Fact
from arena_cli.scenarios.result import Drift
from arena_cli.transcript.compare import first_change
from arena_cli.transcript.events import NoteEvent, SessionEvent
from arena_cli.workspace.agents import list_adapters
from arena_cli.workspace.models import Member, MemoryRules, TeamConfig

SUMMARY = "summary"
WHOLE = "memory_context"
NOTE = "note "


def differences(
    old_text: str | None, new_text: str | None, noted_before: Sequence[str], noted: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the differences of two texts of memory: `summary`, or `note <id>`, and both texts.

    The ids are those of the notes in each, in order. If the notes are equal, and only their order
    differs, the difference is the whole text.
    """
    old_pieces, new_pieces = _pieces(old_text or "", noted_before), _pieces(new_text or "", noted)
    changed = [
        (name, old_pieces.get(name, ""), new_pieces.get(name, ""))
        for name in dict.fromkeys([*old_pieces, *new_pieces])
        if old_pieces.get(name, "") != new_pieces.get(name, "")
    ]
    yield from changed or [(WHOLE, old_text or "", new_text or "")]


def is_given(name: str, own_notes: Container[str]) -> bool:
    """Return True if the difference is a note given by the scenario, which has no other cause.

    Notes that were `made` from the conversation, and a summary, follow from it.
    """
    return name.startswith(NOTE) and name.removeprefix(NOTE) not in own_notes


def _pieces(text: str, notes: Sequence[str]) -> dict[str, str]:
    """Return the summary with all text before the notes, then each note.

    A note begins with `- [id] ` in a line of its own; no other line of it does, since its text is
    indented (`context.history`). Notes are searched from the end, because a summary may contain
    similar lines.
    """
    pieces_found: dict[str, str] = {}
    end = len(text)
    for note in reversed(notes):
        mark = f"- [{note}] "
        start = text.rfind(f"\n{mark}", 0, end) + 1
        if not start and not text.startswith(mark):
            break
        pieces_found[f"{NOTE}{note}"] = text[start:end].strip("\n")
        end = start
    pieces = dict(reversed(pieces_found.items()))
    summary_text = text[:end].strip("\n")
    return {SUMMARY: summary_text, **pieces} if summary_text else pieces


MEMBERS = "members"
MEMORY_CONTEXT = "memory_context"
RUBRIC = "rubric"

_Both = tuple[list[Fact], list[Fact]]
_AnyCall = TypeVar("_AnyCall", TapedCall, Recorded)


def find_drift(tape: Tape, members: Sequence[Member]) -> list[Drift]:
    """Return all drift of a scenario that was replayed by these members."""
    case = tape.recorded
    assert case is not None
    roots = [*_settings(case, tape, members), *_rules(case, tape)]
    new = _new_steps(tape)
    compared = _compared(case, tape, new | _silent_steps(case, tape))
    followers = [*_routing(compared), *_remembered(compared), *_misses(tape), *_left_over(tape)]
    flow_drift = inner_calls.list_step_drift(tape.flow_steps, tape.was_played)
    inner = (*_inputs(case, tape), *inner_calls.list_tool_drift(tape.tools), *flow_drift)
    for drift, is_root in inner:
        (roots if is_root else followers).append(drift)
    if roots or followers:
        inputs = [drift for drift in (*roots, *followers) if drift.kind == "input"]
        roots[:0] = _workspace(case, tape, members, inputs)
    if MEMBERS not in {root.field for root in roots}:
        roots += _members(case, tape)
    if roots or followers:
        roots += list(_said_otherwise(_compared(case, tape, new), roots))
    return _mark_followers(roots, sorted(followers, key=_when))


def _mark_followers(roots: Sequence[Drift], followers: Sequence[Drift]) -> list[Drift]:
    """Return all drift; what follows from a cause is marked. Without causes, the first is one."""
    first = 0 if roots else 1
    marked = (drift.model_copy(update={"follows": True}) for drift in followers[first:])
    return [*roots, *followers[:first], *marked]


def _when(drift: Drift) -> tuple[float, int, bool]:
    """Return the sort key of a difference: causes before what follows from them."""
    step = float("inf") if drift.step is None else drift.step
    return (step, drift.turn or 0, drift.kind != "input")


def _settings(case: CaseRecord, tape: Tape, members: Sequence[Member]) -> Iterator[Drift]:
    called = case.called()
    then, today = _opening(case, tape)
    rules = (then["config"] if then else {}, today.config if today else {})
    for member in (
        *members,
        *(played_member for played_member in tape.members.values() if played_member not in members),
    ):
        recorded = case.agents.get(member.id)
        if recorded is None:
            continue  # whoever is called is shown other members, or misses
        current = settings.record(member, tape.redactor) | tape.called_with.get(member.id, {})
        is_called = member.id in called
        for path, old_value, new_value in settings.differences(
            recorded, current, rules, called=is_called
        ):
            yield _setting(member.id, path, old_value, new_value)


def _setting(agent: str | None, path: str, old_value: Any, new_value: Any) -> Drift:
    return Drift(
        kind="settings",
        agent=agent,
        field=path,
        before=_as_text(old_value),
        after=_as_text(new_value),
    )


_FORMER_RETRIES = 2
"""The default of `retries` in recordings of an earlier arena."""


def _rules(case: CaseRecord, tape: Tape) -> Iterator[Drift]:
    """Yield the drift of the team's rules since its main session was recorded."""
    recorded, current = _opening(case, tape)
    if recorded is None or current is None:
        return
    defaults = TeamConfig().model_dump(mode="json") | {"memory": MemoryRules().model_dump()}
    old_rules, new_rules = (
        {**defaults, **config} for config in (recorded["config"], current.config)
    )
    for key in old_rules | new_rules:
        then, today = old_rules.get(key), new_rules.get(key)
        if key == "retries" and (then, today) == (_FORMER_RETRIES, defaults[key]):
            continue
        is_nested = isinstance(then, dict) and isinstance(today, dict)
        path = f"config.{key}"
        pairs = settings.within(path, then, today) if is_nested else [(path, then, today)]
        for name, old_value, new_value in pairs:
            if old_value != new_value:
                yield _setting(None, name, old_value, new_value)


def _workspace(
    case: CaseRecord, tape: Tape, members: Sequence[Member], inputs: Iterable[Drift]
) -> Iterator[Drift]:
    """Yield the changed settings of `arena.yaml`, and `ignore`, that may cause other drift."""
    if case.workspace is None or tape.workspace is None:
        return
    old_workspace, new_workspace = case.workspace, tape.workspace
    yield from _ignored(old_workspace.get("ignore", ()), new_workspace.get("ignore", ()), [*inputs])
    agents = {member.id: member for member in members} | tape.members
    used = {
        adapter.get("model")
        for member in agents.values()
        for adapter in list_adapters(member.profile.adapter)
    }
    for name in dict.fromkeys([*old_workspace.get("models", {}), *new_workspace.get("models", {})]):
        then, today = (
            workspace.get("models", {}).get(name) or {}
            for workspace in (old_workspace, new_workspace)
        )
        if name in used and then.get("window_tokens") != today.get("window_tokens"):
            path = f"models.{name}.window_tokens"
            yield _setting(None, path, then.get("window_tokens"), today.get("window_tokens"))
    for path, then, today in settings.within(
        "memory", old_workspace.get("memory", {}), new_workspace.get("memory", {})
    ):
        yield _setting(None, path, then, today)


def _ignored(
    old_patterns: Sequence[str], new_patterns: Sequence[str], inputs: Sequence[Drift]
) -> Iterator[Drift]:
    """Yield the removed patterns that would match the texts that differ."""
    for index, pattern in enumerate(old_patterns):
        if pattern in new_patterns:
            continue
        without = Ignoring([pattern]).text
        texts = [text for drift in inputs for text in (drift.before, drift.after)]
        if any(MARK in text or without(text) != text for text in texts):
            new = new_patterns[index] if len(new_patterns) == len(old_patterns) else None
            yield _setting(None, f"ignore[{index}]", pattern, new)


def _members(case: CaseRecord, tape: Tape) -> Iterator[Drift]:
    """Yield changes of the team that no called agent is shown."""
    recorded, current = _opening(case, tape)
    if recorded is None or current is None:
        return
    old_members = _setting_text(MEMBERS, recorded[MEMBERS])
    new_members = _setting_text(MEMBERS, [member.model_dump() for member in current.members])
    if old_members != new_members:
        yield _setting(None, MEMBERS, old_members, new_members)


def _opening(case: CaseRecord, tape: Tape) -> tuple[Mapping[str, Any] | None, SessionEvent | None]:
    """Return the beginning of its main session, in the recording and in the replay."""
    recorded = next((line for line in case.lines if line["type"] == "session"), None)
    return recorded, next(
        (e for e in tape.stretches[0].events if isinstance(e, SessionEvent)), None
    )


class _InputDifference(NamedTuple):
    """The first field of an input that differs, and its texts."""

    field: str
    before: str
    after: str
    is_root: bool = True


def _inputs(case: CaseRecord, tape: Tape) -> Iterator[tuple[Drift, bool]]:
    """Yield changed inputs of agents, and whether each has no other cause.

    A message has another number in each input; it is the same difference there.
    """
    by_difference: dict[tuple[str, _InputDifference], list[TapedCall]] = {}
    fields: dict[tuple[str, _InputDifference], str] = {}
    pairs = [(call, call.record) for call in tape.calls if call.record and call.drifted]
    pairs += [(call, record) for call, record in tape.judged_otherwise if call.missed]
    for call, record in pairs:
        for difference in _differences(record, case, call, tape):
            field = difference.field.partition("[")[0]
            key = (call.key.agent, difference._replace(field=field))
            by_difference.setdefault(key, []).append(call)
            fields.setdefault(key, difference.field)
    for (agent, difference), calls in by_difference.items():
        drift = Drift(
            kind="input",
            agent=agent,
            field=fields[agent, difference],
            before=difference.before,
            after=difference.after,
            step=calls[0].key.step,
            turn=calls[0].input.turn,
            calls=len(calls),
        )
        yield drift, difference.is_root


_FOLLOWING = (
    *("prefer_concise", "max_output_tokens", "mentioned_by", "turn"),
    *("brief", "supervision"),
)


def _differences(
    record: Recorded, case: CaseRecord, call: TapedCall, tape: Tape
) -> Iterator[_InputDifference]:
    """Yield the input fields that are causes, else the first messages or fields that differ."""
    recorded = tape.normal_input(record)
    current = recorder.normalize_input(call.input, tape.ignoring, tape.redactor)
    differing = []
    for name in recorder.FIELDS:
        old_value, new_value = recorded[name], current[name]
        if old_value == new_value:
            continue
        if name == MEMORY_CONTEXT:
            own_notes = _notes_of_session(case, tape)
            for piece in differences(old_value, new_value, record.notes, call.notes):
                differing.append(_InputDifference(*piece, is_root=is_given(piece[0], own_notes)))
        elif name == TOOLS:
            for change in inner_calls.list_changed_specs(old_value, new_value):
                differing.append(_InputDifference(*change))
        else:
            texts = (_setting_text(name, old_value), _setting_text(name, new_value))
            differing.append(_InputDifference(name, *texts, name not in _FOLLOWING))
    if call.is_judge:
        differing += _rubric(recorded["messages"], current["messages"])
    if roots := [difference for difference in differing if difference.is_root]:
        yield from roots
        return
    messages = _messages(recorded["messages"], current["messages"], tape)
    whole = _InputDifference("input", record.input_hash, call.input_hash)
    yield next(itertools.chain(messages, differing, [whole]))


def _rubric(
    recorded: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]
) -> Iterator[_InputDifference]:
    """Yield the rubric of a judge, if it changed."""
    old_rubric, new_rubric = (
        "\n\n".join(judge_checks.rubric_of(message["content"]) for message in messages)
        for messages in (recorded, current)
    )
    if old_rubric != new_rubric:
        yield _InputDifference(RUBRIC, old_rubric, new_rubric)


def _notes_of_session(case: CaseRecord, tape: Tape) -> set[str]:
    """Return the notes that were taken from the conversation, then or now."""
    then = {line["note"] for line in case.lines if line["type"] == "note"}
    events = [event for stretch in tape.stretches for event in stretch.events]
    return then | {event.note for event in events if isinstance(event, NoteEvent)}


def _messages(
    recorded: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]], tape: Tape
) -> Iterator[_InputDifference]:
    """Yield the first messages that differ; a human's message is always a cause."""
    then, new_texts = (
        [recorder.message_text(message, tape.ignoring) for message in messages]
        for messages in (recorded, current)
    )
    for old, new in _changed_ranges(then, new_texts):
        changed_messages = [*recorded[old], *current[new]]
        yield _InputDifference(
            f"messages[{new.start}]",
            "\n".join(then[old]),
            "\n".join(new_texts[new]),
            any(message.get("author_type") == "human" for message in changed_messages),
        )
        return


def _changed_ranges(old: Sequence[Any], new: Sequence[Any]) -> Iterator[tuple[slice, slice]]:
    """Yield the ranges that differ between two sequences.

    Equal items at both ends are matched first, so that one changed item is one range, even if
    another item equals it.
    """
    start = steps.count_equal(old, new)
    end = steps.count_equal(old[start:][::-1], new[start:][::-1])
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    matcher = SequenceMatcher(None, old_middle, new_middle, autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            yield (
                slice(start + old_start, start + old_end),
                slice(start + new_start, start + new_end),
            )


def _setting_text(name: str, value: Any) -> str:
    if name == MEMBERS:
        return "\n".join(_member(member) for member in value)
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
            [fact for fact in steps.recorded(case, tape, session) if fact.step not in apart],
            [fact for fact in steps.played(tape, session) if fact.step not in apart],
        )
        for session in dict.fromkeys(stretch.session for stretch in tape.stretches)
    ]


def _routing(compared: Iterable[_Both]) -> Iterator[Drift]:
    """Yield the first difference in the routing of each session."""
    for both in compared:
        recorded, current = (
            [fact for fact in facts if fact.field != MESSAGE and not fact.is_memory]
            for facts in both
        )
        yield from _first_apart(recorded, current)


def _remembered(compared: Iterable[_Both]) -> Iterator[Drift]:
    """Yield the first memory difference in each session, if its recording has memory events."""
    for both in compared:
        recorded, current = ([fact for fact in facts if fact.is_memory] for facts in both)
        if recorded:  # one that was made before anything was noted stays good
            yield from _first_apart(recorded, current)


def _said_otherwise(compared: Iterable[_Both], roots: Sequence[Drift]) -> Iterator[Drift]:
    """Yield messages that changed, or moved to another step, if no cause explains it."""
    for both in compared:
        old, new = (
            [fact for fact in facts if fact.field == MESSAGE and fact.step != 0] for facts in both
        )
        texts = ([(fact.agent, fact.value) for fact in facts] for facts in (old, new))
        for old_range, new_range in _changed_ranges(*texts):
            recorded, current = old[old_range], new[new_range]
            if not any(_tells(root, recorded, current) for root in roots):
                yield Drift(
                    kind="input",
                    field=MESSAGE,
                    before=_join_messages(recorded),
                    after=_join_messages(current),
                    step=(current or recorded)[0].step,
                )


def _join_messages(facts: Iterable[Fact]) -> str:
    return "\n".join(f"{fact.agent}: {fact.value}" for fact in facts)


def _tells(root: Drift, facts: Iterable[Fact], later_facts: Iterable[Fact]) -> bool:
    """Return True if the difference is exactly this change of an agent's input."""
    return (
        root.field.startswith("messages[")
        and all(fact.value in root.before for fact in facts)
        and all(fact.value in root.after for fact in later_facts)
    )


def _silent_steps(case: CaseRecord, tape: Tape) -> set[int | None]:
    """Return the steps that only one side has, and in which no agent was called."""
    called = {call.key.step for call in case.calls} | {call.key.step for call in tape.calls}
    played = {stretch.step for stretch in tape.stretches if stretch.step}
    return {step for step in case.steps() ^ played if step and step not in called}


def _new_steps(tape: Tape) -> set[int | None]:
    """Return the steps with live calls, which have no recording to compare with."""
    if tape.replays:
        return set()
    called = {
        call.key.step
        for call in tape.calls
        if call.record is None and not call.missed and not call.is_judge
    }
    return called | tape.new_steps


def _first_apart(facts: Sequence[Fact], later_facts: Sequence[Fact]) -> Iterator[Drift]:
    change = first_change(facts, later_facts)
    if change is None:
        return
    old_fact, new_fact = change
    place_fact = new_fact or old_fact
    assert place_fact is not None
    same = old_fact is not None and new_fact is not None and old_fact[:4] == new_fact[:4]
    yield Drift(
        kind="routing",
        agent=place_fact.agent,
        field=place_fact.field,
        before=_value(old_fact, place_fact, same=same),
        after=_value(new_fact, place_fact, same=same),
        step=place_fact.step,
        turn=place_fact.turn,
    )


def _value(fact: Fact | None, place_fact: Fact, *, same: bool) -> str:
    if fact is None:
        return ""
    if same or fact[:4] == place_fact[:4]:
        return fact.value
    name = f" {fact.agent}" if fact.agent else ""
    return f"{fact.field}{name}: {fact.value}"


def _misses(tape: Tape) -> Iterator[Drift]:
    recorded = [step for step in (tape.recorded.steps() if tape.recorded else ()) if step]
    last = max(recorded, default=0)
    for agent, calls in _group_by_agent(call for call in tape.calls if call.missed):
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
    for agent, records in _group_by_agent(tape.left_over):
        yield Drift(
            kind="left_over",
            agent=agent,
            field="calls",
            before=records[0].key.invocation,
            step=records[0].key.step,
            turn=records[0].turn,
            calls=len(records),
        )


def _group_by_agent(calls: Iterable[_AnyCall]) -> Iterable[tuple[str, list[_AnyCall]]]:
    by_agent: dict[str, list[_AnyCall]] = {}
    for call in calls:
        by_agent.setdefault(call.key.agent, []).append(call)
    return by_agent.items()
