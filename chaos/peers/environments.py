"""A virtual environment for each peer, kept in .tools/peers and made again when its packages change."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from roster import Peer

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".tools" / "peers"
VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


class NotInstalled(Exception):
    """The packages could not be had."""


def python_of(peer: Peer) -> str:
    """The interpreter that has the peer's packages; installs them if need be.

    Peers with the same packages share one.
    """
    if not peer.packages:
        return sys.executable
    wanted = hashlib.sha256("\n".join([*peer.packages, sys.version]).encode()).hexdigest()
    folder = PLACE / f"{peer.app}-{wanted[:8]}"
    mark, python = folder / ".installed", folder / "bin" / "python"
    if not mark.exists():
        print(f"installing {' '.join(peer.packages)} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", *peer.packages)
        mark.touch()
    return str(python)


def versions_of(peer: Peer, python: str) -> str:
    """As people write them: `celery 5.7.0, redis 8.1.0`."""
    if not peer.shown:
        return "this checkout"
    said: dict[str, str] = json.loads(_run(python, "-c", VERSIONS, *peer.shown))
    return ", ".join(f"{name} {version}" for name, version in said.items())


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{' '.join(command[1:])}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
