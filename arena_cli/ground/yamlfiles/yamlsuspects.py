"""A quick look through a text for what may have been meant otherwise than YAML reads it.

Every file is looked through, so that substrings come first and a pattern is compiled when it is
needed. What is found here is looked at closely by `yamlkeys` and `yamlslips`.
"""

from __future__ import annotations

import re

# Keys of lists of words: a full-width comma parts two of them.
WORDS = frozenset(
    {"agents", "aliases", "asked", "awaits", "default_responders", "exclude", "include"}
    | {"keywords", "may_mention", "members", "must", "replied", "silent", "skills", "tags"}
    | {"unresolved"}
)

_NAME = "[A-Za-z_][A-Za-z0-9_.-]*"
_TIGHT_COMMENT = r"\S[ \t]+#[^\s#!]"
_ESCAPED_CONTROL = r"\\[bfvae0NLPxuU]"
_ESCAPED_PATH = r"[A-Za-z]:\\[a-zA-Z0_]"
_CURLY_VALUE = r"[:\-\[{,] [“‘]|[\[{][“‘]"
_WIDE_LIST = rf"(?:{'|'.join(sorted(WORDS))}): *\[[^\]\n\"']*[，、]"
_DEEPER_ITEM = r"\n( *)- [^\n]*[^:\n]\n\1 +- "
_DASH_WORD = r"\n *-[A-Za-z_]"
_WIDE_KEY = (
    rf"(?m)^ *[\u3000\xa0－]|^ *(?:- +)*{_NAME}：|[{{,] *{_NAME}："
    r"|[-{,:] *[\u3000\xa0]"
)


def odd_keys(text: str) -> bool:
    """Whether a key may be no key: `expect:{...}`, `-send: x`, `send：x`."""
    if any(tight in text for tight in (":{", ":[", ':"', ":'")):
        return True
    if text[:1] == "-" or re.search(_DASH_WORD, text):
        return True
    return any(mark in text for mark in "：－\u3000\xa0") and re.search(_WIDE_KEY, text) is not None


def odd_values(text: str) -> bool:
    """Whether a value may have lost a part, or say something else than it seems to."""
    return bool(
        (" #" in text and re.search(_TIGHT_COMMENT, text))
        or ("\\" in text and re.search(_ESCAPED_CONTROL, text))
        or (":\\" in text and re.search(_ESCAPED_PATH, text))
        or " &" in text
        or re.search(_DEEPER_ITEM, text)
        or (("“" in text or "‘" in text) and re.search(_CURLY_VALUE, text))
        or (("，" in text or "、" in text) and re.search(_WIDE_LIST, text))
    )
