"""Bodies in processes of their own: for work that holds the interpreter, leaks, or must be killable.

A worker thread hands a body to a child process and waits for the child's answer or its death. Children are kept for the
next body. They hold the lock of their node, so that its death is not proved while they work, and die with it. A body
that should end is killed with its process.

A child knows by its own clock when its run is lost: the lease's deadline lies in memory that it shares with its parent,
which extends it with every heartbeat. A frozen parent extends nothing. An outage that the node survives kills no child:
children are killed once the ledger has taken their run away.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import logging
import math
import multiprocessing
import multiprocessing.process
import os
import pickle
import queue
import signal
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Signature
from multiprocessing import connection, reduction
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from tenure.core.arguments import encode_result
from tenure.core.messages import ClaimedRun
from tenure.core.planning import look_in
from tenure.core.records import Instant
from tenure.errors import NotYet
from tenure.jobs.functions import Function
from tenure.jobs.run_log import ProgressNote, step_of
from tenure.run import CURRENT, Run, RunControl
from tenure.scheduling import hangs
from tenure.scheduling.attempt import Attempt
from tenure.scheduling.hangs import StackFile
from tenure.scheduling.process_errors import MAX_ERROR, ProcessFailed, heard, told
from tenure.triggers import zone
from tenure.util.clock import boottime
from tenure.util.fork import ForkOrder, in_child
from tenure.util.signals import receive_exit_codes

logger = logging.getLogger("tenure")

TICK = 0.25
"""Seconds between two updates of a child's deadline."""
GOODBYE = 1.0
"""Seconds that an idle child may take to end."""
MAX_MESSAGE = 1 << 20
"""Bytes that a child may send at once. Our own messages are smaller than 64 KiB."""
STOPS = "its node stops"
PR_SET_PDEATHSIG = 1

_SPAWN = multiprocessing.get_context("spawn")
_NUMBER = struct.Struct("=Q")


