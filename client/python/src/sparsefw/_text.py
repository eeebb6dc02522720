"""Text of others on a terminal: what a server or a file's name says must not steer it."""

from __future__ import annotations

import re
from typing import Final

# Controls (C0, DEL, C1), marks of direction, separators of lines, what stands for bytes that are no UTF-8.
_STEERS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""The text on one line, with escapes ("\x1b", "\n", "\u202e") instead of characters that change how
    others are shown. Backslashes stay as they are, so escaping twice changes nothing.
    """
    return _STEERS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # os.fsdecode's
        return f"\\x{code - 0xDC00:02x}"
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")
