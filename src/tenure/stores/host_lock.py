"""Host evidence: proves that a node on this host is dead, in milliseconds instead of a ttl (G6).

A node takes an exclusive `flock` on a file of its own before its first beat and keeps it for its life. The kernel drops
the lock when the last process that has the descriptor is gone. Children that run our work inherit the descriptor, so
the lock outlives the parent as long as they do. Another node proves the death by getting the lock (shared, so that
probers do not disturb each other), after it has checked that this is the file named in the node's row: same boot,
device, inode and nonce. What it cannot check proves nothing.

A pidfd tells *when* to look. It is not a proof by itself: working children may have outlived their parent.

On SQLite the file also carries the pulse, so a heartbeat needs no write to the user's database.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import secrets
import stat
import tempfile
import threading
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import ModuleType

from tenure.core.cluster import HostCard, NodeId
from tenure.util.fork import ForkOrder, in_child

try:
    import fcntl as _fcntl
except ImportError:  # Windows: no host evidence, the ttl decides
    fcntl: ModuleType | None = None
else:
    fcntl = _fcntl

_PULSE_BYTES = 8
_IDENTITY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTENT = re.compile(rb".{%d}[0-9a-f]{32}" % _PULSE_BYTES, re.DOTALL)


class Proof(Enum):
    """The result of a probe."""

    DEAD = "dead"
    ALIVE = "alive"
    NOTHING = "nothing"


class LockFile:
    """This node's own lock file."""

    def __init__(self, directory: Path, node: NodeId) -> None:
        self.path = directory / f"{node}.lock"
        self._nonce = secrets.token_hex(16)
        self._fd = os.open(
            self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), _mode(directory)
        )
        try:
            if fcntl is not None:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._fd, (0).to_bytes(_PULSE_BYTES, "little") + self._nonce.encode(), 0)
            self._status = os.fstat(self._fd)
        except OSError:
            os.close(self._fd)
            raise

    def card(self) -> HostCard:
        """The data by which other nodes find and check this file."""
        return HostCard(
            boot_id=boot_id(),
            pid=os.getpid(),
            pid_namespace=pid_namespace(),
            started=started(os.getpid()),
            device=self._status.st_dev,
            inode=self._status.st_ino,
            nonce=self._nonce,
        )

    def pulse(self, number: int) -> None:
        """Write a sign of life. No flush: a power failure ends all watchers too."""
        os.pwrite(self._fd, number.to_bytes(_PULSE_BYTES, "little"), 0)

    def intact(self) -> bool:
        """True if other nodes still find this very file under its name."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self._status.st_dev, self._status.st_ino)

    def still_open(self) -> bool:
        """True if the descriptor is still ours: an application may close every descriptor that it does not know."""
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._status.st_dev, self._status.st_ino)

    def fileno(self) -> int:
        """The descriptor that children which run our work inherit."""
        return self._fd

    def let_go(self) -> None:
        """In a forked child: close, never unlock. The lock belongs to all processes that share the descriptor."""
        os.close(self._fd)

    def remove(self) -> None:
        """Delete the file after the node has left."""
        if self.still_open():
            os.close(self._fd)
        self.path.unlink(missing_ok=True)


def probe(directory: Path, node: NodeId, card: HostCard) -> Proof:
    """Try to prove that a node is dead."""
    if fcntl is None or card.boot_id != boot_id() or not card.boot_id:
        return Proof.NOTHING
    fd = _open_matching(directory, node, card)
    if fd is None:
        return Proof.NOTHING
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Proof.ALIVE
    except OSError:
        return Proof.NOTHING
    else:
        return Proof.DEAD
    finally:
        os.close(fd)


def read_pulse(directory: Path, node: NodeId, card: HostCard) -> int | None:
    """The count in another node's lock file; None if it cannot be observed."""
    fd = _open_matching(directory, node, card)
    if fd is None:
        return None
    try:
        return int.from_bytes(os.pread(fd, _PULSE_BYTES, 0), "little")
    except OSError:
        return None
    finally:
        os.close(fd)


