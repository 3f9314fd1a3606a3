"""In which language a text is written.

A language with a script of its own is told by that script, whatever names, code and foreign words
stand beside it; all others by a library (the extra `language`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from arena_cli.ground import install

EXTRA = install.with_extra("language")

# By ISO 15924 and Unicode: the scripts in which one language alone of those here is written.
_BY_SCRIPT = {
    "HANGUL": "ko",
    "THAI": "th",
    "LAO": "lo",
    "KHMER": "km",
    "MYANMAR": "my",
    "GREEK": "el",
    "HEBREW": "he",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "TAMIL": "ta",
    "TELUGU": "te",
}
_OWN_SCRIPT = frozenset({"zh", "ja", *_BY_SCRIPT.values()})
_CODE = re.compile(r"[a-z]{2}")
_SPANS = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|[@＠][\w-]+", re.DOTALL)
_OTHER = ""


def is_code(code: str) -> bool:
    """Whether it looks like a code of ISO 639-1."""
    return _CODE.fullmatch(code) is not None


def is_in(text: str, code: str) -> tuple[bool, str]:
    """Whether most of a text is in that language, and in which it is, in words.

    Code, links and mentions do not count. A Han letter counts as a word, and a text with a kana
    for every ten Han letters or fewer is Japanese. Raises LookupError where the library is needed
    and missing.
    """
    prose = _SPANS.sub(" ", unicodedata.normalize("NFKC", text))
    counts = Counter(_units(prose))
    kana = counts.pop("kana", 0)
    if kana and kana * 10 >= counts["zh"]:
        counts["ja"] = kana + counts.pop("zh", 0)
    if not counts:
        return False, "no words"
    found = max(counts, key=lambda key: counts[key])
    if found or code in _OWN_SCRIPT:
        return found == code, found or "a language of another script"
    found = _by_library(prose)
    return found == code, found


def _units(prose: str) -> Iterator[str]:
    """For each letter of a script without spaces, and for each word of the others, its language."""
    for word in re.findall(r"[^\W\d_]+", prose):
        other = True
        for letter in word:
            script = _script(letter)
            if script:
                other = False
                yield script
        if other:
            yield _OTHER


def _script(letter: str) -> str:
    if letter.isascii():
        return ""
    name = unicodedata.name(letter, "")
    if name.startswith(("CJK ", "IDEOGRAPHIC")):
        return "zh"
    if name.startswith(("HIRAGANA", "KATAKANA")):
        return "kana"
    return _BY_SCRIPT.get(name.partition(" ")[0], "")


def _by_library(prose: str) -> str:
    try:
        import py3langid  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise LookupError(f"to tell this language, install the extra: {EXTRA}") from error
    return str(py3langid.classify(prose)[0])