class Child:
    """One process, which runs one body at a time. Bodies are numbered, so that their messages are not confused."""

    def __init__(self, lock_fileno: int | None) -> None:
        lock = _file_behind(lock_fileno)
        self._ours, theirs = _SPAWN.Pipe()
        self._deadline = _SPAWN.RawValue(ctypes.c_double, 0.0)
        self._out_of_time = _SPAWN.RawValue(ctypes.c_double, math.inf)
        self._stacks = StackFile()
        shared = theirs, self._deadline, self._out_of_time, _Inherited(self._stacks.fileno()), _Inherited(lock_fileno)
        self._process = _SPAWN.Process(target=_serve, args=shared, name="tenure child", daemon=True)
        try:
            self._process.start()
        except BaseException:
            self._ours.close()
            self._stacks.close()
            raise
        finally:
            theirs.close()
        # At exit multiprocessing would wait for it, and signal a number that may be another's by then.
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined] # noqa: SLF001
        self._pidfd = _pidfd(self._process.pid)
        self._numbers = itertools.count(1)
        self.lock = lock
        """The file whose lock it holds, if any."""
        self.clean = True
        """It reported how its last body ended, and sent nothing unexpected."""
        self.spent = False
        """It was told to end. Read and written under the mutex of `Processes`."""

    def run(self, attempt: Attempt, kwargs: dict[str, object], refuse_result: Callable[[Attempt, str], None]) -> None:
        """Run a body. Raises what it raised."""
        control, number = attempt.control, next(self._numbers)
        arounds = tuple(one for one in attempt.function.arounds if one.travels)
        function = replace(attempt.function, signature=Signature(), arounds=arounds)  # annotations need not travel
        claim = control.claim
        body = _Body(
            replace(function, takes={}),  # its arguments were checked here; checks cannot be pickled
            kwargs,
            attempt.claimed,
            attempt.token,
            getattr(control.tz, "key", "UTC"),
            claim.schema,
            claim.started_at,
        )
        message = bytes(reduction.ForkingPickler.dumps(body))
        self._deadline.value = control.until
        begun, limit = attempt.started_at, attempt.claimed.rules.timeout
        self._out_of_time.value = math.inf if begun is None or limit is None else begun + limit
        self.clean, clean = False, True
        failure: ProcessFailed | None = None
        try:
            self._ours.send_bytes(_NUMBER.pack(number) + message)
            while True:
                what, of, said = self._hear(control)
                if of != number:
                    clean = False  # something of an earlier body is still at work there
                elif what == "log":
                    attempt.run.log(said)
                elif what == "result":
                    attempt.result = said
                elif what == "no result":
                    refuse_result(attempt, said)
                elif what == "progress":
                    control.step(step_of(*json.loads(said)))
                elif what == "called":
                    attempt.called = True
                elif what == "completed":
                    control.note_completed()
                else:
                    failure = heard(said) if what == "failed" else None
                    break
        except (EOFError, OSError):
            ended = self._how_it_ended()
            if attempt.timed_out:
                attempt.hang = self._stacks.read()
            raise ProcessFailed(ended) from None
        except (ValueError, TypeError) as error:
            raise ProcessFailed(f"its process sent what cannot be read ({error}), and was ended") from None
        self.clean = clean
        if what == "not yet":
            again_in, reason = json.loads(said)
            raise NotYet(float(again_in), str(reason))
        if failure is not None:
            raise failure

    def _hear(self, control: RunControl) -> tuple[str, int, str]:
        """The next message and its body's number. Raises EOFError if the process is dead or has closed its pipe."""
        death = self._process.sentinel if self._pidfd is None else self._pidfd
        while True:
            self._deadline.value = control.until
            ready = connection.wait([self._ours, death], TICK)
            if self._ours in ready:
                what, number, said = json.loads(self._ours.recv_bytes(MAX_MESSAGE).decode("utf-8", "surrogatepass"))
                if what not in _WORDS:
                    raise ValueError(f"{what!r:.40} is not one of our words")
                return what, int(number), str(said)
            if ready and not self._ours.poll():  # it may have spoken just before it died
                raise EOFError

    def _how_it_ended(self) -> str:
        if not self.ended(GOODBYE):
            return "its process closed the pipe to its node, and was ended"
        self._process.join(GOODBYE)
        code = self._process.exitcode
        if code is None:
            return (
                "its process ended; how is not known, because this program ignores SIGCHLD or reaps its children itself"
            )
        return f"its process ended with signal {-code}" if code < 0 else f"its process ended with exit code {code}"

    def ended(self, within: float) -> bool:
        """Whether it is dead, or dies in that time. Not `is_alive`, which stays true where SIGCHLD is ignored."""
        death = self._process.sentinel if self._pidfd is None else self._pidfd
        return bool(connection.wait([death], within))

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is None:
                self._process.kill()
            else:  # where other code reaps our children, the number may belong to another process
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def dismiss(self) -> None:
        """Let it end by itself."""
        self._ours.close()

    def bury(self) -> None:
        """Wait for its end, and release everything that belongs to it."""
        self._ours.close()
        self._process.join(GOODBYE)
        self._stacks.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class Processes:
    """The children of one executor, started as needed. One mutex decides which are killed and which are used again."""

    def __init__(
        self, lock_fileno: Callable[[], int | None], refuse_result: Callable[[Attempt, str], None] = lambda *_: None
    ) -> None:
        self._lock_fileno, self._refuse_result = lock_fileno, refuse_result
        self._mutex = threading.Lock()
        self._idle: list[Child] = []
        self._busy: dict[Attempt, Child | None] = {}
        """None: its child is being started."""
        self._stopped = False
        _ALL.add(self)

    def prepare(self) -> None:
        """Raises RuntimeError if no body can begin in a child now."""
        if self._stopped:
            raise RuntimeError(f"{STOPS}, and starts no process any more")
        _hire_starter()

    def run(self, attempt: Attempt, kwargs: dict[str, object]) -> None:
        """Run a body in a child. Raises what it raised."""
        with self._mutex:
            self._busy[attempt] = None
        child: Child | None = None
        try:
            child = self._idle_child() or _start(lambda: Child(self._lock_fileno()))
            with self._mutex:
                if self._stopped:
                    attempt.control.tell(STOPS)
                if attempt.run.reason:
                    raise ProcessFailed(f"its process was not begun: {attempt.run.reason}")
                self._busy[attempt] = child
            child.run(attempt, kwargs, self._refuse_result)
        finally:
            with self._mutex:
                del self._busy[attempt]
                again = child is not None and child.clean and not child.spent and not self._stopped
                if child is not None and again:
                    self._idle.append(child)
            if child is not None and not again:
                child.kill()
                child.bury()

    def kill(self, attempt: Attempt) -> bool:
        """End the process of an attempt; False if it has none."""
        with self._mutex:
            if attempt not in self._busy:
                return False
            child = self._busy[attempt]
            if child is not None:
                child.spent = True
                child.kill()
        return True

    def stop(self) -> None:
        """The node leaves: end idle children, kill the others. Tell their attempts first: those are interrupted."""
        with self._mutex:
            self._stopped = True
            idle, self._idle = self._idle, []
            for attempt, child in self._busy.items():
                attempt.control.tell(STOPS)
                if child is not None:
                    child.spent = True
                    child.kill()
        for child in idle:
            child.dismiss()
        for child in idle:
            if not child.ended(GOODBYE):  # a thread of some body goes on in it
                child.kill()
            child.bury()

    def _idle_child(self) -> Child | None:
        """A live child that holds the node's present lock: a node that was declared dead comes back with another."""
        while True:
            with self._mutex:
                child = self._idle.pop() if self._idle else None
            if child is None or (child.lock == _file_behind(self._lock_fileno()) and not child.ended(0)):
                return child
            child.kill()
            child.bury()


