"""Where a body was when its time was out: the stack of its thread, the await chain of its coroutine, or what its
process wrote down just before it was killed.

What is found is read from outside while the body may go on, so it shows one instant, and may be torn at its end.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import os
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

from tenure.scheduling.process_errors import RemoteTraceback
from tenure.util.tracebacks import is_ours

DEEPEST = 60
"""How many frames are kept, the innermost."""
BEFORE, SHARE = 0.2, 0.2
"""A process writes its stack down this many seconds before it is killed, or this share of its time, if that is less.
A busy machine may need that long to let it."""
_WRITTEN = 64 * 1024
"""Bytes of what a process has written that are read."""
_HEAD = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

Hang = TracebackType | str
"""A stack, as Python keeps it, or as text from another process."""


def this_thread() -> int:
    """What `of_thread` needs to know of the thread that calls this."""
    return threading.get_ident()


def of_thread(ident: int) -> TracebackType | None:
    """The stack of a thread, without our own frames at its beginning."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - public, says Python's documentation
    return None if frame is None else _stack([*_outwards(frame)][::-1])


def of_task(task: asyncio.Task[None]) -> TracebackType | None:
    """The await chain of a task, or, if it blocks its loop, the stack of the loop's thread from the task on."""
    frames = [*_awaits(task)]
    if not frames:
        return None
    for top in sys._current_frames().values():  # noqa: SLF001
        stack = [*_outwards(top)][::-1]
        if frames[0] in stack:
            return _stack(stack[stack.index(frames[0]) :])
    return _stack(frames)


def told(limit: float, hang: Hang | None) -> tuple[str, TimeoutError]:
    """What is kept with a run that is out of time, and the exception for the log."""
    said = f"timed out after {limit:g} s"
    error = TimeoutError(said)
    if not hang:
        return said, error
    if isinstance(hang, str):
        error.__cause__ = RemoteTraceback(hang)
        return f"{hang}\n{said}", error
    text = "".join([_HEAD, *traceback.format_tb(hang)])
    return f"{text}{said}", error.with_traceback(hang)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaits(task: asyncio.Task[None]) -> Iterator[FrameType]:
    """The frames of a task's coroutine and of what it awaits, also of other tasks, from the outermost on."""
    seen: set[int] = set()
    waits_for: object = task
    while isinstance(waits_for, asyncio.Task) and id(waits_for) not in seen:
        seen.add(id(waits_for))
        awaited: object = waits_for.get_coro()
        while awaited is not None:
            frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
            if not isinstance(frame, FrameType):
                break
            yield frame
            awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        waits_for = getattr(waits_for, "_fut_waiter", None)


def _first(thing: object, *names: str) -> object:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


def _stack(frames: list[FrameType]) -> TracebackType | None:
    """Frames from the outermost on, as a traceback."""
    frames = [*itertools.dropwhile(lambda frame: is_ours(frame.f_code.co_filename), frames)]
    trace = None
    for frame in reversed(frames[-DEEPEST:]):
        trace = TracebackType(trace, frame, max(frame.f_lasti, 0), frame.f_lineno or frame.f_code.co_firstlineno)
    return trace


# Of a process: a file that it shares with its parent, and a watchdog that needs neither Python nor its lock


class StackFile:
    """Where a child writes its stacks. Its parent reads them when the child is dead."""

    def __init__(self) -> None:
        self._file = (
            os.fdopen(os.memfd_create("tenure stacks"), "r+b")
            if hasattr(os, "memfd_create")
            else tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by `close`
        )

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> str:
        """The stack of the body, like a traceback; '' if there is none."""
        written = os.pread(self.fileno(), _WRITTEN, 0).decode("utf-8", "replace")
        for thread in written.split("\n\n"):
            frames = [(file, int(line), name) for file, line, name in _FRAME.findall(thread)][::-1]
            serves = [n for n, (file, _, name) in enumerate(frames) if name == "_serve" and is_ours(file)]
            if serves:
                frames = [*itertools.dropwhile(lambda frame: is_ours(frame[0]), frames[serves[0] :])]
                listed = [traceback.FrameSummary(file, line, name) for file, line, name in frames[-DEEPEST:]]
                return "".join([_HEAD, *traceback.format_list(listed)]).rstrip() if listed else ""
        return ""

    def close(self) -> None:
        self._file.close()


def watch_this_process(fileno: int, seconds_left: float) -> None:
    """Write the stacks of this process down just before this many seconds are over."""
    os.ftruncate(fileno, 0)
    os.lseek(fileno, 0, os.SEEK_SET)
    early = min(BEFORE, seconds_left * SHARE)
    faulthandler.dump_traceback_later(max(seconds_left - early, 0.001), file=fileno, exit=False)


def unwatch_this_process() -> None:
    """The body has ended."""
    faulthandler.cancel_dump_traceback_later()
