"""Workers in networks of their own, whose lines to the server lose packets in one direction, in both, or now and then.

To be played where `namespaces.elsewhere` leads.
"""

import functools
import random
import time
from collections.abc import Callable

from harness.chronicle import Verdict
from harness.namespaces import Line
from harness.plays_servers import beyond, in_turn
from harness.postgres import Postgres
from harness.scenes import Scene, SchedulerWorker

NETWORKS = "10.77.0.0/16"
LOST = 8
"""One of so many packets."""

WAYS: dict[str, Callable[[Line], None]] = {
    "requests lost": lambda line: line.lose("ingress"),
    "answers lost": lambda line: line.lose("egress"),
    "both ways lost": lambda line: line.lose("ingress", "egress"),
    "packets lost": lambda line: line.lose("ingress", "egress", share=LOST),
    "line down": Line.down,
}


class Place:
    """One end of a line, and the worker there; what it leaves for others to find is on a host of its own."""

    def __init__(self, scene: Scene, server: Postgres, line: Line) -> None:
        self.scene, self.line = scene, line
        self.url = f"postgresql://postgres@{line.here}:{server.port}/{scene.url.rpartition('/')[2]}"
        self.worker = self.settle()

    def settle(self) -> SchedulerWorker:
        """Start a worker there."""
        runtime = self.scene.folder / self.line.device
        with self.line.far_end():
            self.worker = self.scene.add(wait=False, url=self.url, env={"TENURE_RUNTIME_DIR": str(runtime)})
        self.scene.joined(self.worker)
        return self.worker


def partitions(scene: Scene, server: Postgres, lines: list[Line], seconds: float, dice: random.Random) -> Verdict:
    """Lines break in all ways, shorter and longer than the ttl; and workers die unheard behind a broken line."""
    scene.add()  # beside the server
    places = [Place(scene, server, line) for line in lines]

    def break_by(way: str) -> None:
        place, lasts = dice.choice(places), dice.choice((0.3 * scene.options["ttl"], beyond(scene)))
        scene.cut_off(place.worker, way)
        WAYS[way](place.line)
        time.sleep(lasts)
        place.line.heal()
        scene.mend(place.worker)

    def vanish() -> None:
        place = dice.choice(places)
        WAYS["both ways lost"](place.line)
        scene.kill(place.worker)
        time.sleep(beyond(scene))
        place.line.heal()
        place.settle()

    return in_turn(scene, seconds, dice, [*(functools.partial(break_by, way) for way in WAYS), vanish])