_ALL: weakref.WeakSet[Processes] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """For a program that ends without a stop, where the kernel does not kill children with their parent."""
    for processes in list(_ALL):
        processes.stop()


def _file_behind(fileno: int | None) -> tuple[int, int] | None:
    """The file behind a descriptor. Its number may belong to another file by now; an open file keeps its own."""
    try:
        status = None if fileno is None else os.fstat(fileno)
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _pidfd(pid: int | None) -> int | None:
    """Becomes readable when the process ends, even if others inherited its pipes. None where there is no pidfd."""
    if pid is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # it is dead and reaped, and its sentinel says so; or there are no descriptors left
        return None


# One thread starts all children and lives as long as the process: a child dies with the thread that started it.

_WANTED: queue.SimpleQueue[tuple[Callable[[], Child], queue.SimpleQueue[Child | BaseException]]] = queue.SimpleQueue()
_STARTER: list[threading.Thread] = []
_MUTEX = threading.Lock()


def _hire_starter() -> None:
    """Raises RuntimeError if the system refuses that thread. The next call tries again."""
    with _MUTEX:
        if not (_STARTER and _STARTER[0].is_alive()):
            starter = threading.Thread(target=_serve_starts, name="tenure starter", daemon=True)
            starter.start()
            _STARTER[:] = [starter]


def _start(make: Callable[[], Child]) -> Child:
    _hire_starter()
    made: queue.SimpleQueue[Child | BaseException] = queue.SimpleQueue()
    _WANTED.put((make, made))
    answer = made.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _serve_starts() -> None:
    while True:
        make, made = _WANTED.get()
        try:
            made.put(make())
        except BaseException as error:
            made.put(error)


@in_child(ForkOrder.LOCKS)
def _after_fork_in_child() -> None:
    global _WANTED, _MUTEX  # other threads of the parent may have been at them
    _WANTED, _MUTEX = queue.SimpleQueue(), threading.Lock()
    _STARTER.clear()
    _ALL.clear()  # the parent's children are not ours to end


# Between parent and child

_WORDS = {"called", "log", "progress", "completed", "result", "no result", "done", "failed", "not yet"}


@dataclass(frozen=True, slots=True)
class _Body:
    """What a child needs to run a body."""

    function: Function
    kwargs: dict[str, object]
    claimed: ClaimedRun
    token: str
    tz: str
    schema: str
    began_at: Instant | None


class _Inherited:
    """A descriptor that a spawned child keeps."""

    def __init__(self, fileno: int | None) -> None:
        self.fileno = fileno

    def __reduce__(self) -> tuple[Callable[..., _Inherited], tuple[Any]]:
        return _inherit, (None if self.fileno is None else reduction.DupFd(self.fileno),)


def _inherit(duplicate: Any) -> _Inherited:
    return _Inherited(None if duplicate is None else duplicate.detach())


# In the child


def _serve(
    pipe: Connection, deadline: ctypes.c_double, out_of_time: ctypes.c_double, stacks: _Inherited, _lock: _Inherited
) -> None:
    """Run bodies until the parent closes the pipe, or dies."""
    _die_with_parent()
    _keep_descriptors()
    _leave_signals_to_parent()
    parent = Parent(pipe)
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        (number,) = _NUMBER.unpack_from(message)
        parent.listens_to(number)
        if watched := stacks.fileno is not None and math.isfinite(out_of_time.value):
            hangs.watch_this_process(stacks.fileno, out_of_time.value - boottime())
        answer = _do(message[_NUMBER.size :], lambda: deadline.value, number, parent)
        if watched:
            hangs.unwatch_this_process()
        parent.answer(*answer)


