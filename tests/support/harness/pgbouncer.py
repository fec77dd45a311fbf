"""A real pgbouncer in front of a server: the pooler behind which session locks lie."""

import atexit
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import psycopg

from harness import scratch
from harness.postgres import Postgres

TOOLS = Path(__file__).resolve().parents[3] / ".tools"  # where dev.py unpacks it for users who cannot install


def find() -> Path | None:
    if program := shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"):
        return Path(program)
    unpacked = TOOLS / "usr" / "sbin" / "pgbouncer"
    return unpacked if unpacked.exists() else None


class PgBouncer:
    """`with PgBouncer(server, "transaction", pool_size=2, server_lifetime=1) as bouncer:`; keywords go into its ini
    file."""

    def __init__(self, server: Postgres, mode: str = "transaction", pool_size: int = 20, **settings: object) -> None:
        self.port = scratch.free_port()
        self.folder = scratch.new_folder("pgbouncer")
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        options = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "admin_users": "postgres",
            "pool_mode": mode,
            "default_pool_size": pool_size,
            "max_client_conn": 500,
            "ignore_startup_parameters": "extra_float_digits",  # as every Java or asyncpg shop sets it
            **settings,
        }
        ini = f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres\n[pgbouncer]\n"
        (self.folder / "ini").write_text(ini + "".join(f"{name} = {value}\n" for name, value in options.items()))

    def start(self) -> Self:
        program = find()
        assert program, "pgbouncer is not installed"
        libraries = os.pathsep.join(map(str, TOOLS.glob("usr/lib/*-linux-gnu")))
        env = {"LD_LIBRARY_PATH": libraries} if program.is_relative_to(TOOLS) else {}
        self.process = scratch.spawn_server([program, self.folder / "ini"], log=self.log, env=env)
        atexit.register(self.close)
        deadline = time.monotonic() + 10
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return self
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise RuntimeError(f"pgbouncer did not start: {error}\n{scratch.tail(self.log)}") from error
                time.sleep(0.01)

    def close(self) -> None:
        atexit.unregister(self.close)
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """SIGSTOP: sockets stay open, nothing passes."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}"

    def console(self, command: str) -> list[tuple[Any, ...]]:
        """A command of the admin console: "RECONNECT", "PAUSE", "RESUME", "SHOW POOLS"."""
        with psycopg.connect(self.url("pgbouncer"), autocommit=True) as connection:
            cursor = connection.execute(command.encode())
            return cursor.fetchall() if cursor.description else []
