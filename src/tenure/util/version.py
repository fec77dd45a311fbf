"""The version of this library: `tenure --version` prints it, and each node writes it into its facts."""

from __future__ import annotations

import re

__version__ = "0.1.0"


def order(version: str) -> tuple[int, ...]:
    """The order of versions: '0.10.0' comes after '0.9.1'."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
