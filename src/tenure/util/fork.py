"""The one hook for fork(2): what a forked child does before anything else, in a stated order.

A child has a copy of its parent's memory and none of its threads. Locks that those threads held stay locked for ever,
and connections, pipes and lock files are the parent's. So the child replaces its locks, lets go of what it shares, and
takes part in nothing until it starts something itself. Only `ext/serving.py` has a hook of its own, which looks at the
frame that forks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

logger = logging.getLogger("tenure")

Hook = TypeVar("Hook", bound=Callable[[], None])


class ForkOrder(IntEnum):
    """When a hook runs in the child."""

    FILES = 1
    """Note which database files the parent has open, and close what watches processes."""
    LOCKS = 2
    """Replace module-wide locks and queues."""
    NODES = 3
    """End the parent's identity: no lease, no term."""
    SCHEDULERS = 4
    """Drop the parent's runs."""
    CONNECTIONS = 5
    """Let go of spare connections."""


_HOOKS: list[tuple[ForkOrder, Callable[[], None]]] = []


def in_child(order: ForkOrder) -> Callable[[Hook], Hook]:
    """Call this function in every forked child."""

    def register(hook: Hook) -> Hook:
        _HOOKS.append((order, hook))
        return hook

    return register


def _after_fork_in_child() -> None:
    for _, hook in sorted(_HOOKS, key=lambda entry: entry[0]):
        try:
            hook()
        except BaseException:  # the other hooks must run
            logger.exception("a forked child could not let go of everything", extra={"action": "fork_hook_failed"})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
