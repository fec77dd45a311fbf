"""Makes ids for jobs that were given none. Every worker makes the same id for the same job.

An id is made of the function and its arguments and, for a date, of its time. If several jobs are equal in these, the
order in which the process adds them counts. The trigger is not part of it: a job whose cron expression was changed in
the code is still that job.
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
"""Bytes of the digest that stands for arguments in an id."""


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
            return uuid.uuid4().hex  # each call is its own job
        func, inner, inner_named = _taken_apart(called)
        words, told = _words((*inner, *args), {**inner_named, **kwargs})
        doubtful = running and not (told and (isinstance(given, str) or reference(func)))
        base = (given if isinstance(given, str) else _name(func)) + words
        if isinstance(trigger, DateTrigger):
            if doubtful:
                return uuid.uuid4().hex  # only this process can run it, and it looks like those of other processes
            base += f" at {trigger.run_date.astimezone(UTC).isoformat().removesuffix('+00:00')}Z"
        elif doubtful:
            self._doubt(base)
        return next(made for n in count(1) if (made := base if n == 1 else f"{base} #{n}") not in taken)

    def _doubt(self, base: str) -> None:
        if base in self._doubted:
            return
        self._doubted.add(base)
        logger.warning(
            "a job without an id was added to a running scheduler, and its function or arguments cannot be told "
            "apart by a text: all workers that add such a job mean the same one, %r. Write id='…' if they are "
            "different jobs",
            base,
            extra={"action": "doubtful_id"},
        )


def _taken_apart(func: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function inside partials, and the arguments that the partials give."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    while isinstance(func, functools.partial):
        args, kwargs, func = (*func.args, *args), {**func.keywords, **kwargs}, func.func
    return func, args, kwargs


def _name(func: Any) -> str:
    """'module:function' of any callable, even of lambdas, methods and inner functions, which cannot be looked up."""
    if not inspect.isroutine(func) and not isinstance(func, type):
        func = type(func)  # an object with __call__
    if inspect.ismethod(func) and isinstance(owner := func.__self__, type):
        return f"{owner.__module__}:{owner.__qualname__}.{func.__name__}"  # two classes may inherit it
    module = getattr(func, "__module__", None) or type(getattr(func, "__self__", func)).__module__
    return f"{module}:{func.__qualname__}"


def _words(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, bool]:
    """A short text for arguments, and whether it is unique to them."""
    if not args and not kwargs:
        return "", True
    text = as_json(args, kwargs)
    told = text is not None
    if text is None:
        parts = [_word(value) for value in args] + [f"{name}={_word(kwargs[name])}" for name in sorted(kwargs)]
        text = ", ".join(parts)
    return f"({blake2b(text.encode(), digest_size=_DIGEST).hexdigest()})", told


def _word(value: object) -> str:
    """One argument as text; its type if it has none."""
    text = as_json((value,), {})
    if text is not None:
        return text
    return _name(value) if inspect.isroutine(value) or isinstance(value, type) else _name(type(value))