def _do(message: bytes, until: Callable[[], float], number: int, parent: Parent) -> tuple[str, str]:
    """Run one body, and report how it ended."""
    me = os.getpid()
    try:
        body: _Body = pickle.loads(message)  # noqa: S301 - from our parent
        control = _ChildControl(body.claimed, body.token, tz=zone(body.tz), schema=body.schema, until=until)
        control.parent, control.number, control.began_at = parent, number, body.began_at
        run = Run(control)
        current = CURRENT.set(run)
        try:
            parent.say(number, "called", "")
            result = body.function.call(run, body.kwargs)
            if (wrong := control.not_awaited()) is not None:
                raise wrong
        finally:
            CURRENT.reset(current)
        if result is not None:
            parent.say(number, *_encoded(result))
        answer = ("done", "")
    except NotYet as error:
        answer = _not_yet(error)
    except BaseException as error:
        answer = ("failed", told(error))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the body may have closed them
            stream.flush()
    if os.getpid() != me:
        os._exit(0)  # forked by the body, which it should not have left
    return answer


def _encoded(result: object) -> tuple[str, str]:
    try:
        return "result", encode_result(result)
    except Exception as error:
        return "no result", str(error)[:MAX_ERROR]


class Parent:
    """The way back. Threads of a body may send at once, and so may those of an earlier body."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._mutex, self._number = pipe, threading.Lock(), 0
        self._step: ProgressNote | None = None
        """The last progress that was not sent. A thread will send it soon."""
        in_child(ForkOrder.LOCKS)(self._forked)

    def listens_to(self, number: int) -> None:
        """This body begins."""
        with self._mutex:
            self._number, self._step = number, None

    def step(self, number: int, step: ProgressNote) -> None:
        """How far this body is. Sent a few times a second, whatever it says in between."""
        with self._mutex:
            if number != self._number:
                return
            waits, self._step = self._step is not None, step
        if not waits:
            timer = threading.Timer(TICK, self._send_step)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # there is no thread for it
                self._send_step()

    def say(self, number: int, what: str, said: str) -> bool:
        """Send a message of this body. False if it is over."""
        with self._mutex:
            if number != self._number:
                return False
            self._send(what, said)
            return True

    def answer(self, what: str, said: str) -> None:
        """Report how the body ended. Nothing more is sent for it."""
        self._send_step()
        with self._mutex:
            self._send(what, said)
            self._number = 0

    def _send_step(self) -> None:
        with self._mutex:
            step, self._step = self._step, None
            if step is not None and self._number:
                self._send("progress", json.dumps(step))

    def _send(self, what: str, said: str) -> None:
        # Small enough for one write, so that not even a process that the body forked can come between.
        message = json.dumps([what, self._number, said], ensure_ascii=False)
        self._pipe.send_bytes(message.encode("utf-8", "surrogatepass"))

    def _forked(self) -> None:
        self._mutex = threading.Lock()


class _ChildControl(RunControl):
    """Log lines, the progress and the completion of a run go to the parent."""

    __slots__ = ("number", "parent")
    number: int
    parent: Parent

    def log(self, line: str) -> None:
        if not self.parent.say(self.number, "log", line):
            logger.warning("%r is over, so this line is not kept with it: %s", Run(self), line)

    def step(self, step: ProgressNote) -> None:
        self.parent.step(self.number, step)

    def note_completed(self) -> None:
        super().note_completed()
        self.parent.say(self.number, "completed", "")


def _not_yet(error: NotYet) -> tuple[str, str]:
    try:
        return "not yet", json.dumps([look_in(error), str(error)[:MAX_ERROR]])
    except Exception as wrong:  # it does not say when to look again, or its reason cannot be printed
        wrong.__cause__ = error
        return "failed", told(wrong)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)


def _keep_descriptors() -> None:
    """What a body starts must not inherit our pipe, our sign of life, or the lock of the node."""
    opened = Path("/dev/fd")
    for number in [int(entry.name) for entry in opened.iterdir()] if opened.is_dir() else ():
        if number > 2:  # noqa: PLR2004 - stdin, stdout, stderr
            with contextlib.suppress(OSError):  # that of the listing
                os.set_inheritable(number, False)


def _leave_signals_to_parent() -> None:
    """A supervisor signals the whole group; the parent drains. Not SIG_IGN, which a body's children would inherit."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _nothing)
    receive_exit_codes()


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
