"""How many tokens a text is, estimated."""

from __future__ import annotations


def estimate(text: str) -> int:
    """About how many tokens a model makes of a text; 0 for none.

    An ASCII character counts a quarter (four characters of English a token is OpenAI's and
    Anthropic's rule of thumb), a letter of Cyrillic, Greek, Hebrew or Arabic a half, a Han, kana,
    Hangul or Thai character one, an emoji one and a half: half a token for every byte that UTF-8
    needs beyond the first. Tokenizers of today need less for Chinese, rarely more: what is
    estimated to fit, fits.
    """
    if text.isascii():
        return (len(text) + 3) // 4
    ascii_chars = len(text.encode("ascii", "ignore"))
    extra_bytes = len(text.encode("utf-8", "surrogatepass")) - len(text)
    return (ascii_chars + 2 * extra_bytes + 3) // 4
