"""Make text valid on its way in, harmless on its way to a terminal or a CI log; fill templates.

All templates have one grammar: `${name}` is filled, `$${` is a literal `${`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, AnyStr, cast

REPLACEMENT = "\ufffd"
MAX_DEPTH = 64
TOO_DEEP = "[nested too deeply]"

LINE_LIMIT = 76  # columns of a quoted line; a terminal's 80 without the indent


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled when it is first used.

    Most commands use few of the patterns of the modules that they import, and to compile one takes
    up to some milliseconds.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    """Has the attributes of a compiled pattern, and keeps those that were used."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._source = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


_LONGEST_CLUSTER = 64
_COLUMNS_BEFORE = 40  # before the place, in a quoted line that is cut

# Controls, then what is invisible or turns the line around: bidi controls, fillers, zero-width
# characters, separators of lines and paragraphs, annotation and tag characters, halves of
# surrogate pairs, noncharacters. Joiners and variation selectors stay: emoji, Persian and Han
# variants are written with them (Unicode 16, DerivedCoreProperties, Default_Ignorable_Code_Point).
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
)
# The flags of England, Scotland and Wales are a black flag, tag letters and a closing tag.
_TAG_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f"
_SPOT = lazy_pattern(f"[{_UNSAFE}]")
_ESCAPED = f"{_TAG_FLAG}|\r\n|[{_UNSAFE}]"

# A CI runner compares by the rules of a language, to which these characters are not there.
_UNSEEN = "\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_COMMAND_LINE = f"(?m)^((?:[^\\S\n]|[{_UNSEEN}])*)(?=:[{_UNSEEN}]*:)"
_HASHES = lazy_pattern(r"#(?=[^\w\s]*#)")  # two, what cannot be seen between them left aside
_COMMAND_MARK = f"(?i)(#[{_UNSEEN}]*#[a-z{_UNSEEN}]{{0,20}})\\["


