"""`tenure demo`: five processes, one leader, and an accident every few seconds.

The processes are real, and so are the accidents: kill -9, and SIGSTOP past the ttl. Each process writes down what it believes, with
the time before and after it asked itself, and at the end the notes are laid side by side: a stretch of belief reaches from the end of
its first true answer to the beginning of its last, so that what is reported as an overlap really was one.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tenure.clock import boottime, sleep
from tenure.durations import readable
from tenure.election import Election
from tenure.errors import ConfigurationError, StoreError
from tenure.stores import Session, Store, store_for

ELECTION = "demo"
PROCESSES = 5
TTL = 3.0
KILL_EVERY = 3.0
FREEZE_FOR = 1.5 * TTL
SAMPLE_EVERY = 0.005
REDRAW_EVERY = 0.1
SHORTEST_WITH_FREEZE = 15.0
START_WITHIN = 30.0
COLOURS = {"leads": "32;1", "killed": "31", "frozen": "36", "starting": "2"}


def run(*, seconds: float = 40.0, postgres: str | None = None) -> int:
    """Show it on this terminal. 1 if two processes led at once, or nobody ever did."""
    if seconds <= 0:
        raise ConfigurationError(f"seconds: {seconds:g} must be more than zero.")
    with Stage(postgres) as stage:
        screen = Screen(sys.stdout)
        show = Show(stage, screen, seconds)
        with suppress(KeyboardInterrupt):
            show.play()
        stage.end_all()
        screen.clear()
        return summarise(show, judge(stage.notes()))


@dataclass
class Actor:
    """One process, as its notes and its accidents show it."""

    label: str
    process: subprocess.Popen[bytes]
    path: Path
    state: str = "starting"
    term: int | None = None
    thaw_at: float | None = None
    read_to: int = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def news(self) -> Iterator[dict[str, Any]]:
        """The notes since the last call."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read_to += len(line)
                yield json.loads(line)


class Stage:
    """The database, the folder of notes and the processes; all of it is gone afterwards."""

    def __init__(self, postgres: str | None) -> None:
        self._postgres = postgres
        self.schema = f"tenure_demo_{secrets.token_hex(4)}" if postgres else "tenure"
        self.actors: list[Actor] = []
        self._number = itertools.count(1)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
        try:
            self.url = self._postgres or f"sqlite:///{self.folder / 'demo.db'}"
            self.store = store_for(self.url, schema=self.schema)
            self.store.prepare()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_all()
        if self._postgres:
            _drop_schema(self.store, self.schema)
        shutil.rmtree(self.folder, ignore_errors=True)

    def enter(self) -> Actor:
        """Start one more process. It ends when its standard input does, so also when the demo is killed."""
        label = f"node-{next(self._number)}"
        path = self.folder / f"{label}.jsonl"
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "tenure.demo", label, str(path), self.schema],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TENURE_URL": self.url},
            process_group=0,
        )
        actor = Actor(label, process, path)
        self.actors.append(actor)
        return actor

    def end_all(self) -> None:
        """Kill and reap every process, frozen or not."""
        for actor in self.actors:
            actor.process.kill()
        for actor in self.actors:
            actor.process.wait()
            if actor.process.stdin:
                with suppress(BrokenPipeError):
                    actor.process.stdin.close()

    def notes(self) -> list[Note]:
        """All that was written down."""
        return [
            Note(actor.label, line["kind"], line["term"], line["from"], line["to"])
            for actor in self.actors
            for line in Actor(actor.label, actor.process, actor.path).news()
            if line["kind"] != "joined"
        ]


