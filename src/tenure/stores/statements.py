"""Reads the named statements of a `.sql` file: `-- name: beat`, then comments and one statement."""

from __future__ import annotations

import re
from importlib import resources


def load(store: str, file: str = "queries.sql", **replaced: str) -> dict[str, str]:
    """The statements of one file of a store by name, with `{schema}` and the like replaced by names that were checked before."""
    text = _read(store, file, replaced)
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return {name: _bare(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations(store: str, **replaced: str) -> list[tuple[int, str]]:
    """The numbered migrations of one store, in order."""
    folder = resources.files("tenure.stores") / store / "sql"
    names = sorted(entry.name for entry in folder.iterdir() if re.match(r"\d{3}_.*\.sql$", entry.name))
    return [(int(name[:3]), _read(store, name, replaced)) for name in names]


def _read(store: str, name: str, replaced: dict[str, str]) -> str:
    text = (resources.files("tenure.stores") / store / "sql" / name).read_text(encoding="utf-8")
    for word, value in replaced.items():
        text = text.replace("{" + word + "}", value)
    return text


def _bare(body: str) -> str:
    """The statement without its comments: the server need not read them at every beat."""
    lines = [re.sub(r"\s+--\s.*$", "", line) for line in body.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(line for line in lines if line.strip())
