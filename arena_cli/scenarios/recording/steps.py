"""Match the steps of a recording with those of a scenario by their messages, not by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from arena_cli.scenarios.model import Scenario
from arena_cli.scenarios.recording.model import CaseRecord, Recording
from arena_cli.scenarios.recording.recorder import Ignoring
from arena_cli.session.outgoing import Outgoing

COMPARED_CHARS = 200

_EQUAL = 5.0  # more than two pairs of changed messages together
_CHANGED = 1.0  # to which the likeness of the texts is added, at most 1
_SILENT = 0.5
_SAME_NUMBER = 0.01
_OTHER_SESSION = 0.5


class StepMessage(NamedTuple):
    """The message that a step sends or plants; `text` is None for a step that only checks."""

    session: str | None
    author: str | None
    text: str | None


def renumber(case: CaseRecord, scenario: Scenario, ignoring: Ignoring) -> CaseRecord:
    """Return the case with its steps numbered as those of the scenario with the same message.

    A recorded step that the scenario no longer has gets a number after all of its steps.
    """
    recorded = _recorded_steps(case, ignoring)
    numbers = match([*recorded.values()], _scenario_steps(scenario, ignoring))
    free = len(scenario.file.steps)
    renamed: dict[int, int] = {}
    for index, number in enumerate(recorded):
        if index in numbers:
            renamed[number] = numbers[index] + 1
        else:
            free = max(free + 1, number)
            renamed[number] = free
    if all(old == new for old, new in renamed.items()):
        return case
    lines = [
        {**line, "step": renamed.get(line["step"], line["step"])}
        if line["type"] == "step"
        else line
        for line in case.lines
    ]
    calls = [
        call._replace(key=call.key._replace(step=renamed.get(call.key.step or 0, call.key.step)))
        for call in case.calls
    ]
    return replace(case, lines=lines, calls=calls)


def has_common_step(recording: Recording, scenarios: Iterable[Scenario]) -> bool:
    """Return whether one of these scenarios still sends a message of the recording."""
    for scenario in scenarios:
        case = recording.cases.get(scenario.case.id if scenario.case else None)
        if case is None:
            continue
        ignoring = Ignoring([ignored.regex for ignored in scenario.file.ignore])
        texts = {step.text for step in _recorded_steps(case, ignoring).values() if step.text}
        if any(step.text in texts for step in _scenario_steps(scenario, ignoring)):
            return True
    return False


def match(recorded: Sequence[StepMessage], played: Sequence[StepMessage]) -> dict[int, int]:
    """Return the index of the played step for each recorded one that has a counterpart.

    Both keep their order. Of all such pairings it is the one with the most equal messages, then
    with the most similar texts.
    """
    same = 0
    while same < min(len(recorded), len(played)) and recorded[same] == played[same]:
        same += 1
    last = 0  # steps at the end, so that a long scenario with one new step costs next to nothing
    most = min(len(recorded), len(played)) - same
    while last < most and recorded[-1 - last] == played[-1 - last]:
        last += 1
    ends = len(recorded) - last, len(played) - last
    matched = _match_rest(recorded[same : ends[0]], played[same : ends[1]])
    return {
        **{index: index for index in range(same)},
        **{same + a: same + b for a, b in matched.items()},
        **{ends[0] + index: ends[1] + index for index in range(last)},
    }


def _match_rest(recorded: Sequence[StepMessage], played: Sequence[StepMessage]) -> dict[int, int]:
    gains = [
        [
            _gain(recorded_step, played_step, row == column)
            for column, played_step in enumerate(played)
        ]
        for row, recorded_step in enumerate(recorded)
    ]
    best = [[0.0] * (len(played) + 1) for _ in range(len(recorded) + 1)]
    for row in range(len(recorded) - 1, -1, -1):
        for column in range(len(played) - 1, -1, -1):
            gain = gains[row][column]
            paired = gain + best[row + 1][column + 1] if gain else 0.0
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    matched: dict[int, int] = {}
    row = column = 0
    while row < len(recorded) and column < len(played):
        gain = gains[row][column]
        if gain and gain + best[row + 1][column + 1] == best[row][column]:
            matched[row] = column
            row, column = row + 1, column + 1
        elif best[row + 1][column] == best[row][column]:
            row += 1
        else:
            column += 1
    return matched


def _gain(step_message: StepMessage, played_step: StepMessage, is_same_number: bool) -> float:
    gain = _score(step_message, played_step)
    return gain + _SAME_NUMBER if gain and is_same_number else gain


def _score(step_message: StepMessage, played_step: StepMessage) -> float:
    """Return how well two steps match, 0 if they cannot be the same."""
    if (step_message.text is None) != (played_step.text is None):
        return 0.0
    if step_message.text is None or played_step.text is None:
        return _SILENT if step_message.session == played_step.session else 0.0
    factor = 1.0 if step_message.session == played_step.session else _OTHER_SESSION
    if step_message.text == played_step.text and step_message.author == played_step.author:
        return _EQUAL * factor
    texts = step_message.text[:COMPARED_CHARS], played_step.text[:COMPARED_CHARS]
    likeness = SequenceMatcher(None, *texts, autojunk=False).quick_ratio()
    return (_CHANGED + likeness) * factor


def _recorded_steps(case: CaseRecord, ignoring: Ignoring) -> dict[int, StepMessage]:
    """Return the message of each recorded step, by number."""
    steps: dict[int, StepMessage] = {}
    number: int | None = None
    for line in case.lines:
        if line["type"] == "step":
            number = line["step"]
            if number is not None:
                steps[number] = StepMessage(line["session"], None, None)
        elif number and _is_sent(line) and steps[number].text is None:
            message = line["message"]
            text = ignoring.text(message["content"])
            steps[number] = steps[number]._replace(author=message["author_id"], text=text)
    return steps


def _is_sent(line: Mapping[str, Any]) -> bool:
    if line["type"] != "message":
        return False
    return bool(line.get("planted")) or line.get("chain") is not None


def _scenario_steps(scenario: Scenario, ignoring: Ignoring) -> list[StepMessage]:
    """Return the message of each step of the scenario."""
    steps = []
    for index, step in enumerate(scenario.file.steps):
        sent = scenario.sent[index]
        if isinstance(sent, Outgoing):
            message = StepMessage(step.session, sent.author.id, ignoring.text(sent.content))
        elif sent is not None:
            message = StepMessage(step.session, sent.author_id, ignoring.text(sent.content))
        elif step.kind == "check":
            message = StepMessage(step.session, None, None)
        else:
            # What an earlier step saves is not known yet: the text as it stands in the file.
            text = str(scenario.data["steps"][index].get(step.kind))
            message = StepMessage(step.session, None, text)
        steps.append(message)
    return steps
