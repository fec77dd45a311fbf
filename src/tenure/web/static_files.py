"""The files that browsers load: known by name, kept in memory, and addressed by their hash, so that none goes stale."""

from __future__ import annotations

import hashlib
from importlib import resources

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class StaticFiles:
    """All files of the folder `static` that browsers may have."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {
            file.name: file.read_bytes()
            for file in resources.files("tenure.web").joinpath("static").iterdir()
            if any(file.name.endswith(ending) for ending in TYPES)
        }
        self._hashes = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in self._files.items()}

    def path(self, name: str) -> str:
        """The path of a file, below the page."""
        return f"static/{self._hashes[name]}/{name}"

    def find(self, given: str, name: str) -> tuple[bytes, str, bool] | None:
        """A file with its type, and whether this is its present hash."""
        if name not in self._files:
            return None
        kind = TYPES[name[name.rindex(".") :]]
        return self._files[name], kind, given == self._hashes[name]