def last_pulse_at(directory: Path, node: NodeId) -> float | None:
    """The wall-clock time of the last write to a lock file, for display only."""
    path = file_of(directory, node, ".lock")
    try:
        return None if path is None else path.stat().st_mtime
    except OSError:
        return None


def file_of(directory: Path, node: object, suffix: str) -> Path | None:
    """The path of a node's file, made from its id. None for an id that would lead elsewhere: rows are not trusted."""
    plain = isinstance(node, str) and re.fullmatch(r"[\w-]{1,64}", node, re.ASCII)
    return directory / f"{node}{suffix}" if plain else None


def clear(directory: Path, node: NodeId) -> None:
    """Remove the files of a dead node."""
    lock, bell = (file_of(directory, node, suffix) for suffix in (".lock", ".bell"))
    if lock is not None:
        lock.unlink(missing_ok=True)
    with suppress(OSError):
        if bell is not None and stat.S_ISFIFO(bell.lstat().st_mode):
            bell.unlink()


def sweep(directory: Path, older_than: float) -> None:
    """Remove unlocked lock files of nodes that were last written before this time (seconds since 1970).

    The folder may contain other programs' files, such as `poetry.lock`: a node's lock file is recognised by its name
    and its content.
    """
    if fcntl is None:
        return
    for path in directory.glob("*.lock"):
        if not _IDENTITY.fullmatch(path.stem) or (fd := _open_plain(path)) is None:
            continue
        try:
            if os.fstat(fd).st_mtime < older_than and _CONTENT.fullmatch(os.pread(fd, 64, 0)):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                clear(directory, path.stem)
        except OSError:
            continue
        finally:
            os.close(fd)


def watch_process(card: HostCard) -> int | None:
    """A descriptor that becomes readable when the process ends; None if the platform has none, or if it is another
    process.

    All nodes of this process share it: a hundred candidates in four processes watch four processes. `forget_process`
    gives it back.
    """
    if not hasattr(os, "pidfd_open") or card.boot_id != boot_id() or card.pid_namespace != pid_namespace():
        return None
    with _WATCHED_MUTEX:
        watched = _WATCHED.get((card.pid, card.started))
        if watched is None:
            fd = _pidfd(card)
            if fd is None:
                return None
            watched = _WATCHED[card.pid, card.started] = _Watched(fd)
        watched.users += 1
        return watched.fd


def forget_process(fd: int) -> None:
    """One node stops watching this process. The last one closes the descriptor."""
    with _WATCHED_MUTEX:
        for process, watched in _WATCHED.items():
            if watched.fd == fd:
                watched.users -= 1
                if not watched.users:
                    del _WATCHED[process]
                    os.close(fd)
                return


class _Watched:
    """A process that nodes of this process watch."""

    def __init__(self, fd: int) -> None:
        self.fd, self.users = fd, 0


_WATCHED: dict[tuple[int, int], _Watched] = {}
_WATCHED_MUTEX = threading.Lock()


@in_child(ForkOrder.FILES)
def _after_fork_in_child() -> None:
    global _WATCHED_MUTEX  # noqa: PLW0603 - another thread of the parent may have held it
    _WATCHED_MUTEX = threading.Lock()
    for watched in _WATCHED.values():
        os.close(watched.fd)
    _WATCHED.clear()


def _pidfd(card: HostCard) -> int | None:
    try:
        fd = os.pidfd_open(card.pid)
    except OSError:
        return None
    if started(card.pid) != card.started:  # the pid was reused
        os.close(fd)
        return None
    return fd


def runtime_directory() -> Path | None:
    """$TENURE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/tenure, else a private temporary folder; None if none is safe."""
    given = os.environ.get("TENURE_RUNTIME_DIR")
    user = os.getuid() if hasattr(os, "getuid") else 0
    candidates = [Path(given)] if given else []
    if not given and (xdg := os.environ.get("XDG_RUNTIME_DIR")) and os.access(xdg, os.W_OK):
        candidates.append(Path(xdg) / "tenure")
    if not given:
        with suppress(FileNotFoundError):  # no temporary folder can be written to: a container with a read-only root
            candidates.append(Path(tempfile.gettempdir()) / f"tenure-{user}")
    return next((path for path in candidates if _private(path, user)), None)


