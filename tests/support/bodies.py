"""Bodies of jobs that run in processes of their own, which find them here."""

import asyncio
import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import aiosqlite

from tenure import Run, current_run
from tenure.errors import NotYet


def pid_of(run: Run) -> None:
    run.log(f"{run.job} {run.key} {run is current_run()}")
    run.log(os.getpid())


def fails() -> None:
    raise ValueError("in the child")


def fails_at_length() -> None:
    raise ValueError("bad thing\n  row 1\nrow 2: also bad")


def forgets_await(run: Run, path: str) -> None:
    async def work() -> None:
        async with aiosqlite.connect(path) as conn:
            await conn.execute("INSERT INTO invoice VALUES ('one')")
            run.complete(conn)
            await conn.commit()

    asyncio.run(work())


def dies() -> None:
    os._exit(3)


def sleeps() -> None:
    time.sleep(60)


def says_much(run: Run) -> None:
    for number in range(3000):
        run.log(f"line {number}")


def says(line: str, run: Run) -> None:
    run.log(line)


def starts_a_stranger_and_sleeps(pidfile: str) -> None:
    """By the shell, whose children inherit whatever is not kept from them."""
    os.system(f"sleep 60 & echo $! > {pidfile}")  # noqa: S605 - a path of the test's own
    time.sleep(60)


def starts_a_stranger_and_dies(pidfile: str) -> None:
    os.system(f"sleep 60 & echo $! > {pidfile}")  # noqa: S605
    os._exit(3)


def lists_what_is_inherited(run: Run) -> None:
    listed = subprocess.run(["/bin/ls", "-l", "/proc/self/fd"], close_fds=False, stdout=subprocess.PIPE, check=True)
    for line in listed.stdout.decode().splitlines():
        run.log(line.rpartition(" -> ")[2])


def shouts_in_threads(run: Run) -> None:
    def shout() -> None:
        for _ in range(50):
            run.log("ä" * 40_000)

    threads = [threading.Thread(target=shout) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def leaves_a_thread(run: Run) -> None:
    def later() -> None:
        while not _LATE:  # until the next body is at work
            time.sleep(0.005)
        run.log("too late")
        _LATE.append(-1)

    threading.Thread(target=later, daemon=True).start()


def comes_after(run: Run) -> None:
    _LATE.append(run.id)
    deadline = time.monotonic() + 5
    while _LATE[-1] != -1 and time.monotonic() < deadline:
        time.sleep(0.005)
    run.log("the late one has spoken" if _LATE[-1] == -1 else "nobody was late")
    run.log(os.getpid())


def speaks_for_another(run: Run) -> None:
    """As a process that an earlier body has forked would."""
    run._control.parent._pipe.send_bytes(b'["log", 0, "not mine"]')
    run.log(os.getpid())


def talks_nonsense(run: Run) -> None:
    run._control.parent._pipe.send_bytes(b"\x80\x04nonsense")
    time.sleep(60)


def closes_everything() -> None:
    os.closerange(3, 200)
    time.sleep(60)


def exits_with_three(run: Run) -> None:
    run.log(subprocess.run(["/bin/sh", "-c", "exit 3"], check=False).returncode)


def cannot_be_printed() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        @property
        def __cause__(self) -> BaseException:  # type: ignore[override]
            raise RuntimeError("no")

    raise Unprintable


def naps(seconds: float) -> None:
    time.sleep(seconds)


def touch_and_sleep(path: str, seconds: float) -> None:
    Path(path).touch()
    time.sleep(seconds)


_LATE: list[int] = []


def not_yet(run: Run, file: str) -> None:
    if not Path(file).exists():
        raise NotYet("20ms", f"{Path(file).name} is not there (attempt {run.attempt})")


def not_yet_wrong() -> None:
    raise NotYet("5 minutes")


def hangs_deep_inside() -> None:
    _hangs()


def _hangs() -> None:
    time.sleep(60)


def holds_the_interpreter() -> None:
    """In C, without ever letting another thread of this process run."""
    import ctypes

    ctypes.PyDLL(None).sleep(60)


def freezes_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)


def noted(run: Run) -> Iterator[None]:
    """To be put around."""
    run.log(f"enter in {os.getpid()}")
    try:
        yield
    finally:
        run.log(f"leave in {os.getpid()}")


def writes_its_own(path: str) -> None:
    """To be killed: `Notes` is put around it, and writes beside it."""
    Path(path, "body").touch()
    time.sleep(60)


class Notes:
    """Writes into a file what is entered and left, where a process may be killed."""

    def __init__(self, run: Run) -> None:
        self._folder = Path(os.environ["NOTES_FOLDER"])
        self._attempt = run.attempt

    def __enter__(self) -> None:
        (self._folder / f"entered {self._attempt}").touch()

    def __exit__(self, *_: object) -> None:
        (self._folder / f"left {self._attempt}").touch()


def chats(witness: str, pause: float, run: Run) -> None:
    """Log numbers for ever. The witness learns of each after it was logged."""
    notes = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in itertools.count():
        run.log(f"line {number}")
        run.progress(number, text="chatting")
        os.write(notes, f"{time.monotonic()} {number}\n".encode())
        time.sleep(pause)


async def chats_on_a_loop(witness: str, pause: float, run: Run) -> None:
    notes = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in itertools.count():
        run.log(f"line {number}")
        run.progress(number, text="chatting")
        os.write(notes, f"{time.monotonic()} {number}\n".encode())
        await asyncio.sleep(pause)


def goes_on_silently(run: Run) -> None:
    """What is said last before a long silence must be heard, too."""
    for number in range(100):
        run.progress(number, 900, "counting")
    run.progress(100, 900, "resting")
    run.log("resting")
    run.wait(60)


def returns(value: object = None) -> object:
    return value


def returns_too_much() -> str:
    return "x" * 100_000
