"""`arena run --explain` as text: the reasons of each step, term by term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arena_cli.ground.text import cut, shown_line
from arena_cli.report import facts, reasons
from arena_cli.report.reasons import Called, Named, Naming, Other, Others
from arena_cli.report.spans import INDENT, Line, Span, line
from arena_cli.report.words import Words
from arena_cli.scenario.result import ScenarioResult
from arena_cli.team.model import Team

EXCERPT = 60  # characters of a message that tell which one it is


def drawn(result: ScenarioResult, say: Words) -> Iterator[Line]:
    """The lines for every step of a scenario in which something was said."""
    for step in result.steps:
        told = reasons.of(step, result.team)
        if not told:
            continue
        title = facts.step(step.number, step.name, say)
        yield line(INDENT, Span(say("why, in {step}", step=title), "dim"))
        for one in told:
            match one:
                case Naming():
                    yield from _naming(one, result.team, say)
                case Called():
                    yield from _called(one, say)
                case Others():
                    yield from _others(one, say)


def _naming(said: Naming, team: Team, say: Words) -> Iterator[Line]:
    text = shown_line(cut(said.content, EXCERPT)) + ("…" if len(said.content) > EXCERPT else "")
    planted = f" ({say('planted')})" if said.planted else ""
    head = Span(f"{said.message} {shown_line(said.author)}{planted}{say(': ')}", "strong")
    yield line(INDENT * 2, head, text, hang=6)
    for one in said.names:
        yield _named(one, say)
    for one in said.added:
        yield _added(one, say)
    named = [one for at in (*said.names, *said.added) for one in at.ids]
    agents = dict.fromkeys(one for one in named if team.member(one))
    if said.calls is not None and said.calls != list(agents):
        yield line(INDENT * 3, say("so it calls: {who}", who=_listed(said.calls, say)), hang=8)
    for agent, reason in said.refused.items():
        who, why = shown_line(agent), shown_line(reason)
        yield line(INDENT * 3, say("may not call {who}: {reason}", who=who, reason=why), hang=8)


def _named(one: Named, say: Words) -> Line:
    times = f" ×{one.count}" if one.count > 1 else ""
    why = f"{say(': ')}{say(one.why)}" if one.why else f" ({say(one.by)})"
    at = f"@{shown_line(one.written)}{times} "
    spans = (Span("→ ", "dim"), Span(_listed(one.ids, say)), Span(why, "dim"))
    return line(INDENT * 3, at, spans, hang=8)


def _added(one: Named, say: Words) -> Line:
    written = f"{shown_line(one.written)} " if one.written else ""
    why = f"{say(': ')}{say(one.why)}" if one.why else ""
    spans = (
        Span("→ ", "dim"),
        Span(_listed(one.ids, say)),
        Span(f"{why} ({say(one.by)})", "dim"),
    )
    return line(INDENT * 3, written, spans, hang=8)


def _called(called: Called, say: Words) -> Iterator[Line]:
    who = say(", ").join(
        _must(agent, by, called.why, say) for agent, by in called.must.items()
    ) or say("nobody")
    told = say("must reply: {who}", who=who)
    yield line(INDENT * 2, _turn(called.turn, say), f" · {told}", hang=6)
    if called.deferred:
        deferred = _listed(called.deferred, say)
        yield line(INDENT * 3, say("deferred to the next turn: {who}", who=deferred), hang=8)


def _must(agent: str, by: Sequence[str], why: str, say: Words) -> str:
    named = say("named by {who}", who=_listed(by, say)) if by else say(why)
    return f"{shown_line(agent)} ({named})" if named else shown_line(agent)


def _others(others: Others, say: Words) -> Iterator[Line]:
    if not others.others:
        return
    searched = say("who may reply, judged by {messages}", messages=say(", ").join(others.searched))
    yield line(INDENT * 2, _turn(others.turn, say), f" · {searched}", hang=6)
    not_asked: dict[str, list[str]] = {}
    for one in others.others:
        if one.relevance is None:
            not_asked.setdefault(one.why, []).append(one.agent)
            continue
        yield _judged(one, one.relevance, others.selection, say)
        for found in one.found:
            where = say("in {messages}", messages=say(", ").join(found.messages))
            told = Span(f"({say(found.kind)}) {where}", "dim")
            yield line(INDENT * 4, f"{shown_line(found.word)} ", told, hang=10)
    for why, agents in not_asked.items():
        told = Span(f"{say('no candidate')} · {say(why)}", "dim")
        yield line(INDENT * 3, f"{_listed(agents, say)}{say(': ')}", told, hang=8)


def _judged(one: Other, relevance: float, selection: str, say: Words) -> Line:
    decision = Span(say(one.decision), "added" if one.decision == "asked" else "dim")
    told = f" · {_sum(one, relevance, selection, say)}"
    if one.why and one.why != reasons.UNDER:
        told += f" · {say(one.why)}"
    return line(INDENT * 3, f"{shown_line(one.agent)}{say(': ')}", decision, told, hang=8)


def _sum(one: Other, relevance: float, selection: str, say: Words) -> str:
    """`3 hits: 1 - 0.6^3 = 0.784 >= 0.6`."""
    count = len(one.found)
    hits = say("1 hit") if count == 1 else say("{count} hits", count=count)
    told = f"{hits}{say(': ')}1 - 0.6^{count} = {relevance:g}"
    if selection != "relevance" or one.threshold is None:
        return f"{told} (selection: {selection})"
    return f"{told} {'>=' if relevance >= one.threshold else '<'} {one.threshold:g}"


def _turn(turn: int, say: Words) -> Span:
    return Span(say("turn {turn}", turn=turn), "strong")


def _listed(names: Sequence[str], say: Words) -> str:
    return say(", ").join(map(shown_line, names)) or say("nobody")
