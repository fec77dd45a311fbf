"""The id of a job that was given none: the same in every worker, because all of them make it of the same things.

It is made of the function and its arguments, and for a date of its time. Among jobs that are equal in these, the order in which a process adds them counts. The trigger is
no part of it: a job whose cron was changed in the code is still that job.
"""

from __future__ import annotations

import functools
import inspect
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC
from hashlib import blake2b
from itertools import count
from typing import Any

from tenure.ext.apscheduler.job import as_json, reference
from tenure.ext.apscheduler.triggers import DateTrigger

logger = logging.getLogger("tenure")

_DIGEST = 8
"""Bytes that stand for arguments in an id."""


class Identities:
    """Makes the ids of one scheduler."""

    def __init__(self) -> None:
        self._doubted: set[str] = set()

    def of(
        self,
        given: Callable[..., Any] | str,
        called: Callable[..., Any],
        trigger: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        taken: Collection[str],
        running: bool,
    ) -> str:
        """The id; `given` is what the program wrote, `taken` are the ids that this process has added."""
        if isinstance(trigger, DateTrigger) and trigger.now:
            return uuid.uuid4().hex  # each call is a job
        func, inner, inner_named = _taken_apart(called)
        words, told = _words((*inner, *args), {**inner_named, **kwargs})
        doubtful = running and not (told and (isinstance(given, str) or reference(func)))
        base = (given if isinstance(given, str) else _name(func)) + words
        if isinstance(trigger, DateTrigger):
            if doubtful:
                return uuid.uuid4().hex  # only this process can run it, and nothing tells it from that of another
            base += f" at {trigger.run_date.astimezone(UTC).isoformat().removesuffix('+00:00')}Z"
        elif doubtful:
            self._doubt(base)
        return next(made for n in count(1) if (made := base if n == 1 else f"{base} #{n}") not in taken)

    def _doubt(self, base: str) -> None:
        if base in self._doubted:
            return
        self._doubted.add(base)
        logger.warning(
            "a job without an id was added while the scheduler runs; its function or its arguments have no text of their own, so every worker that adds such a job "
            "means the same one, %r. Write id='…' if they are different jobs",
            base,
            extra={"action": "doubtful_id"},
        )


def _taken_apart(func: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What is called in the end, and the arguments that partials around it give."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    while isinstance(func, functools.partial):
        args, kwargs, func = (*func.args, *args), {**func.keywords, **kwargs}, func.func
    return func, args, kwargs


def _name(func: Any) -> str:
    """'module:function' of anything that can be called. Lambdas, methods and inner functions have one too, which other processes cannot look up."""
    if not inspect.isroutine(func) and not isinstance(func, type):
        func = type(func)  # an object with __call__
    if inspect.ismethod(func) and isinstance(owner := func.__self__, type):
        return f"{owner.__module__}:{owner.__qualname__}.{func.__name__}"  # two classes may inherit it
    module = getattr(func, "__module__", None) or type(getattr(func, "__self__", func)).__module__
    return f"{module}:{func.__qualname__}"


def _words(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, bool]:
    """A short text for arguments, and whether it tells them from all others."""
    if not args and not kwargs:
        return "", True
    text = as_json(args, kwargs)
    told = text is not None
    if text is None:
        parts = [_word(value) for value in args] + [f"{name}={_word(kwargs[name])}" for name in sorted(kwargs)]
        text = ", ".join(parts)
    return f"({blake2b(text.encode(), digest_size=_DIGEST).hexdigest()})", told


def _word(value: object) -> str:
    """One argument; of what has no text, its kind."""
    text = as_json((value,), {})
    if text is not None:
        return text
    return _name(value) if inspect.isroutine(value) or isinstance(value, type) else _name(type(value))
