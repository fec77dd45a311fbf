"""What an error comes to, in one line: the log, the terminal, the page and alerts all say the same."""

from __future__ import annotations

import re

_HEADS = ("Traceback (most recent call last)", "Exception Group Traceback (most recent call last)")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(:|$)")
_GROUP = re.compile(r"^  [|+] ", re.MULTILINE)
"""What is before the lines of an exception group, but not before those of its parts."""


def last_line(text: str) -> str:
    """What a traceback ends with: the exception, and the first line of its message. `tenure log` shows all of it."""
    lines = _GROUP.sub("", text.strip("\n")).strip().splitlines()
    if not lines:
        return ""
    heads = [number for number, line in enumerate(lines) if line.startswith(_HEADS)]
    if not heads:
        return lines[-1].strip()
    after = lines[heads[-1] + 1 :]
    # The message of an exception may have several lines; frames are indented.
    return next((line for line in after if _EXCEPTION.match(line)), lines[-1]).strip()
