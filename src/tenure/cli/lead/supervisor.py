"""The supervisor of `tenure lead`: waits for terms, runs the command in each, and stops it in time."""

from __future__ import annotations

import os
import shlex
import signal
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from tenure.cli.lead.guard import TICK, Guard
from tenure.cli.lead.process_group import BY_SIGNAL, Group
from tenure.cli.lead.timing import Act, Timing, act
from tenure.election import Election
from tenure.errors import TenureError
from tenure.term import Term, state_of
from tenure.util.clock import boottime
from tenure.util.durations import readable
from tenure.util.signals import Wakeups
from tenure.util.system import need_posix

SILENCE = 0.5
"""Seconds of waiting before a line says so."""

NOT_LEADING = 1

VOLUNTARY = {"asked to resign", "resigned", "stopped", "withdrawn"}
"""Reasons after which the database still reserves the term for us until the work has stopped."""


class Again(Enum):
    """What follows after a term."""

    UNTIL_DONE = "until the command ends by itself"
    ONCE = "never a second time"
    FOREVER = "in each term"


def election_for(
    url: object, name: str, *, timing: Timing, label: str | None = None, schema: str = "tenure", migrate: bool = True
) -> Election:
    """An election whose trust always leaves time for stopping a command."""
    session_grace = timing.session_grace
    return Election(
        url,
        name,
        label=label,
        ttl=timing.ttl,
        schema=schema,
        migrate=migrate,
        session_grace=session_grace,
        session_evidence=session_grace is not None,
    )


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How `tenure lead` ends: an exit code, and the signal that asked this process to end."""

    code: int
    signal: int | None = None


class Lead:
    """Runs a command while this node leads.

    Use it once, from the main thread, before any other thread is started.
    """

    def __init__(
        self,
        election: Election,
        command: Sequence[str],
        *,
        timing: Timing,
        again: Again = Again.UNTIL_DONE,
        say: Callable[[str], None],
    ) -> None:
        need_posix()
        self._election, self._command = election, list(command)
        self._timing, self._again, self._say = timing, again, say
        self._wakeups: Wakeups | None = None
        self._guard: Guard | None = None

    def run(self, wait: float | None = None) -> CommandOutcome:
        """Stand for the election, and return when it is over. `wait` limits the time to the first term; 0: one try."""
        with Guard() as guard:
            election = self._election
            try:
                election.start()
                if wait == 0 and election.wait_until_leading(0) is None:
                    self._say(f"not leading {election.name!r}{self._led_by()}")
                    return CommandOutcome(NOT_LEADING)
                with Wakeups() as wakeups:
                    self._wakeups, self._guard = wakeups, guard
                    election.candidacy.observe(wakeups.wake)
                    return self._terms(wait)
            finally:
                election.stop()

    def _terms(self, wait: float | None) -> CommandOutcome:
        assert self._wakeups is not None  # noqa: S101 - set by run
        signals, election = self._wakeups, self._election
        deadline = None if not wait else boottime() + wait
        told, since = False, boottime()
        while signals.caught is None:
            term = election.candidacy.enter_body()
            if term is None:
                if deadline is not None and boottime() >= deadline:
                    self._say(f"not leading {election.name!r} after {readable(wait or 0)}{self._led_by()}")
                    return CommandOutcome(NOT_LEADING)
                if not told and boottime() >= since + SILENCE:
                    told = True
                    self._say(f"waiting to lead {election.name!r}{self._led_by()}")
                signals.wait(TICK if deadline is None else min(TICK, max(deadline - boottime(), 0.0)))
                continue
            deadline, told = None, False
            try:
                outcome = self._term(term)
            finally:
                election.candidacy.leave_body(term)
            if outcome is not None:
                return outcome
            since = boottime()
        return CommandOutcome(BY_SIGNAL + signals.caught, signals.caught)

    def _term(self, term: Term) -> CommandOutcome | None:
        """Run the command during one term; None to go on with the next."""
        assert self._wakeups is not None  # noqa: S101 - set by run
        signals = self._wakeups
        command = self._start(term)
        if command is None:
            return None
        shown = textwrap.shorten(shlex.join(self._command), 100, placeholder=" …")
        self._say(f"leading {term.election!r} in term {term.number}: running {shown} (pid {command.pid})")
        try:
            stopped, code = self._watch(command, term)
        except BaseException:
            command.send(signal.SIGKILL)
            raise
        if signals.caught is not None:
            self._say(f"stopped by {signal.Signals(signals.caught).name}; the command ended with {_read(code)}")
            return CommandOutcome(0) if code == 0 else CommandOutcome(BY_SIGNAL + signals.caught, signals.caught)
        if not stopped:
            self._say(f"the command ended with {_read(code)}; resigning term {term.number}")
            return None if self._again is Again.FOREVER else CommandOutcome(code)
        self._say(f"term {term.number} is over ({term.reason or stopped}); the command ended with {_read(code)}")
        return CommandOutcome(NOT_LEADING) if self._again is Again.ONCE else None

    def _start(self, term: Term) -> Group | None:
        lock = self._election.lock_fileno
        kept = [] if lock is None else [os.dup(lock)]  # the heartbeat thread may close its own at any time
        try:
            if not term.trusted:
                return None  # the lock may already belong to another identity
            env = {
                **os.environ,
                "TENURE_ELECTION": term.election,
                "TENURE_TERM": str(term.number),
                "TENURE_NODE": term.node,
                "TENURE_SCHEMA": state_of(term).schema,
            }
            return Group(self._command, env, kept)
        finally:
            for fd in kept:
                os.close(fd)

    def _watch(self, command: Group, term: Term) -> tuple[str, int]:
        """Watch the command until it ends. Returns why it was stopped ('' if it ended by itself) and its exit code."""
        assert self._wakeups is not None  # noqa: S101 - set by run
        assert self._guard is not None  # noqa: S101 - set by run
        signals, guard, timing = self._wakeups, self._guard, self._timing
        until = boottime()
        told_at: float | None = None
        why = ""
        killed = by_itself = warned = False
        while True:
            until = _until(term, until)
            guard.tell(command.pid, until - timing.margin / 2)
            if guard.gone and not warned:
                warned = True
                self._say(
                    "the guard process was killed: if this process freezes now, nothing stops the command in time"
                )
            ended = command.ended()
            if ended and told_at is None and not killed:
                by_itself = term.trusted  # if not, the guard was faster than we were
            if ended and not command.exists():
                guard.tell(0, 0.0)
                return ("" if by_itself else why or "this process was frozen or too slow"), command.code
            now = boottime()
            if told_at is None and (why := self._reason(command, term, until, now)):
                told_at = now
                self._signal(command, signal.SIGTERM, why)
            if act(now, until=until, told_at=told_at, timing=timing) is Act.KILL or signals.impatient:
                self._signal(command, signal.SIGKILL, "" if killed else "it did not stop in time")
                killed = True
            moments = [now + TICK, until - timing.grace, until - timing.margin]
            if told_at is not None:
                moments.append(now + 0.02)  # nothing tells us when the last process of the group ends
            signals.wait(min(moment for moment in moments if moment > now) - now)

    def _signal(self, command: Group, number: signal.Signals, why: str) -> None:
        refused = "" if command.send(number) else " failed: it runs as another user and must stop by itself"
        if why:
            self._say(f"{why}: {number.name} to process group {command.pid}{refused}")

    def _reason(self, command: Group, term: Term, until: float, now: float) -> str:
        """Why the group must stop; '' if it need not."""
        assert self._wakeups is not None  # noqa: S101 - set by run
        caught = self._wakeups.caught
        if command.ended():
            return "the command ended and left processes behind"
        if caught is not None:
            return f"received {signal.Signals(caught).name}"
        if not term.trusted:
            return term.reason or "trust ended"
        if now >= until - self._timing.grace:
            return f"no heartbeat was acknowledged and trust ends in {readable(until - now)}"
        return ""

    def _led_by(self) -> str:
        """Names the leader, for a message; '' if the database does not answer."""
        try:
            leader = self._election.leader()
        except TenureError:
            return ""
        return f": {leader.label} leads in term {leader.term}" if leader is not None else ""


def _until(term: Term, known: float) -> float:
    """Until when no other node can lead. After a request to resign the term stays ours for as long as we trusted it."""
    now = boottime()
    if (left := term.remaining) > 0:
        return now + left
    return known if term.reason in VOLUNTARY else min(known, now)


def _read(code: int) -> str:
    if code > BY_SIGNAL:
        with suppress(ValueError):
            return f"{signal.Signals(code - BY_SIGNAL).name} ({code})"
    return f"exit code {code}"
