"""How far it is: one line in place on a terminal every ten seconds; elsewhere a line a minute."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Self

from chaos.report import Result
from harness.scenes import on_stage


class Progress:
    """Looks at the results and at what is on stage, from a thread of its own."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results
        self._name, self._ends = "", 0.0
        self._in_place = sys.stdout.isatty()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def next(self, name: str, left: float) -> None:
        """Another play begins, with so many seconds left for it and all that follow."""
        self._name, self._ends = name, time.monotonic() + left
        self.tell(f"{name} …")

    def tell(self, *lines: str) -> None:
        """Lines that stay."""
        print(("\r\033[K" if self._in_place else "") + "\n".join(lines), flush=True)

    def _run(self) -> None:
        while not self._over.wait(10.0 if self._in_place else 60.0):
            line = self._line()
            os.write(1, (f"\r\033[K{line}" if self._in_place else f"{line}\n").encode())

    def _line(self) -> str:
        left = max(self._ends - time.monotonic(), 0.0)
        blows = sum(sum(part.blows.values()) for part in (*self._results, *on_stage))
        due = sum(result.whole.due for result in self._results)
        due += sum(
            int((time.monotonic() - scene.began) / grid.period)
            for scene in tuple(on_stage)
            for grid in scene.grids.values()
        )
        return f"{self._name}: about {left / 60:.1f} min left, {blows:,} faults, {due:,} due times"
