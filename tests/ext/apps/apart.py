"""A body for a process of its own."""

import os
from pathlib import Path


def leave_a_file(path: str, text: str = "") -> None:
    Path(path).write_text(f"{text} {os.getpid()}")
