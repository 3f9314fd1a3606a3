"""How scenarios were played, in words that are no lie about what was kept of it."""

from __future__ import annotations

from collections import Counter

from arena_cli.ground.text import shown_line
from arena_cli.report.words import Words
from arena_cli.scenario.result import RunResult, ScenarioResult

LIVE = "live"
_KEPT = {"live": LIVE, "replay": "replayed", "record": "recorded", "update": "updated"}
_UNKEPT = {"record": "not recorded", "update": "not updated"}


def word(result: ScenarioResult) -> str:
    """How it was played; empty where it was not."""
    if result.mode is None:
        return ""
    if why_unkept(result, Words()):
        return _UNKEPT[result.mode]
    nothing_new = result.mode == "update" and not result.written
    return _KEPT["replay" if nothing_new else result.mode]


def counted(whole: RunResult) -> dict[str, int]:
    """How many scenarios were played how."""
    found = Counter(map(word, whole.scenarios))
    return {one: found[one] for one in (*_KEPT.values(), *_UNKEPT.values()) if found[one]}


def why_unkept(result: ScenarioResult, say: Words) -> str:
    """Why its recording was not written, though that was wanted."""
    if result.mode not in _UNKEPT:
        return ""
    if result.status == "interrupted" or not result.unkept:
        return say("it was cut short") if result.status == "interrupted" else ""
    if not result.unkept_agents:
        return say(result.unkept)
    agents = shown_line(", ".join(result.unkept_agents))
    stays = say("{recording} stays as it was", recording=shown_line(result.recording or ""))
    return f"{say(result.unkept)} ({agents}){say(': ')}{stays}"
