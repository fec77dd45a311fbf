"""The course of the demo: follows who leads and who plans, and kills or freezes one of them every few seconds."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tenure.demo.part import ELECTION, PLANNER, TTL
from tenure.demo.screen import Screen
from tenure.demo.stage import Actor, Stage
from tenure.errors import StoreError
from tenure.scheduler import service_of
from tenure.stores import Session
from tenure.util.clock import boottime, sleep
from tenure.util.durations import readable
from tenure.util.instants import moment

PROCESSES = 5
KILL_EVERY = 3.0
FREEZE_FOR = 1.5 * TTL
REDRAW_EVERY = 0.1
SHORTEST_WITH_FREEZE = 15.0
START_WITHIN = 30.0
SETTLE_WITHIN = 15.0
"""Seconds that the last runs have to end; those of a frozen node are taken over after its ttl."""


@dataclass
class Show:
    """Accidents until the time is over, then a pause in which open runs end."""

    stage: Stage
    screen: Screen
    seconds: float
    kills: int = 0
    freezes: int = 0
    lasted: float = 0.0
    last_belief: float = 0.0
    last_killed: Actor | None = None
    interrupted_terms: set[int] = field(default_factory=set)
    """Terms that ended by kill -9; after these, proof of death keeps the gap short."""
    interrupted: bool = False
    bodies: int = 0
    late: deque[float] = field(default_factory=lambda: deque(maxlen=100))
    since: datetime = field(init=False)
    """The time span whose due times are judged, by the ledger's clock: from here …"""
    until: datetime = field(init=False)
    """… to here."""

    def __post_init__(self) -> None:
        self.since = self.until = self._ledger_time()

    def play(self) -> None:
        """Start the processes, and cause the accidents."""
        self.began = boottime()
        self.screen.say(f"five processes run three jobs and stand for one election in {self.stage.store.shown}")
        for _ in range(PROCESSES):
            self.stage.enter()
        accidents = self._accidents()
        due = next(accidents, None)
        session: Session | None = None
        try:
            while boottime() < self.began + (self.seconds if self.last_belief else START_WITHIN):
                session = session or self.stage.store.session("demo", TTL)
                try:
                    self._listen(session)
                    self._thaw()
                    if due is not None and self.last_belief and boottime() >= self.began + due[0]:
                        due = next(accidents, None) if self._strike(due[1], session) else due
                except StoreError:  # busy: try again
                    session.close()
                    session = None
                    continue
                self.screen.draw(self._table())
                sleep(REDRAW_EVERY if self.screen.live else REDRAW_EVERY / 2)
        finally:
            if session is not None:
                session.close()
            self.lasted = boottime() - self.began
            self.until = self._ledger_time()

    def settle(self) -> None:
        """Thaw the frozen processes, and wait for the runs that were due so far."""
        for actor in self.stage.actors:
            actor.thaw_at = None if actor.thaw_at is None else 0.0
        self._thaw()
        scheduler, end = self.stage.scheduler, boottime() + SETTLE_WITHIN
        while boottime() < end:
            try:
                if not scheduler.runs(state=["pending", "waiting", "running"], until=self.until, limit=1):
                    return
            except StoreError:
                pass
            sleep(REDRAW_EVERY)

    def _ledger_time(self) -> datetime:
        return service_of(self.stage.scheduler).look(lambda ledger: moment(ledger.now()))

    def _accidents(self) -> Iterator[tuple[float, str]]:
        """When each accident happens: kills of the leader and the planner in turn, and one or two longer freezes."""
        moment, planner = 2.0, False
        freezes = [self.seconds / 3, 2 * self.seconds / 3] if self.seconds >= SHORTEST_WITH_FREEZE else []
        while moment < self.seconds - 1:
            if freezes and moment >= freezes[0] and moment + FREEZE_FOR + 1 < self.seconds:
                freezes.pop(0)
                yield moment, "freeze"
                moment += FREEZE_FOR
            else:
                yield moment, "kill planner" if planner else "kill leader"
                planner = not planner
            moment += KILL_EVERY

    def _strike(self, accident: str, session: Session) -> bool:
        victim = self._planner(session) if accident == "kill planner" else self._leader()
        if victim is None:
            return False  # try again until there is one
        roles = [f"leads in term {victim.term}"] if victim.state == "leads" else []
        roles += ["plans"] if victim is self._planner(session) else []
        what = f"{victim.label} (pid {victim.pid}), which {' and '.join(roles)}"
        if accident == "freeze":
            os.kill(victim.pid, signal.SIGSTOP)
            self.freezes += 1
            self._say(f"froze {what}, for {FREEZE_FOR:g} s")
            victim.state, victim.thaw_at, victim.was_frozen = "frozen", boottime() + FREEZE_FOR, True
            return True
        victim.killed_at = boottime()
        victim.process.kill()
        victim.process.wait()
        self.kills += 1
        if victim.state == "leads":
            self.interrupted_terms.add(victim.term or 0)
        self._say(f"kill -9 {what}")
        victim.state, self.last_killed = "killed", victim
        self.stage.enter()
        return True

    def _leader(self) -> Actor | None:
        return next((actor for actor in self.stage.actors if actor.state == "leads"), None)

    def _planner(self, session: Session) -> Actor | None:
        planner = session.leader(PLANNER)
        alive = {actor.label: actor for actor in self.stage.actors if actor.state not in {"killed", "frozen"}}
        return None if planner is None else alive.get(planner.label)

    def _thaw(self) -> None:
        for actor in self.stage.actors:
            if actor.thaw_at is not None and boottime() >= actor.thaw_at:
                actor.thaw_at, actor.state = None, "thawed"
                os.kill(actor.pid, signal.SIGCONT)
                self._say(f"thawed {actor.label}")

    def _listen(self, session: Session) -> None:
        news = [(note, actor) for actor in self.stage.actors for note in actor.news()]
        for note, actor in sorted(news, key=lambda item: float(item[0]["from"])):
            match note["kind"]:
                case "joined":
                    actor.state = "stands by"
                case "leads":
                    if not self.last_belief:
                        self.began = boottime()  # time counts from the first leader, however slow the machine is
                    self._say(self._won(session, actor, note))
                    if actor.state not in {"killed", "frozen"}:
                        actor.state, actor.term = "leads", note["term"]
                case "lost" if actor.state != "killed":
                    actor.state = "stands by"
                    self._say(f"{actor.label} knows that its term {note['term']} is over: {note['reason']}")
                case "began":
                    self.bodies += 1
                    self.late.append(note["late"])
            if note["kind"] in {"leads", "sample"}:
                self.last_belief = max(self.last_belief, float(note["from"]))

    def _won(self, session: Session, actor: Actor, note: dict[str, Any]) -> str:
        record = next((found for found in session.terms(ELECTION, 20) if found.number == note["term"]), None)
        why = f" ({record.began_by})" if record else ""
        gap = (
            f", after {readable(max(note['to'] - self.last_belief, 0.0))} without a leader" if self.last_belief else ""
        )
        return f"{actor.label} (pid {actor.pid}) leads in term {note['term']}{why}{gap}"

    def _table(self) -> list[str]:
        lines = [f"{'process':10}{'pid':>8}  {'state':10}"]
        for actor in [a for a in self.stage.actors if a.state != "killed" or a is self.last_killed][-PROCESSES - 1 :]:
            term = f"term {actor.term}" if actor.state in {"leads", "frozen", "killed"} and actor.term else ""
            lines.append(Screen.paint(actor.state, f"{actor.label:10}{actor.pid:>8}  {actor.state:10}{term}"))
        if self.late:
            late = sorted(self.late)
            half, most = readable(late[len(late) // 2]), readable(late[-1])
            lines.append(f"{self.bodies} bodies called; lateness of the last {len(late)}: p50 {half}, largest {most}")
        left = max(self.seconds - (boottime() - self.began), 0.0) if self.last_belief else self.seconds
        lines.append(
            f"{counted(self.kills, 'kill')}, {counted(self.freezes, 'freeze')}, {left:.0f} s left (Ctrl-C ends it)"
        )
        return lines

    def _say(self, text: str) -> None:
        self.screen.say(f"{boottime() - self.began:5.1f} s  {text}")


def counted(number: int, what: str) -> str:
    """'1 kill', '2 kills'."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
