"""Shorter waits: constants of tenure with other values, for tests of what follows after them."""

import sys
from collections.abc import Callable
from types import ModuleType


def give(put: Callable[[ModuleType, str, object], None] = setattr, **values: object) -> None:
    """Give constants other values wherever they are imported: `give(monkeypatch.setattr, SLACK=4.0)`."""
    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "tenure"]
    for name, value in values.items():
        found = [module for module in ours if name in vars(module)]
        assert found, f"no module of tenure has {name}"
        for module in found:
            put(module, name, value)
