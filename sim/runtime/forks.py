"""fork(2): a child that has a copy of everything its parent has in memory, and none of its threads.

The copy is made between two events, wherever the parent's threads are just then: locks that they hold are held in the
child, for ever unless production's hook replaces them. What is not memory is shared, as descriptors are: connections,
pipes, the lock of the host. Then the hook runs in the child, and what the child has inherited is asked: it must neither
lead, nor have a lease, nor runs that count.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

from sim.runtime import application, copies, fakes, hosts
from sim.runtime.application import Setting
from sim.runtime.kernel import K, Process

HANGS = 1.0
"""Seconds after which a child that has not answered never will."""


def fork(parent: Process, name: str, pid: int, setting: Setting) -> Process:
    """A child of this process, with the clocks of its host."""
    child = Process(name, pid, parent.host, rate=parent.rate, offset=parent.offset, wall=parent.wall)
    child.inherited = parent.inherited | frozenset(hosts.File.all)
    shared = (setting, setting.store, setting.checker, setting.store.server, setting.store.network, K)
    memo: dict[int, Any] = {id(thing): thing for thing in shared} | {id(parent): child}
    with _closures_copied():
        child.things = copy.deepcopy(parent.things, memo)
    for lock in hosts.LockFile.all.values():
        lock.forked(parent, child)
    K.spawn(child, lambda: live(setting, child))
    return child


def live(setting: Setting, child: Process) -> None:
    """The only thread of a child: some do something else, some take part in their own right, with what they have
    inherited."""
    things = child.things
    election, nodes = things["election"], {things["node"], things["election"]._seat}
    terms = [term for member in (election, things["planner"]) if (term := member.candidacy._term) is not None]
    runs = [attempt.run for attempt in things["executor"]._in_hand.values()]
    K.after(HANGS, _look_after, setting, child)
    _run_hook(nodes)
    setting.checker.processes.append(child)
    setting.checker.inherited(child, nodes, terms, runs)
    things["asked"] = True
    fakes.sleep(K.rng.choice((0.0, 0.3, 2.0)))
    setting.checker.inherited(child, nodes, terms, runs)
    if K.rng.random() < 0.5:
        application.insist(election.start)
        application.lead(setting, election)


def _run_hook(nodes: set[Any]) -> None:
    """What the interpreter calls in a child; globals are the child's own, so that only its nodes are in them."""
    nodes_of, shared_of = vars(copies.base_node), vars(copies.node)
    before, mutex = nodes_of["_NODES"], shared_of["_SHARED_MUTEX"]
    try:
        nodes_of["_NODES"] = set(nodes)  # time may pass in the hook, in which others enter theirs
        copies.node._after_fork_in_child()
    finally:
        nodes_of["_NODES"], shared_of["_SHARED_MUTEX"] = before, mutex


def _look_after(setting: Setting, child: Process) -> None:
    if child.alive and "asked" not in child.things:
        setting.checker.broken("G6", f"{child}, a forked child, waits for a thread that it does not have")


@contextmanager
def _closures_copied() -> Iterator[None]:
    """`copy` takes functions as they are; what they close over is memory like any other."""
    dispatch = copy._deepcopy_dispatch  # type: ignore[attr-defined]
    before = dispatch[FunctionType]
    dispatch[FunctionType] = _copied
    try:
        yield
    finally:
        dispatch[FunctionType] = before


def _copied(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    if not function.__closure__:
        return function
    new = [(CellType(), old) for old in function.__closure__ if id(old) not in memo]
    memo.update({id(old): cell for cell, old in new})
    cells = tuple(memo[id(cell)] for cell in function.__closure__)
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__ = function.__kwdefaults__
    memo[id(function)] = twin
    for cell, old in new:
        cell.cell_contents = copy.deepcopy(old.cell_contents, memo)
    return twin
