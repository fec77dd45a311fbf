"""Disks and networks of our own, which fill up and break: namespaces of the kernel, also without root.

`elsewhere(play, …)` runs a function in a child process with mounts and a network of its own. There `small_disk(8)`
mounts a file system that is soon full, and `Network` makes lines to other networks that lose packets. All of it ends
with the child.
"""

import ctypes
import os
import pickle
import signal
import struct
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from harness import processes, scratch

NEWNS, NEWUSER, NEWNET = 0x00020000, 0x10000000, 0x40000000
PRIVATE, RECURSIVE = 1 << 18, 1 << 14
PR_SET_PDEATHSIG, PR_CAP_AMBIENT, RAISE = 1, 47, 2
CAPABILITIES = {"net_admin": 12, "sys_admin": 21}
_libc = ctypes.CDLL(None, use_errno=True)


def available() -> bool:
    """Whether this kernel lets us: some forbid namespaces to ordinary users."""
    flags = ["-n", "-m"] if os.geteuid() == 0 else ["-U", "-n", "-m"]
    with suppress(OSError):
        return subprocess.run(["unshare", *flags, "ip", "link"], check=False, capture_output=True).returncode == 0
    return False


def elsewhere(play: Callable[[], object]) -> Any:
    """Its answer. A child of ours plays, so that nothing of the namespaces is left when it ends."""
    scratch.root()  # ours to remove
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # other threads may hold locks: the child uses nothing of theirs
        child = os.fork()
    if child == 0:
        os.close(reads)
        os._exit(_played(play, writes))
    os.close(writes)
    try:
        with os.fdopen(reads, "rb") as answer:
            said = answer.read()
    except BaseException:  # somebody wants us to end
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    if not said:
        raise RuntimeError("the process with namespaces of its own died")
    done, outcome = pickle.loads(said)  # noqa: S301 - our own child wrote it
    if done:
        return outcome
    raise AssertionError(outcome)


def _played(play: Callable[[], object], writes: int) -> int:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _separate()
        answer = (True, play())
    except BaseException as error:  # the parent raises it
        traceback.print_exc()
        answer = (False, str(error))
    processes.end_all()
    with os.fdopen(writes, "wb") as pipe:
        pickle.dump(answer, pipe)
    sys.stderr.flush()
    return 0


def _separate() -> None:
    """Mounts and network of our own; for an ordinary user also a user namespace, in which it may use them."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", NEWNS | NEWNET | (0 if user == 0 else NEWUSER))
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _hand_down_capabilities()
    _call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
    run("ip", "link", "set", "lo", "up")


def _hand_down_capabilities() -> None:
    """To the programs that we start: `ip`, `tc`."""
    every = (1 << 32) - 1
    bits = sum(1 << number for number in CAPABILITIES.values())
    _call("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", every, every, bits, 0x1FF, 0x1FF, 0))
    for number in CAPABILITIES.values():
        _call("prctl", PR_CAP_AMBIENT, RAISE, number, 0, 0)


def _call(name: str, *args: Any) -> None:
    if getattr(_libc, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


class SmallDisk:
    """A file system of so many megabytes, in a folder that only we see."""

    def __init__(self, megabytes: int) -> None:
        self.folder = scratch.new_folder("disk")
        _call("mount", b"tmpfs", bytes(self.folder), b"tmpfs", 0, f"size={megabytes}m,mode=0777".encode())
        self._ballast = self.folder / "ballast"

    def fill(self) -> None:
        """To the last byte."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def empty(self) -> None:
        self._ballast.unlink()


class Line:
    """The line to another network: one end here, where the servers are, one there, where a worker is."""

    def __init__(self, number: int) -> None:
        self.device, self.here, self.there = f"line{number}", f"10.77.{number}.1", f"10.77.{number}.2"
        self._holder = subprocess.Popen([*scratch.dies_with_us(), "unshare", "-n", "sleep", "infinity"])
        ours = Path("/proc/self/ns/net").readlink()
        scratch.eventually(lambda: self._namespace.readlink() != ours, what="a network of its own")
        self._elsewhere("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", self.device, "type", "veth", "peer", "name", "uplink", "netns", str(self._holder.pid))
        run("ip", "address", "add", f"{self.here}/24", "dev", self.device)
        self._elsewhere("ip", "address", "add", f"{self.there}/24", "dev", "uplink")
        self._elsewhere("ip", "link", "set", "uplink", "up")
        run("ip", "link", "set", self.device, "up")
        run("tc", "qdisc", "add", "dev", self.device, "clsact")

    @contextmanager
    def far_end(self) -> Iterator[None]:
        """What we start meanwhile is at the other end."""
        with Path("/proc/thread-self/ns/net").open() as ours, self._namespace.open() as theirs:
            _call("setns", theirs.fileno(), NEWNET)
            try:
                yield
            finally:
                _call("setns", ours.fileno(), NEWNET)

    def lose(self, *directions: str, share: int = 1) -> None:
        """One of so many packets (a power of two) that come in from there (`ingress`) or go there (`egress`).

        Chosen by bits of the checksum of their headers, as this kernel has no die of its own.
        """
        which = ("match", "u16", "0", hex(share - 1), "at", "10")
        lost = ("action", "mirred", "egress", "redirect", "dev", SINK)
        for direction in directions:
            run("tc", "filter", "add", "dev", self.device, direction, "protocol", "ip", "u32", *which, *lost)

    def down(self) -> None:
        run("ip", "link", "set", self.device, "down")

    def heal(self) -> None:
        for direction in ("ingress", "egress"):
            run("tc", "filter", "del", "dev", self.device, direction)
        run("ip", "link", "set", self.device, "up")

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()

    @property
    def _namespace(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/ns/net")

    def _elsewhere(self, *command: str) -> None:
        with self.far_end():
            run(*command)


SINK = "sink"
"""A device where packets vanish."""


class Network:
    """`with Network(3) as network:` has so many lines. Each other end reaches us at `line.here`, and nobody else."""

    def __init__(self, lines: int) -> None:
        run("ip", "link", "add", SINK, "type", "veth", "peer", "name", "drain")
        run("ip", "link", "set", SINK, "up")
        self.lines = [Line(number) for number in range(lines)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self.lines:
            line.close()
