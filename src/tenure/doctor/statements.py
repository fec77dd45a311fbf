"""Reads the doctor's own questions: `-- name: locks`, then comments and one statement."""

from __future__ import annotations

import re
from importlib import resources


def load(store: str, **replaced: str) -> dict[str, str]:
    """The statements by name, with `{schema}` replaced by a name that was checked before."""
    text = (resources.files("tenure.doctor") / f"{store}.sql").read_text(encoding="utf-8")
    for word, value in replaced.items():
        text = text.replace("{" + word + "}", value)
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return {
        name: re.sub(r"^\s*--.*\n", "", body, flags=re.MULTILINE).strip()
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
