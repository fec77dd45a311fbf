"""`tenure demo`: five processes run jobs and stand for an election, and every few seconds one is killed or frozen.

The processes are real, and so are the accidents: kill -9, and SIGSTOP past the ttl. Each process records when it
believed that it led and which bodies it ran, with the time before and after. At the end these notes are compared with
each other and with the audit of the ledger: whether two ever led at once, whether a due time ran twice, and whether one
was lost. Meanwhile the page shows it all in a browser, on loopback.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress

from tenure.demo.page import page_of
from tenure.demo.screen import Screen
from tenure.demo.show import Show
from tenure.demo.stage import Stage
from tenure.demo.summary import summarise
from tenure.errors import ConfigurationError
from tenure.util.system import need_posix


def run(*, seconds: float = 36.0, postgres: str | None = None, web: bool = True) -> int:
    """Run the demo on this terminal. 1 if two processes led at once, or a due time ran twice or was lost.

    With `web`, what they do can be watched on the page; without the extra `web` it says how to get that, and goes on.
    """
    if seconds <= 0:
        raise ConfigurationError(f"seconds: {seconds:g} must be more than zero.")
    need_posix()
    with ExitStack() as stack:
        stage, screen = stack.enter_context(Stage(postgres)), Screen(sys.stdout)
        if web:
            screen.say(stack.enter_context(page_of(stage.scheduler)))
        show = Show(stage, screen, seconds)
        try:
            show.play()
        except KeyboardInterrupt:
            show.interrupted = True
        with suppress(KeyboardInterrupt):
            show.settle()
        screen.clear()
        stage.end_all()
        return summarise(show)
