"""The names of cases, which are names of files too."""

from __future__ import annotations

from unicodedata import category, normalize

NAMES = "it must be letters, digits, . _ or -, must not begin with . or -, and has at most 200 bytes"


def is_name(text: str) -> bool:
    """True for names of cases: letters and digits of any script, and . _ -, but not at the start . or -."""
    # A file name has at most 255 bytes, and endings are added.
    return text == file_name(text) and 0 < len(text.encode()) <= 200


def form(name: str) -> str:
    """The name in one Unicode form: é may be one character or two, and readers see no difference."""
    return normalize("NFC", name)


def file_name(text: str) -> str:
    """The text with _ in place of each character that no name of a case has."""
    good = (c in "._-" or (category(c)[0] in "LMN" and c.isprintable()) for c in text)
    safe = "".join(c if is_good else "_" for c, is_good in zip(text, good, strict=True))
    return f"_{safe[1:]}" if safe.startswith((".", "-")) else safe