def clean_text(text: str) -> tuple[str, bool]:
    """Return the text as valid Unicode, and True if anything had to be replaced.

    A lone half of a surrogate pair becomes U+FFFD; two that belong together become their character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        repaired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return repaired, repaired.count(REPLACEMENT) != text.count(REPLACEMENT)
    return text, False


def decode_output(data: bytes) -> tuple[str, bool]:
    """Return bytes of a program as text, and True if bytes that are not UTF-8 were replaced.

    A byte order mark at the beginning is removed.
    """
    try:
        return data.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace"), True


def clean_value(value: Any) -> tuple[Any, bool]:
    """Apply `clean` to nested data, keys included; a value that is no JSON becomes its text.

    Data deeper than `MAX_DEPTH` levels becomes `TOO_DEEP`, so that no later operation on it can
    exceed the stack. Bytes are kept.
    """
    replaced = False

    def change(text: str) -> str:
        nonlocal replaced
        cleaned, was_replaced = clean_text(text)
        replaced = replaced or was_replaced
        return cleaned

    return map_text(value, change), replaced


def map_text(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
    """Return nested data with `change` applied to every text, keys included (see `clean_value`)."""
    if isinstance(value, str):
        return change(value)
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    if depth >= MAX_DEPTH:
        return TOO_DEEP
    if isinstance(value, dict):
        return {
            map_text(key, change, depth + 1): map_text(item, change, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [map_text(item, change, depth + 1) for item in value]
    return change(str(value))


def escape_text(text: str) -> str:
    r"""Return untrusted text safe to print: it can neither steer the terminal nor a CI runner.

    Controls (but `\n` and `\t`), bidi controls, invisible characters, separators of lines,
    lone surrogates and noncharacters become visible escapes such as `\x1b` and `\u202e`; `\r\n`
    becomes `\n`. A line that begins with `::` (GitHub Actions) and the marks `##[`, `##vso[`,
    `##teamcity[` get a backslash that breaks them. Nothing is removed; doing it twice is the same.
    """
    if _SPOT.search(text):
        text = re.sub(_ESCAPED, _escape_match, text)
    if ":" in text:
        text = re.sub(_COMMAND_LINE, r"\1\\", text)
    if "#" in text:
        text = re.sub(_COMMAND_MARK, r"\1\\[", text)
    return text


def escape_line(text: str) -> str:
    r"""Return an escaped text in one line, with line ends and tabs as `\n` and `\t`."""
    return escape_text(text).replace("\n", "\\n").replace("\t", "\\t")


def escape_json(text: str) -> str:
    r"""Return JSON safe to print: the same data, safe on a terminal and in a CI log.

    C1 controls, bidi controls and others that `escape_text` escapes become `\uXXXX`; `##` is
    broken up, so that no CI runner finds a command (`##[...]`).
    """
    if _SPOT.search(text):
        text = re.sub(_ESCAPED, _escape_json_match, text)
    return _HASHES.sub(r"\\u0023", text) if "#" in text else text


def cut_text(text: str, limit: int) -> str:
    """Return the beginning of a text, at most `limit` characters, that ends with a visible one.

    A joined emoji, a letter with its marks, a flag, a surrogate pair are kept whole or left out; a
    run of marks that is longer than any language needs is cut anyway.
    """
    if len(text) <= limit:
        return text
    limit = max(limit, 0)
    lowest = max(limit - _LONGEST_CLUSTER, 0)
    end = next((index for index in range(limit, lowest, -1) if not _joined(text, index)), 0)
    return text[: end or limit]


def shorten_text(text: str, limit: int) -> str:
    """Return the beginning of a text as `cut_text` does, with `…` if it was cut."""
    excerpt = cut_text(text, limit)
    return excerpt + "…" if len(excerpt) < len(text) else excerpt


def cut_start(text: str, limit: int) -> str:
    """Return the last `limit` characters at most, from the beginning of a word on.

    The rest of a word that was cut could be the end of a secret that nothing recognises.
    """
    if len(text) <= limit:
        return text
    end = text[len(text) - limit :]
    if text[len(text) - limit - 1].isspace():
        return end
    words = end.split(None, 1)
    return words[1] if len(words) == 2 and not end[0].isspace() else end


def quote_line(line: str, column: int | None) -> list[str]:
    """Return a line without indent, cut to `LINE_LIMIT` columns, and a `^` below the column."""
    start = len(line) - len(line.lstrip(" \t"))
    line = line.rstrip()
    if column is not None and column < start:
        start = column  # the indent itself is wrong
    if column is None or column > len(line):
        quoted, is_cut = _fit(escape_line(line[start:]), LINE_LIMIT)
        return [quoted + ("…" if is_cut else "")]
    head = escape_line(line[max(start, column - 4 * LINE_LIMIT) : column])
    rest = escape_line(line[column : column + 4 * LINE_LIMIT])
    if display_width(head + rest) > LINE_LIMIT and display_width(head) > _COLUMNS_BEFORE:
        head = "…" + _fit(head[::-1], _COLUMNS_BEFORE)[0][::-1]
    rest, is_cut = _fit(rest, LINE_LIMIT - display_width(head))
    return [head + rest + ("…" if is_cut else ""), " " * display_width(head) + "^"]


def display_width(text: str) -> int:
    """Return the number of columns that a text takes in a terminal."""
    return sum(_columns(text))


def _columns(text: str) -> Iterator[int]:
    """Yield the columns of each character, 0 for one that joins another or is joined by it."""
    previous = ""
    for char in text:
        is_joined = previous == "\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff"
        if is_joined or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            yield 0
        else:
            yield 2 if unicodedata.east_asian_width(char) in "WF" else 1
        previous = char


def _fit(text: str, limit: int) -> tuple[str, bool]:
    """Return as much of a text as fits, and True if that is not all of it."""
    used = 0
    for index, columns in enumerate(_columns(text)):
        used += columns
        if used > limit:
            return text[:index], True
    return text, False


def _escape_match(match: re.Match[str]) -> str:
    sequence = match.group()
    if sequence == "\r\n":
        return "\n"
    if len(sequence) > 1:
        return sequence
    code = ord(sequence)
    if sequence == "\r":
        return "\\r"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json_match(match: re.Match[str]) -> str:
    sequence = match.group()
    if len(sequence) > 1:
        return sequence
    code = ord(sequence)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def splits_flag(text: str, index: int, start: int = 0) -> bool:
    """Return True if `index` is within a flag, which is two regional indicators from `start` on."""
    if index >= len(text) or not _is_regional(text[index]):
        return False
    first = index
    while first > start and _is_regional(text[first - 1]):
        first -= 1
    return (index - first) % 2 == 1


def _joined(text: str, index: int) -> bool:
    """Return True if the characters around an index are parts of one (after UAX #29)."""
    left_char, right_char = text[index - 1], text[index]
    if _extends(right_char) or left_char == "\u200d" or (left_char, right_char) == ("\r", "\n"):
        return True
    if "\ud800" <= left_char <= "\udbff" and "\udc00" <= right_char <= "\udfff":
        return True
    return splits_flag(text, index, max(index - _LONGEST_CLUSTER, 0))


def _extends(char: str) -> bool:
    if char in "\u200c\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff":
        return True
    if "\U000e0020" <= char <= "\U000e007f" or "\u1160" <= char <= "\u11ff":
        return True
    return unicodedata.category(char) in {"Mn", "Mc", "Me"}


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


_ANSI_STRING = "\x1b[\\]PX^_]"
_ANSI_STRING_TEXT = "[^\x07\x1b\n\r]*+"
# Nothing in it can fail after an unbounded repetition, so that one pass takes linear time.
_ANSI_SEQUENCE = (
    f"{_ANSI_STRING}{_ANSI_STRING_TEXT}(?:\x07|\x1b\\\\)?"
    "|\x1b\\[[0-?]*+[ -/]*+[@-~]?"
    "|\x1b[ -/]*+[0-~]?"
    "|\r(?=\n)"
)
_ANSI_UNFINISHED = (
    f"(?:({_ANSI_STRING}){_ANSI_STRING_TEXT}(\x1b?)|\x1b\\[[0-?]*+[ -/]*+|\x1b[ -/]*+|\r)\\Z"
)
_ANSI_INTRODUCER = lazy_pattern("[\x1b\r]")
_ANSI_LONGEST_HELD = 4096


def strip_ansi(text: str) -> str:
    r"""Return the text without control sequences, and with `\n` for `\r\n`."""
    return re.sub(_ANSI_SEQUENCE, "", text) if "\x1b" in text or "\r" in text else text


class AnsiStripper:
    """Applies `strip` to text that comes in pieces, wherever these were cut."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that has become certain with this piece."""
        text = self._held + piece
        start, self._held = _find_unfinished(text)
        return strip_ansi(text[:start])

    def finish(self) -> str:
        """Return the rest, when no more pieces come."""
        held, self._held = self._held, ""
        return strip_ansi(held)


def _find_unfinished(text: str) -> tuple[int, str]:
    """Return the start of a sequence that the next piece may continue, and the text to keep of it.

    The text of a string is dropped anyway, so only the ends of an unfinished one are kept.
    """
    for introducer in _ANSI_INTRODUCER.finditer(text):
        match = re.compile(_ANSI_UNFINISHED).match(text, introducer.start())
        if match:
            held = match[1] + match[2] if match[1] else match[0]
            return (match.start(), held) if len(held) <= _ANSI_LONGEST_HELD else (len(text), "")
    return len(text), ""


# What the common file systems take for one name, in bytes of UTF-8.
FILESYSTEM_NAME_BYTES = 255

LONGEST_NAME = 100
LONGEST_NAME_BYTES = 200  # leaves room for the number that `unique` adds

FORBIDDEN_IN_NAMES = frozenset('/\\:*?"<>|')

# https://learn.microsoft.com/windows/win32/fileio/naming-a-file: names of devices, not of files.
_DEVICE_NAMES = frozenset(
    {
        *("con", "prn", "aux", "nul", "conin$", "conout$"),
        *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³"),
    }
)


def is_device_name(name: str) -> bool:
    """Return True if Windows treats it as a device, such as `CON`, with any suffix."""
    return name.split(".", maxsplit=1)[0].rstrip(" ").casefold() in _DEVICE_NAMES


def measure_name(name: str) -> int:
    """Return its length in bytes of UTF-8."""
    return len(name.encode("utf-8", "surrogatepass"))


def make_safe_name(name: str) -> str:
    """Return a file name that stays in its folder on every platform, close to `name`."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rsplit("/", 1)[-1]
    cleaned = "".join("_" if c in FORBIDDEN_IN_NAMES or not c.isprintable() else c for c in last)
    # Its end is kept, where it says what kind of file it is.
    cleaned = (
        cleaned.strip(" .")[-LONGEST_NAME:]
        .encode("utf-8")[-LONGEST_NAME_BYTES:]
        .decode("utf-8", "ignore")
    )
    stem = cleaned.lstrip(" .")
    if not stem:
        return "attachment"
    return f"_{stem}" if is_device_name(stem) else stem


def make_unique_name(name: str, used: set[str]) -> str:
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


Loc = tuple[str | int, ...]

_PLACEHOLDER = lazy_pattern(r"\$\$\{|\$\{([^{}\n]*)\}")
_SHELL_VARIABLE = r"([A-Za-z_][A-Za-z0-9_]*)(?::?[-=?+].*)?"


def list_placeholders(text: str) -> list[str]:
    """Return the names between the braces of each placeholder, in order."""
    if "${" not in text:
        return []
    return [match[1] for match in _PLACEHOLDER.finditer(text) if match[1] is not None]


def fill_template(text: str, value_of: Callable[[str], str | None], *, literal: str = "${") -> str:
    """Return the text with each placeholder replaced by `value_of` its name, if not None.

    `literal` replaces `$${`, which is kept in a text that is filled again.
    """
    if "${" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return literal
        replacement = value_of(match[1])
        return match[0] if replacement is None else replacement

    return _PLACEHOLDER.sub(value, text)


def escape_template(text: str) -> str:
    """Return a text that yields exactly this text when it is filled."""
    return text.replace("${", "$${")


def explain_unfilled(text: str) -> tuple[str, str] | None:
    """Return the problem and the hint of a text with `${NAME}`, which only `env:` fills."""
    for placeholder in list_placeholders(text):
        name = re.fullmatch(_SHELL_VARIABLE, placeholder)
        if name:
            hint = f"write `${{env:{name[1]}}}`; a literal `${{` is `$${{`"
            return f"`${{{placeholder}}}` is not filled in: it has no `env:`", hint
    return None


def map_texts(data: Any, change: Callable[[str, Loc], Any], loc: Loc = ()) -> Any:
    """Return nested data with each text changed; `change` gets its place. Keys are no templates."""
    if isinstance(data, str):
        return change(data, loc)
    if isinstance(data, Mapping):
        return {key: map_texts(value, change, (*loc, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [map_texts(item, change, (*loc, index)) for index, item in enumerate(data)]
    return data


def iter_texts(data: Any, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield each text of nested data, without keys, and its place."""
    if isinstance(data, str):
        yield loc, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from iter_texts(value, (*loc, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from iter_texts(item, (*loc, index))


MOST_RAW_CHARS = 16_384


def cut_raw(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata with the provider's response (`raw`) cut to a text if it is long."""
    if "raw" not in metadata:
        return metadata
    raw = metadata["raw"]
    text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
    if len(text) <= MOST_RAW_CHARS:
        return metadata
    cut = f"{cut_text(text, MOST_RAW_CHARS)} ... ({len(text)} characters)"
    return {**metadata, "raw": cut}
