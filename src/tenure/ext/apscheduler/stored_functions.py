"""Looks up the function that a stored job names, in what the application has loaded. It imports and calls nothing.

A name in a row is not trusted. It finds a plain function only if the function itself has that name, in a module of the
application. So a row can neither reach through a module into its imports (`shop:os.system`), nor name a class, a
lambda, a method, or anything in a library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

MAIN = "__main__"
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Builder:
    """The module that made a scheduler."""

    module: str
    package: str
    """The outermost package; '' for a program that is not in one."""


def builder() -> Builder:
    """The calling module: the nearest one outside this package, the standard library and Flask-APScheduler."""
    frame = sys._getframe(1)  # noqa: SLF001 - how logging and warnings find their callers
    while True:
        module = str(frame.f_globals.get("__name__", MAIN))
        top = module.partition(".")[0]
        wraps = "apscheduler" in top.lower() and any(part in frame.f_code.co_filename for part in _INSTALLED)
        if not (wraps or top in sys.stdlib_module_names or module.startswith(__package__)):
            package = frame.f_globals.get("__package__") or "" if top == MAIN else top
            return Builder(module, str(package).partition(".")[0])
        if frame.f_back is None:
            return Builder(MAIN, "")
        frame = frame.f_back


class Loaded:
    """The modules of an application."""

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = tuple(dict.fromkeys((*filter(None, packages), MAIN)))

    def find(self, reference: str) -> Callable[..., Any] | None:
        """The function 'module:function', if it is loaded and belongs to the application."""
        module, _, path = reference.partition(":")
        space = _names(module) if self.has(module) else None
        if space is None:
            return None
        *classes, last = path.split(".")
        for name in classes:
            inner = space.get(name)
            if not isinstance(inner, type) or inner.__module__ != module:
                return None
            space = vars(inner)
        found = space.get(last)
        if classes:  # a method would want its instance
            found = found.__func__ if isinstance(found, staticmethod) else None
        if not isinstance(found, FunctionType) or (found.__module__, found.__qualname__) != (module, path):
            return None
        return found

    def has(self, module: str) -> bool:
        """Whether a module of this name belongs to the application."""
        return any(module == package or module.startswith(f"{package}.") for package in self.packages)

    def may_come(self, reference: str) -> bool:
        """Whether it may be found later: its module is not loaded yet, or is still being loaded."""
        module = reference.partition(":")[0]
        if not self.has(module):
            return False
        loaded = sys.modules.get(module)
        spec = getattr(loaded, "__spec__", None)
        return loaded is None or module == MAIN or bool(getattr(spec, "_initializing", False))


def _names(module: str) -> Mapping[str, object] | None:
    """The names in a loaded module, read without its `__getattr__`, which may import."""
    loaded = sys.modules.get(module)
    return object.__getattribute__(loaded, "__dict__") if isinstance(loaded, ModuleType) else None