@dataclass
class Show:
    """The course of the demo."""

    stage: Stage
    screen: Screen
    seconds: float
    kills: int = 0
    freezes: int = 0
    last_belief: float = 0.0
    last_killed: Actor | None = None
    interrupted_terms: set[int] = field(default_factory=set)
    """Terms that ended by kill -9; the gaps after them are the ones that evidence makes short."""

    def play(self) -> None:
        """Accidents until the time is over."""
        self.began = boottime()
        self.screen.say(f"five processes stand for one election in {self.stage.store.shown}")
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
                except StoreError:  # busy: look again
                    session.close()
                    session = None
                    continue
                self._thaw()
                if self.last_belief and due is not None and boottime() >= self.began + due[0] and self._strike(due[1]):
                    due = next(accidents, None)
                self.screen.draw(self._table())
                sleep(REDRAW_EVERY if self.screen.live else REDRAW_EVERY / 2)
        finally:
            if session is not None:
                session.close()
            self.lasted = boottime() - self.began

    def _accidents(self) -> Iterator[tuple[float, str]]:
        """When what happens: mostly kills; once or twice a freeze, which needs longer."""
        moment = 2.0
        freezes = [self.seconds / 3, 2 * self.seconds / 3] if self.seconds >= SHORTEST_WITH_FREEZE else []
        while moment < self.seconds - 1:
            if freezes and moment >= freezes[0] and moment + FREEZE_FOR + 1 < self.seconds:
                freezes.pop(0)
                yield moment, "freeze"
                moment += FREEZE_FOR
            else:
                yield moment, "kill"
            moment += KILL_EVERY

    def _strike(self, accident: str) -> bool:
        leader = next((actor for actor in self.stage.actors if actor.state == "leads"), None)
        if leader is None:
            return False  # as soon as there is one
        if accident == "kill":
            leader.process.kill()
            leader.process.wait()
            self.kills += 1
            self.interrupted_terms.add(leader.term or 0)
            self._say(f"kill -9 {leader.label} (pid {leader.pid}), which leads in term {leader.term}")
            leader.state, self.last_killed = "killed", leader
            self.stage.enter()
        else:
            os.kill(leader.pid, signal.SIGSTOP)
            self.freezes += 1
            self._say(
                f"froze {leader.label} (pid {leader.pid}), which leads in term {leader.term}, for {FREEZE_FOR:g} s"
            )
            leader.state, leader.thaw_at = "frozen", boottime() + FREEZE_FOR
        return True

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
                        self.began = boottime()  # the time counts from the first leader, however slow the machine is
                    self._say(self._won(session, actor, note))
                    if actor.state not in {"killed", "frozen"}:
                        actor.state, actor.term = "leads", note["term"]
                case "lost" if actor.state != "killed":
                    actor.state = "stands by"
                    self._say(f"{actor.label} knows that its term {note['term']} is over: {note['reason']}")
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
            term = f"term {actor.term}" if actor.state in {"leads", "frozen", "killed"} else ""
            lines.append(Screen.paint(actor.state, f"{actor.label:10}{actor.pid:>8}  {actor.state:10}{term}"))
        left = max(self.seconds - (boottime() - self.began), 0.0) if self.last_belief else self.seconds
        lines.append(
            f"{_count(self.kills, 'kill')}, {_count(self.freezes, 'freeze')}, {left:.0f} s left (Ctrl-C ends it)"
        )
        return lines

    def _say(self, text: str) -> None:
        self.screen.say(f"{boottime() - self.began:5.1f} s  {text}")


