"""Reads SQL files: named statements (`-- name: beat`, a description, one statement) and whole scripts.

Placeholders in braces, such as `{schema}`, are replaced by values that the caller has checked.
"""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable

POSTGRES = "stores/postgres/sql"
SQLITE = "stores/sqlite/sql"
"""Folders of the package."""


def load(folder: str, *files: str, **replaced: str) -> dict[str, str]:
    """The statements of files in a folder of the package, by name."""
    found: dict[str, str] = {}
    for file in files:
        parts = re.split(r"^-- name: (\w+)$", read(_folder(folder) / f"{file}.sql", replaced), flags=re.MULTILINE)[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"{folder}/{file}.sql: a second statement is named {name!r}. Rename one of the two.")
            found[name] = _bare(body)
    return found


def scripts(folder: str) -> list[Traversable]:
    """The SQL files of a folder of the package, by name; none if the folder does not exist."""
    place = _folder(folder)
    entries = place.iterdir() if place.is_dir() else ()
    return sorted((entry for entry in entries if entry.name.endswith(".sql")), key=lambda entry: entry.name)


def read(file: Traversable, replaced: dict[str, str]) -> str:
    """The text of one file."""
    text = file.read_text(encoding="utf-8")
    for word, value in replaced.items():
        text = text.replace("{" + word + "}", value)
    return text


def _folder(name: str) -> Traversable:
    return resources.files("tenure").joinpath(*name.split("/"))


def _bare(body: str) -> str:
    """The statement without its comments, so that the server need not read them at every beat."""
    lines = [re.sub(r"\s+--\s.*$", "", line) for line in body.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(line for line in lines if line.strip())
