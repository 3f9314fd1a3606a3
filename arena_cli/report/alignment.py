"""Two sequences laid beside each other: what of one belongs to what of the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

# A table of an alignment takes one bit for each pair of what is aligned: 50 MB.
MOST_PAIRS = 400_000_000


class Block(NamedTuple):
    """`a[a1:a2]` stands where `b[b1:b2]` does; `same`: it is equal to it."""

    same: bool
    a1: int
    a2: int
    b1: int
    b2: int


def blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Block]:
    """The longest common subsequence of both, as blocks that cover both in order.

    What is too much to align, between an equal beginning and end, is one block that differs.
    """
    start, a_end, b_end = _middle(a, b)
    found = [Block(True, 0, start, 0, start)]
    if (a_end - start) * (b_end - start) > MOST_PAIRS:
        found.append(Block(False, start, a_end, start, b_end))
    else:
        found += _common(a, b, start, a_end, b_end)
    found.append(Block(True, a_end, len(a), b_end, len(b)))
    return list(_joined(found))


def pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int | None, int | None]]:
    """Index beside index, so that as few as can be are changed, or stand on one side only (None).

    By Levenshtein's distance: one that was changed is beside what it became.
    """
    from rapidfuzz.distance import Levenshtein  # noqa: PLC0415 - where they differ only

    start, a_end, b_end = _middle(a, b)
    yield from ((at, at) for at in range(start))
    left, right = _numbered(a[start:a_end], b[start:b_end])
    for op in Levenshtein.opcodes(left, right):
        ours = range(start + op.src_start, start + op.src_end)
        theirs = range(start + op.dest_start, start + op.dest_end)
        if op.tag in ("equal", "replace"):
            yield from zip(ours, theirs, strict=True)
        else:
            yield from ((at, None) for at in ours)
            yield from ((None, at) for at in theirs)
    yield from zip(range(a_end, len(a)), range(b_end, len(b)), strict=True)


def _middle(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[int, int, int]:
    """Where an equal beginning ends, and where an equal end begins in each."""
    shorter = min(len(a), len(b))
    start = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    a_end, b_end = len(a), len(b)
    while min(a_end, b_end) > start and a[a_end - 1] == b[b_end - 1]:
        a_end, b_end = a_end - 1, b_end - 1
    return start, a_end, b_end


def _common(
    a: Sequence[Hashable], b: Sequence[Hashable], start: int, a_end: int, b_end: int
) -> Iterator[Block]:
    from rapidfuzz.distance import Indel  # noqa: PLC0415 - where texts differ only

    left, right = _numbered(a[start:a_end], b[start:b_end])
    for op in Indel.opcodes(left, right):
        ours = start + op.src_start, start + op.src_end
        yield Block(op.tag == "equal", *ours, start + op.dest_start, start + op.dest_end)


def _numbered(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Equal things as equal numbers, so that no two hashes are taken for one."""
    known: dict[Hashable, int] = {}
    left, right = ([known.setdefault(one, len(known)) for one in part] for part in (a, b))
    return left, right


def _joined(found: Sequence[Block]) -> Iterator[Block]:
    """Without empty blocks; neighbours of one kind are one."""
    last: Block | None = None
    for one in found:
        if one.a1 == one.a2 and one.b1 == one.b2:
            continue
        if last is not None and last.same == one.same:
            last = Block(last.same, last.a1, one.a2, last.b1, one.b2)
        else:
            if last is not None:
                yield last
            last = one
    if last is not None:
        yield last
