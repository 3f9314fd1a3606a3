"""CPU per reply of LangGraph and AutoGen AgentChat where two stub agents hand the word over.

    python benchmarks/handover.py langgraph 200
    python benchmarks/handover.py autogen 200

Prints {variant: microseconds}, without a framework that is not installed; engine.py, beside whose
engine this is to be read, runs it, as the frameworks may live in another environment. Making graph
or team is not measured, and a short run comes first.

Each stub answers at once with the engine's text and names the other. What the figures hold:

- LangGraph: a graph of two nodes that go on with `Command(goto=...)`, state `MessagesState`, run
  with `ainvoke`; a node is given the whole state. Without a checkpointer nothing outlives the run.
  `InMemorySaver` keeps the whole list of messages serialised at each step, in memory;
  `AsyncSqliteSaver` does so in a file, if `langgraph-checkpoint-sqlite` is installed.
- AutoGen: a `Swarm` of two agents that hand over by `HandoffMessage`; each agent is given what
  is new, and the team keeps the messages in memory. Nothing is saved.

Neither reads mentions, bounds a window of tokens, redacts, or has a deadline for each reply, and
neither keeps a transcript of events on the disk, all of which the engine does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib.util
import json
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

NAMES = ("ping0", "pong0")
WARM_UP = 10

Figures = dict[str, float]


def text_for(other: str) -> str:
    return f"@{other} your turn"


async def timed(run: Callable[[int], Awaitable[int]], replies: int) -> float:
    """Microseconds of CPU a reply. `run` makes so many and says how many messages there are."""
    gc.collect()  # what was made before is not this run's
    began = time.process_time()
    messages = await run(replies)
    spent = time.process_time() - began
    if messages != replies + 1:  # the one that opened it
        raise SystemExit(f"{messages} messages, {replies + 1} expected")
    return spent / replies * 1e6


async def langgraph(replies: int) -> Figures:
    from langgraph.checkpoint.memory import InMemorySaver

    figures = {
        "LangGraph, nothing kept": await _graph(replies, None),
        "LangGraph, InMemorySaver": await _graph(replies, InMemorySaver()),
    }
    if _installed("langgraph.checkpoint.sqlite"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        with tempfile.TemporaryDirectory() as folder:
            async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "state")) as saver:
                figures["LangGraph, AsyncSqliteSaver"] = await _graph(replies, saver)
    return figures


async def _graph(replies: int, saver: Any) -> float:
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.types import Command

    left = 0

    def node(name: str, other: str) -> Callable[[MessagesState], Awaitable[Command[str]]]:
        async def answer(state: MessagesState) -> Command[str]:
            nonlocal left
            left -= 1
            said = AIMessage(text_for(other), name=name)
            return Command(goto=other if left else END, update={"messages": [said]})

        return answer

    builder = StateGraph(MessagesState)
    for name, other in (NAMES, NAMES[::-1]):
        builder.add_node(name, node(name, other), destinations=(other, END))
    builder.add_edge(START, NAMES[0])
    graph = builder.compile(checkpointer=saver)

    async def run(count: int) -> int:
        nonlocal left
        left = count
        state = await graph.ainvoke(
            {"messages": [HumanMessage(f"@{NAMES[0]}")]},
            {"recursion_limit": count + 1, "configurable": {"thread_id": str(count)}},
        )
        return len(state["messages"])

    await run(WARM_UP)
    return await timed(run, replies)


async def autogen(replies: int) -> Figures:
    from autogen_agentchat import EVENT_LOGGER_NAME, TRACE_LOGGER_NAME
    from autogen_agentchat.agents import BaseChatAgent
    from autogen_agentchat.base import Response
    from autogen_agentchat.messages import HandoffMessage
    from autogen_agentchat.teams import Swarm

    for logger in (EVENT_LOGGER_NAME, TRACE_LOGGER_NAME, "autogen_core"):
        logging.getLogger(logger).setLevel(logging.ERROR)

    class Stub(BaseChatAgent):
        def __init__(self, name: str, other: str) -> None:
            super().__init__(name, "answers at once")
            self._other = other

        produced_message_types = (HandoffMessage,)

        async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
            said = text_for(self._other)
            return Response(
                chat_message=HandoffMessage(content=said, target=self._other, source=self.name)
            )

        async def on_reset(self, cancellation_token: Any) -> None: ...

    def team(turns: int) -> Swarm:
        return Swarm([Stub(*NAMES), Stub(*NAMES[::-1])], max_turns=turns)

    await team(WARM_UP).run(task=f"@{NAMES[0]}")
    measured = team(replies)

    async def run(_: int) -> int:
        return len((await measured.run(task=f"@{NAMES[0]}")).messages)

    return {"AutoGen, Swarm": await timed(run, replies)}


def _installed(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(name) is not None
    return False


FRAMEWORKS = {
    "langgraph": ("langgraph.graph", langgraph),
    "autogen": ("autogen_agentchat", autogen),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("framework", choices=FRAMEWORKS)
    options.add_argument("replies", type=int)
    chosen = options.parse_args()
    module, measured = FRAMEWORKS[chosen.framework]
    print(json.dumps(asyncio.run(measured(chosen.replies)) if _installed(module) else {}))


if __name__ == "__main__":
    main()
