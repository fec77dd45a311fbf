"""`tenure lead`: a command that runs only while this node leads.

The promise is that every process of the command's group is dead before another node can lead. So the stop begins
early: when no beat was acknowledged for so long that less than `grace` of trust remains, the group gets SIGTERM, and
SIGKILL shortly before trust ends. Once the command was told to stop, a late acknowledgement takes nothing back.

Three things hold when this process itself cannot: the command inherits the node's lock, so that nobody on this host
takes over while any of it lives; the kernel kills it with its parent (PDEATHSIG); and a guard, a process forked before
anything else, kills the group when the pipe to this process closes, or when the deadline that it was last told passes,
because this process was frozen.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import NoReturn, Self

from tenure.core.cluster import MAX_TTL, Cadence
from tenure.election import Election
from tenure.errors import ConfigurationError, TenureError
from tenure.term import Term
from tenure.util.clock import boottime
from tenure.util.durations import Duration, positive, readable
from tenure.util.signals import Wakeups, readable_within
from tenure.util.system import need_posix

TICK = 0.25
"""How often the deadline is looked at and passed on to the guard."""

SILENCE = 0.5
"""A wait shorter than this is not worth a line."""

KILL_MARGIN = 0.5
"""SIGKILL goes out this long before trust ends, or half the grace before where that is less."""

DEFAULT_GRACE = 0.3
"""The part of the ttl that is left for SIGTERM: one hung heartbeat (0.8 - 0.2 - 0.2 = 0.4 of the ttl left) stops nothing."""

SESSION_MARGIN = 3.0
"""A hung check of the session and a new connection must fit in before the command is told to stop."""

NOT_LEADING = 1
CANNOT_EXECUTE = 126
NOT_FOUND = 127
BY_SIGNAL = 128

VOLUNTARY = {"asked to resign", "resigned", "stopped", "withdrawn"}
"""Reasons after which the database still keeps the term for us until the work has stopped."""


class Again(Enum):
    """What follows after a term."""

    UNTIL_DONE = "until the command ends by itself"
    ONCE = "never a second time"
    FOREVER = "in each term"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long stopping may take, and which belief leaves room for it."""

    ttl: float
    grace: float

    @classmethod
    def of(cls, ttl: Duration = 10.0, grace: Duration | None = None) -> Timing:
        """Fill in the grace, or refuse one that would stop the command although nothing is wrong."""
        cadence = Cadence.of(ttl)
        wanted = DEFAULT_GRACE * cadence.ttl if grace is None else positive(grace, "grace")
        room = cadence.trust - cadence.heartbeat_every
        if wanted < room:
            return cls(cadence.ttl, wanted)
        enough = min(wanted / DEFAULT_GRACE, MAX_TTL)
        most = Cadence.of(MAX_TTL)
        advice = f"Write --grace {DEFAULT_GRACE * cadence.ttl:g}s or less"
        if wanted < most.trust - most.heartbeat_every:
            advice += f", or --ttl {enough:.0f}s"
        raise ConfigurationError(
            f"grace: {wanted:g} s does not fit into a ttl of {cadence.ttl:g} s. A heartbeat is trusted for 0.8 · ttl = "
            f"{cadence.trust:g} s, and the next one comes after {cadence.heartbeat_every:g} s. Just before it, even a "
            f"healthy leader has only {room:g} s of trust left: its command would be stopped for no reason. {advice}."
        )

    @property
    def margin(self) -> float:
        """SIGKILL goes out this long before trust ends."""
        return min(KILL_MARGIN, self.grace / 2)

    @property
    def session_grace(self) -> float | None:
        """Until when a check of the session is believed; None where the ttl would be quicker than that."""
        bound = self.grace + SESSION_MARGIN
        return bound if bound < 0.8 * self.ttl else None


class Act(Enum):
    """What the command's process group needs now."""

    RUN = "run"
    TERM = "SIGTERM"
    KILL = "SIGKILL"


def act(now: float, *, until: float, told_at: float | None, timing: Timing) -> Act:
    """The rule: `until` is the end of trust as far as it was won, `told_at` the time of SIGTERM."""
    if now >= until - timing.margin or (told_at is not None and now >= told_at + timing.grace):
        return Act.KILL
    return Act.TERM if told_at is not None or now >= until - timing.grace else Act.RUN


def election_for(
    url: object, name: str, *, timing: Timing, label: str | None = None, schema: str = "tenure", migrate: bool = True
) -> Election:
    """An election whose belief always leaves room for stopping a command."""
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


