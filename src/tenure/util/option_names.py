"""Refuses names of options that a constructor does not have, and says which one is meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec

from tenure.errors import ConfigurationError

P = ParamSpec("P")


def hinted(elsewhere: Mapping[str, str]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """`elsewhere`: what to write instead of the names that other libraries have."""

    def around(init: Callable[P, None]) -> Callable[P, None]:
        owner = init.__qualname__.partition(".")[0]
        known = [name for name in inspect.signature(init).parameters if name != "self"]

        @functools.wraps(init)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            for name, value in kwargs.items():
                if name not in known:
                    raise ConfigurationError(f"{owner}: {_advice(name, value, known, elsewhere)}")
            init(*args, **kwargs)

        return checked

    return around


def _advice(name: str, value: object, known: list[str], elsewhere: Mapping[str, str]) -> str:
    if hint := elsewhere.get(name):
        return f"{name}= is an option of another library. {hint.format(value=value)}"
    near = difflib.get_close_matches(name, known, 1)
    choice = f"Did you mean {near[0]}=?" if near else f"The options are {', '.join(known)}."
    return f"{name}= is not an option. {choice}"
