"""Tracebacks as the application wants to see them: from its own code on."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_OURS = (str(Path(__file__).parents[1]) + os.sep, threading.__file__)


def is_ours(file: str) -> bool:
    """Whether a frame of this file belongs to tenure, or to the start of a thread."""
    return file.startswith(_OURS)


def from_body_on(trace: TracebackType | None) -> TracebackType | None:
    """Without our own frames at the beginning; whole if there are no others."""
    rest = trace
    while rest is not None and is_ours(rest.tb_frame.f_code.co_filename):
        rest = rest.tb_next
    return trace if rest is None else rest