def find(command: Sequence[str]) -> tuple[int, str] | None:
    """What is wrong with a command before it is run: a shell's exit code and the reason; None if it can be run."""
    if shutil.which(command[0]) is not None:
        return None
    if os.path.exists(command[0]) and os.sep in command[0]:  # noqa: PTH110 - a name, not yet a path
        return CANNOT_EXECUTE, f"{command[0]!r} cannot be executed"
    return NOT_FOUND, f"{command[0]!r} was not found"


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How it ended: an exit code, and the signal that asked this process to end."""

    code: int
    signal: int | None = None


class Lead:
    """Runs a command while an election is led.

    To be used once, from the main thread, before any other thread was started.
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
        """Take part, and return when it is over. `wait` bounds the time until the first term; 0 means one try."""
        with Guard() as guard:
            election = self._election
            try:
                election.start()
                if wait == 0 and election.wait_until_leading(0) is None:
                    self._say(f"not leading {election.name!r}{self._led_by()}")
                    return CommandOutcome(NOT_LEADING)
                with Wakeups() as wakeups:
                    self._wakeups, self._guard = wakeups, guard
                    election.observe(wakeups.wake)
                    return self._terms(wait)
            finally:
                election.stop()

    def _terms(self, wait: float | None) -> CommandOutcome:
        assert self._wakeups is not None  # noqa: S101 - set by run
        signals, election = self._wakeups, self._election
        deadline = None if not wait else boottime() + wait
        told, since = False, boottime()
        while signals.caught is None:
            term = election.enter_body()
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
                election.leave_body(term)
            if outcome is not None:
                return outcome
            since = boottime()
        return CommandOutcome(BY_SIGNAL + signals.caught, signals.caught)

    def _term(self, term: Term) -> CommandOutcome | None:
        """One term with the command in it; None to go on with the next."""
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
        kept = [] if lock is None else [os.dup(lock)]  # the heartbeat thread may let go of its own at any time
        try:
            if not term.trusted:
                return None  # and so the lock may be another identity's
            env = {
                **os.environ,
                "TENURE_ELECTION": term.election,
                "TENURE_TERM": str(term.number),
                "TENURE_NODE": term.node,
                "TENURE_SCHEMA": term.schema,
            }
            return Group(self._command, env, kept)
        finally:
            for fd in kept:
                os.close(fd)

    def _watch(self, command: Group, term: Term) -> tuple[str, int]:
        """See the command to its end. Returns why it was stopped ('' if it ended by itself) and its exit code."""
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
                by_itself = term.trusted  # if not, the guard was quicker than we
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
                moments.append(now + 0.02)  # the last of the group ends without telling us
            signals.wait(min(moment for moment in moments if moment > now) - now)

    def _signal(self, command: Group, number: signal.Signals, why: str) -> None:
        refused = "" if command.send(number) else " failed: it runs as another user and must stop by itself"
        if why:
            self._say(f"{why}: {number.name} to process group {command.pid}{refused}")

    def _reason(self, command: Group, term: Term, until: float, now: float) -> str:
        """Why the group must stop, if it must."""
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
        """For people; a database that does not answer is no reason to stop."""
        try:
            leader = self._election.leader()
        except TenureError:
            return ""
        return f": {leader.label} leads in term {leader.term}" if leader is not None else ""


def _until(term: Term, known: float) -> float:
    """Until when nobody else can lead. After a request to resign the term stays ours, for as long as was won before."""
    now = boottime()
    if (left := term.remaining) > 0:
        return now + left
    return known if term.reason in VOLUNTARY else min(known, now)


def _read(code: int) -> str:
    if code > BY_SIGNAL:
        with suppress(ValueError):
            return f"{signal.Signals(code - BY_SIGNAL).name} ({code})"
    return f"exit code {code}"


_PDEATHSIG = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"tenure: cannot run {sys.argv[2]!r}: {error.strerror}", file=sys.stderr)
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
"""Run by a fresh interpreter that then becomes the command: what is done between fork and exec in a process with threads can hang."""


class Group:
    """A command in a session and process group of its own, with all that it starts and does not move elsewhere."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], kept: Sequence[int]) -> None:
        if sys.platform == "linux" and sys.executable:
            command = [sys.executable, "-I", "-S", "-c", _PDEATHSIG, str(os.getpid()), *command]
        self._process = subprocess.Popen(command, env=env, pass_fds=kept, start_new_session=True)  # noqa: S603 - what the user asked for
        self.pid = self._process.pid

    @property
    def code(self) -> int:
        """Its exit code as a shell would say it."""
        code = self._process.returncode
        return BY_SIGNAL - code if code < 0 else code

    def ended(self) -> bool:
        """Whether the command itself has ended."""
        return self._process.poll() is not None

    def exists(self) -> bool:
        """Whether anything of it is left, once the command itself has ended."""
        with suppress(ChildProcessError):  # orphans come to us where we are the first process of a container
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # something of it has another user now
            return True
        return True

    def send(self, number: signal.Signals) -> bool:
        """Signal the whole group; False if that is not allowed."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return True


class Guard:
    """A process that kills the command's group when this one dies or is frozen. Forked before there are threads."""

    _MESSAGE = struct.Struct("=qd")

    def __init__(self) -> None:
        self.gone = False
        """Somebody killed it. The command still ends with this process, but not if this process is frozen."""

    def __enter__(self) -> Self:
        reader, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writer)
            self._live(reader)
        os.close(reader)
        os.set_blocking(self._writer, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._writer)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def tell(self, group: int, deadline: float) -> None:
        """Kill this process group at that time, unless told otherwise before. 0: nothing to kill."""
        try:
            os.write(self._writer, self._MESSAGE.pack(group, deadline))
        except BlockingIOError:
            return  # it is frozen, and acts on the last that it has read
        except BrokenPipeError:
            self.gone = True

    def _live(self, reader: int) -> NoReturn:
        try:
            for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
                signal.signal(ignored, signal.SIG_IGN)
            os.setsid()
            _name_process(b"tenure guard")
            nowhere = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nowhere, standard)
            os.closerange(3, reader)
            os.closerange(reader + 1, reader + 1024)
            self._guard(reader)
        finally:
            os._exit(0)

    def _guard(self, reader: int) -> None:
        group, deadline = 0, 0.0
        while True:
            left = deadline - boottime()
            if group and left <= 0:
                with suppress(OSError):
                    os.killpg(group, signal.SIGKILL)
                left = TICK  # until we are told that it is gone
            if not readable_within(reader, max(left, 0.0) if group else None):
                continue
            message = os.read(reader, self._MESSAGE.size)
            if len(message) < self._MESSAGE.size:
                if group:
                    os.killpg(group, signal.SIGKILL)
                return
            group, deadline = self._MESSAGE.unpack(message)


def _name_process(name: bytes) -> None:
    """What `ps` and `top` call it, where that can be set."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(15, name)
