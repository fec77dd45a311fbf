"""What a test needs beyond Python, and what happens when it is missing."""

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import clocks, pgbouncer, postgres, valkey

TOOLS = Path(__file__).parents[3] / ".tools/usr/bin"


def promtool() -> str | None:
    """The program that tests alert rules of Prometheus."""
    return shutil.which("promtool", path=f"{os.environ['PATH']}:{TOOLS}")


AVAILABLE: dict[str, Callable[[], bool]] = {
    "postgres": lambda: "wheel" in postgres.installed(),
    "pgbouncer": lambda: pgbouncer.find() is not None,
    "promtool": lambda: promtool() is not None,
    "gcc": clocks.available,
    "valkey": lambda: valkey.find() is not None and importlib.util.find_spec("redis") is not None,
}


def need(component: str) -> None:
    """Skip the test when the component is missing; fail it in CI, where everything must be there."""
    if AVAILABLE[component]():
        return
    why = f"{component} is not installed here; `python3 dev.py test` gets it or says how"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
