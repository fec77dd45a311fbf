"""The faults, the same for every peer, in an order drawn from the seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from crew import Crew, Place

LONGER = 8.0
"""Seconds that a process is frozen or cut off: longer than the 5 s that locks last."""


class Server(Protocol):
    port: int

    def restart(self) -> object: ...


class Blows:
    """Strikes a crew, and remembers when it killed whoever led."""

    def __init__(self, crew: Crew, server: Server, dice: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.deaths: list[float] = []
        self._crew, self._server, self._dice = crew, server, dice

    def strike(self, count: int) -> None:
        """So many blows, in rounds of all kinds."""
        coming: list[Callable[[], None]] = []
        for _ in range(count):
            coming = coming or self._round()
            coming.pop()()
            self._crew.rest(self._dice.uniform(3, 5))

    def _round(self) -> list[Callable[[], None]]:
        kinds = [
            self.kill_leader,
            self.kill_runner,
            self.freeze_leader,
            self.freeze_runner,
            self.roll,
            self.restart,
            self.cut_off,
        ]
        self._dice.shuffle(kinds)
        return kinds

    def kill_leader(self) -> None:
        self._crew.rest(self._dice.uniform(0, self._crew.every))
        self._kill(self._crew.leader(), "kill -9 of the leader")

    def kill_runner(self) -> None:
        self._kill(self._crew.runner(), "kill -9 of a running worker")

    def _kill(self, place: Place, kind: str) -> None:
        place.down = True
        place.worker.kill()
        self.deaths.append(time.time())
        self.counts[kind] += 1
        self._crew.rest(1)
        self._crew.fill(place)

    def freeze_leader(self) -> None:
        self._crew.rest(self._dice.uniform(0, self._crew.every))
        self._freeze(self._crew.leader(), "freeze of the leader")

    def freeze_runner(self) -> None:
        self._freeze(self._crew.runner(), "freeze of a running worker")

    def _freeze(self, place: Place, kind: str) -> None:
        place.worker.freeze()
        self.counts[kind] += 1
        self._crew.rest(LONGER)
        place.worker.thaw()

    def roll(self) -> None:
        """As a deployment does: one after the other, gently, and by force only when it must be."""
        for place in self._crew.places:
            place.down = True
            try:
                place.worker.terminate()
            except AssertionError:
                self.counts["SIGTERM that needed SIGKILL after 10 s"] += 1
                place.worker.kill()
            self.counts["SIGTERM"] += 1
            self._crew.fill(place)
            self._crew.rest(1)

    def restart(self) -> None:
        self._server.restart()
        self.counts["server restart"] += 1

    def cut_off(self) -> None:
        place = self._crew.runner()
        place.proxy.black_hole()
        self.counts["network of a running worker cut"] += 1
        self._crew.rest(LONGER)
        place.proxy.heal()