class Screen:
    """Lines that scroll and, on a terminal, a table below them that is drawn anew."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn: list[str] = []

    @staticmethod
    def paint(state: str, text: str) -> str:
        """The colour of a state."""
        colour = COLOURS.get(state)
        if colour is None or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
            return text
        return f"\033[{colour}m{text}\033[0m"

    def say(self, text: str) -> None:
        """A line that stays."""
        table = self._drawn
        self.clear()
        print(text, file=self._stream, flush=True)
        self.draw(table)

    def draw(self, lines: list[str]) -> None:
        """Put this below the lines."""
        if self.live and lines:
            self.clear()
            print("\n" + "\n".join(lines), file=self._stream, flush=True)
            self._drawn = lines

    def clear(self) -> None:
        """Take the table away."""
        if self._drawn:
            print(f"\033[{len(self._drawn) + 1}A\033[J", end="", file=self._stream, flush=True)
            self._drawn = []


@dataclass(frozen=True, slots=True)
class Note:
    """One answer of a process to itself: leads and sample are true, lost is not."""

    label: str
    kind: str
    term: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Certain belief of one process in one term."""

    label: str
    term: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the notes prove."""

    stretches: list[Stretch]
    samples: int
    overlaps: list[str]

    def gaps(self) -> list[tuple[int, float]]:
        """The seconds without a believer after each term."""
        return [(a.term, max(b.begin - a.end, 0.0)) for a, b in itertools.pairwise(self.stretches)]


def judge(notes: Iterable[Note]) -> Judgement:
    """Lay the notes side by side."""
    true = [note for note in notes if note.kind in {"leads", "sample"}]
    stretches = []
    for (label, term), group in itertools.groupby(
        sorted(true, key=lambda note: (note.label, note.term)), key=lambda note: (note.label, note.term)
    ):
        answers = list(group)
        begin, end = min(note.after for note in answers), max(note.before for note in answers)
        stretches.append(Stretch(label, term, begin, max(begin, end)))
    stretches.sort(key=lambda stretch: stretch.begin)
    overlaps = []
    for a, b in itertools.combinations(stretches, 2):
        shared = min(a.end, b.end) - max(a.begin, b.begin)
        if a.label != b.label and (shared > 0 or a.term == b.term):
            overlaps.append(
                f"{a.label} (term {a.term}) and {b.label} (term {b.term}) both led, for {max(shared, 0):.6f} s"
            )
        elif b.term <= a.term:
            overlaps.append(f"{b.label} led in term {b.term} after {a.label} in term {a.term}: terms must grow")
    return Judgement(stretches, len(true), overlaps)


def summarise(show: Show, judgement: Judgement) -> int:
    """Say what happened."""
    gaps = judgement.gaps()
    after_kills = [gap for term, gap in gaps if term in show.interrupted_terms]
    others = [gap for term, gap in gaps if term not in show.interrupted_terms]
    print(
        f"\n{show.lasted:.0f} s, {len(show.stage.actors)} processes: {_count(show.kills, 'kill')}, {_count(show.freezes, 'freeze')}, {len(judgement.stretches)} terms"
    )
    if after_kills:
        print(
            f"without a leader after a kill -9:  median {readable(statistics.median(after_kills))}, largest {readable(max(after_kills))}"
        )
    if others:
        print(f"without a leader after a freeze:   largest {readable(max(others))} (its ttl of {TTL:g} s decides)")
    print(
        f"two leaders at once:               {len(judgement.overlaps)} times, by {judgement.samples} samples of {len(judgement.stretches)} terms"
    )
    for overlap in judgement.overlaps:
        print(f"  {overlap}")
    if not judgement.stretches:
        print("nobody ever led")
    return 1 if judgement.overlaps or not judgement.stretches else 0


def act(label: str, path: str, schema: str) -> None:
    """What each process does: stand, lead, and write down what it believes."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind: str, term: int, before: float, after: float, **more: str) -> None:
        os.write(file, json.dumps({"kind": kind, "term": term, "from": before, "to": after, **more}).encode() + b"\n")

    with Election(None, ELECTION, label=label, ttl=TTL, schema=schema) as election:
        note("joined", 0, boottime(), boottime())
        for term in election.terms():
            kind = "leads"
            while True:
                before = boottime()
                trusted = term.trusted
                after = boottime()
                if not trusted:
                    break
                note(kind, term.number, before, after)
                kind = "sample"
                sleep(SAMPLE_EVERY)
            note("lost", term.number, before, after, reason=term.reason)


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _drop_schema(store: Store, schema: str) -> None:
    from tenure.stores.postgres import PostgresStore

    if isinstance(store, PostgresStore):
        with store.connect("demo", 10.0) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # a name made by us


if __name__ == "__main__":
    act(*sys.argv[1:])
