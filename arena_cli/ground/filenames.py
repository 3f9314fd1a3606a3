"""Make file names that every platform takes, from names that anybody may have chosen."""

from __future__ import annotations

import unicodedata

# What the common file systems take for one name, in bytes of UTF-8.
MOST_BYTES = 255

LONGEST = 100
LONGEST_BYTES = 200  # leaves room for the number that `unique` adds

FORBIDDEN = frozenset('/\\:*?"<>|')

_DEVICES = frozenset(
    {
        *("con", "prn", "aux", "nul", "conin$", "conout$"),
        *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³"),
    }
)


def is_device(name: str) -> bool:
    """Return True if Windows takes it for a device, such as `CON`, whatever its ending."""
    return name.split(".", maxsplit=1)[0].rstrip(" ").casefold() in _DEVICES


def size(name: str) -> int:
    """Return its length in bytes of UTF-8."""
    return len(name.encode("utf-8", "surrogatepass"))


def safe(name: str) -> str:
    """Return a file name that stays in its folder on every platform, close to `name`."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rsplit("/", 1)[-1]
    cleaned = "".join("_" if c in FORBIDDEN or not c.isprintable() else c for c in last)
    # Its end is kept, where it says what kind of file it is.
    cleaned = (
        cleaned.strip(" .")[-LONGEST:].encode("utf-8")[-LONGEST_BYTES:].decode("utf-8", "ignore")
    )
    stem = cleaned.lstrip(" .")
    if not stem:
        return "attachment"
    return f"_{stem}" if is_device(stem) else stem


def unique(name: str, used: set[str]) -> str:
    """Return the name, with a number before its ending if it is used already; then add it."""
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    free = name
    count = 1
    while free.casefold() in used:
        count += 1
        free = f"{stem}-{count}{dot}{ending}"
    used.add(free.casefold())
    return free