def make_beside(directory: Path, database: os.stat_result) -> str:
    """Create the folder beside a database file, for users who may write the file. Returns why it cannot be
    used, or ''."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        if hasattr(os, "geteuid"):
            with suppress(OSError):  # only root may give it to the database's owner, only a member to its group
                owner = database.st_uid if os.geteuid() == 0 else -1
                os.chown(directory, owner, database.st_gid, follow_symlinks=False)
    if hasattr(os, "geteuid"):
        with suppress(OSError):
            fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(fd).st_uid in {os.geteuid(), database.st_uid}:
                    os.fchmod(fd, _folder_mode(database))  # the database's mode may have changed since it was made
            finally:
                os.close(fd)
    return distrusted(directory, database)


def distrusted(directory: Path, database: os.stat_result) -> str:
    """Why the folder beside a database cannot be used, or ''."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return "is a symbolic link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
    if not _may_write(database, status.st_uid):
        return f"belongs to user {status.st_uid}, who may not write the database"
    foreign = status.st_mode & 0o020 and status.st_gid != database.st_gid
    if hasattr(os, "geteuid") and (status.st_mode & 0o022 & ~_folder_mode(database) or foreign):
        return (
            "may be written by users who may not write the database "
            f"(mode {stat.S_IMODE(status.st_mode):o}, group {status.st_gid})"
        )
    return ""


def _folder_mode(database: os.stat_result) -> int:
    """The owner's rights, and those of the other users who may write the database."""
    return 0o700 | sum(bits for write, bits in ((0o020, 0o070), (0o002, 0o007)) if database.st_mode & write)


def _may_write(database: os.stat_result, user: int) -> bool:
    """True if a user may write the database, by its mode and the system's groups."""
    if user in {0, database.st_uid} or database.st_mode & 0o002 or not hasattr(os, "getgrouplist"):
        return True
    if not database.st_mode & 0o020:
        return False
    if user == os.geteuid():
        return database.st_gid in {os.getegid(), *os.getgroups()}
    import pwd

    try:
        known = pwd.getpwuid(user)
    except KeyError:
        return False
    return database.st_gid in os.getgrouplist(known.pw_name, known.pw_gid)


@functools.cache
def boot_id() -> str:
    """The kernel's id of this boot; '' if it has none. Read once: no process outlives its boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """The id of this process's pid namespace. A pid has a meaning only inside one."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def started(pid: int) -> int:
    """When a process started, in ticks since boot; 0 if that cannot be read, which proves nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _open_matching(directory: Path, node: NodeId, card: HostCard) -> int | None:
    """Open the node's lock file if it matches the card. The name is made from the id, never read from a row."""
    path = file_of(directory, node, ".lock")
    if path is None:
        return None
    fd = _open_plain(path)
    if fd is None:
        return None
    try:
        status = os.fstat(fd)
        nonce = os.pread(fd, 64, _PULSE_BYTES).decode("ascii", errors="replace")
    except OSError:
        os.close(fd)
        return None
    if (status.st_dev, status.st_ino, nonce) != (card.device, card.inode, card.nonce):
        os.close(fd)
        return None
    return fd


def _open_plain(path: Path) -> int | None:
    """Open a regular file: not a link, and nothing on which opening or reading could block, such as a named pipe."""
    flags = (getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
    try:
        fd = os.open(path, functools.reduce(operator.or_, flags, os.O_RDONLY))
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return fd


def _mode(directory: Path) -> int:
    """A user who may enter the directory may read and probe its files."""
    return stat.S_IMODE(directory.stat().st_mode) & 0o666


def _private(path: Path, user: int) -> bool:
    """Create the folder if necessary. A folder that another user owns or may write proves nothing."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError:
        return False
    owned = not hasattr(os, "getuid") or status.st_uid == user
    return stat.S_ISDIR(status.st_mode) and owned and not status.st_mode & 0o022
