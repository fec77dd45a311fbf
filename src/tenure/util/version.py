"""The version of this library: what `tenure --version` prints, and what each node writes down about itself."""

from __future__ import annotations

import re

__version__ = "0.1.0"


def order(version: str) -> tuple[int, ...]:
    """By which versions compare: '0.10.0' comes after '0.9.1'."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
