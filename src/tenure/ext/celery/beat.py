"""The beat: Celery's entries in tenure's ledger, and Celery's own way of sending."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from queue import SimpleQueue
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import celery.beat
from celery.utils.log import get_logger

from tenure.core.keys import due_key
from tenure.errors import JobError, StoreUnavailable, UnknownJob
from tenure.ext.celery.schedules import trigger_of
from tenure.run import Run
from tenure.scheduler import Scheduler as Node
from tenure.scheduler import service_of
from tenure.triggers import Trigger
from tenure.util.clock import boottime, sleep
from tenure.util.instants import instant
from tenure.util.signals import Requests

logger = get_logger("celery.beat")

AGAIN = 5.0
"""How long to wait for a database that does not answer."""
CAPACITY = 8
"""Messages that one beat sends at once."""
RETRIES = 20
"""How often a message is tried again while the broker is away: for about eight minutes."""
BACKOFF = ("1s", "30s")
MAX_LOST = 10
DRAIN = "10s"
AWAKE = 1.0
"""How long the main thread of a beat sleeps at most."""
LOOK_EVERY = 0.02
"""How often a beat that leaves looks whether it has left."""

BEAT = "celery beat"
"""Who removes the jobs of entries that are gone."""

_NAMESPACE = uuid5(NAMESPACE_URL, "tenure.ext.celery")


def task_id(application: str, entry: str, scheduled_for: datetime) -> str:
    """The id of the message for one due time of an entry: the same from every beat, and from every try."""
    return _id(application, entry, due_key(instant(scheduled_for)))


class Shared:
    """What makes a beat one of many; put before a scheduler class of Celery's.

    Settings: `tenure_url` (else TENURE_URL), and `tenure_options`, which go to `tenure.Scheduler`. Nothing is opened before the first tick.
    """

    app: Any
    schedule: Any
    max_interval: float
    _node: Node | None = None
    _goodbye: Goodbye | None = None
    _entries: Mapping[str, Any] = {}
    _gone: frozenset[str] = frozenset()
    """Entries that are gone, and whose jobs are still to be removed."""
    _looks_from = 0.0

    def tick(self, *_args: object, **_kwargs: object) -> float:
        """Take part, and take in what was changed; tenure itself does the rest. Returns when to call it again.

        That is soon: the kernel may give a signal to any thread, and Python calls its handler when the main thread wakes.
        """
        if boottime() >= self._looks_from:
            self._looks_from = boottime() + self._look()
        return min(max(self._looks_from - boottime(), 0.0), AWAKE)

    def _look(self) -> float:
        """Take in what was changed. Returns after how long to look again."""
        entries = dict(self.schedule)
        try:
            node = self._node
            if node is None or entries != self._entries:
                node = self._take_in(entries)
            self._remove_gone(node)
        except StoreUnavailable as error:
            logger.error("beat: %s Trying again in %g s.", error, AGAIN)  # noqa: TRY400 - the sentence says it all
            return AGAIN
        return self.max_interval

    def close(self) -> None:
        """Send no more, end what is being sent, and leave.

        Celery calls this in its signal handler, on top of whatever the main thread is at, be it this very method.
        """
        if self._goodbye is not None:
            self._goodbye.say()
        super().close()  # type: ignore[misc]

    @property
    def info(self) -> str:
        """For the banner."""
        return f"    . store -> {self.node({}).store.shown}"

    def node(self, entries: Mapping[str, Any]) -> Node:
        """A scheduler with a job for each entry. Opens nothing."""
        conf = self.app.conf
        main = self.app.main
        options = {"application": f"celery:{main}" if main else "celery", "capacity": CAPACITY, "drain": DRAIN}
        node = Node(conf.get("tenure_url"), **{**options, **(conf.get("tenure_options") or {})})
        policy: dict[str, Any] = {"overlap": "allow", "retries": RETRIES, "backoff": BACKOFF, "max_lost": MAX_LOST}
        if (deadline := conf.get("beat_cron_starting_deadline")) is not None:
            policy |= {"missed": "skip", "grace": deadline}
        for name, entry in entries.items():
            if (trigger := self.trigger(entry)) is not None:
                node.scheduled(trigger, name=name, **policy)(self._sender(node.application, entry))
        return node

    def trigger(self, entry: Any) -> Trigger | None:
        """When an entry is due; None for one that is to be left out."""
        return trigger_of(entry.name, entry.schedule)

    def wanted(self, entry: Any, run: Run) -> bool:  # noqa: ARG002 - for those who know more of an entry
        """Whether this due time is to be sent."""
        return True

    def sent(self, entry: Any, run: Run) -> None:
        """A message is with the broker."""

    def _take_in(self, entries: Mapping[str, Any]) -> Node:
        node, old = self.node(entries), self._node
        self._gone = self._gone.union(self._entries).difference(entries)
        if old is not None:
            goodbye = self._goodbye
            self._node = self._goodbye = None
            old.stop()
            if goodbye is not None:
                goodbye.forget()
        _bring_back(node, entries)
        node.start()
        self._node, self._entries, self._goodbye = node, entries, Goodbye(node)
        return node

    def _remove_gone(self, node: Node) -> None:
        for name in sorted(self._gone):
            with suppress(UnknownJob):  # another beat was faster
                node.remove(name, by=BEAT, why="its entry is gone")
            self._gone -= {name}

    def _sender(self, application: str, entry: Any) -> Callable[[Run], None]:
        def send(run: Run) -> None:
            if not self.wanted(entry, run):
                run.log("not sent: the entry does not want it")
                return
            message = object.__new__(type(entry))  # a copy would be made anew, which not every kind of entry can be
            vars(message).update(vars(entry))
            headers = {**entry.options.get("headers", {}), "scheduled_for": run.scheduled_for.isoformat()}
            message.options = {"task_id": _id(application, entry.name, run.key), **entry.options, "headers": headers}
            logger.info("Scheduler: Sending due task %s (%s), due %s", entry.name, entry.task, run.key)
            self.apply_async(message, advance=False)  # type: ignore[attr-defined]
            self.sent(entry, run)

        return send


class Goodbye:
    """Stops a node for a caller that may have interrupted anything: on a thread that is there already, and without a lock on the caller's side."""

    def __init__(self, node: Node) -> None:
        self._node, self._requests, self._gone = node, Requests(), False
        self._wanted: SimpleQueue[bool] = SimpleQueue()  # its `put` may interrupt another
        threading.Thread(target=self._serve, name="tenure goodbye", daemon=True).start()

    def say(self) -> None:
        """Return when the node has left. A second signal does not wait for what is being sent, a third one for nothing."""
        if not self._gone and self._requests.add():
            self._wanted.put(True)
        while not self._gone and self._requests.count < 3:  # noqa: PLR2004
            sleep(LOOK_EVERY)

    def forget(self) -> None:
        """The node was stopped otherwise."""
        self._wanted.put(False)

    def _serve(self) -> None:
        if self._wanted.get():
            threading.Thread(target=self._stop, name="tenure stops", daemon=True).start()
            self._wanted.get()
            service_of(self._node).stop_now()

    def _stop(self) -> None:
        try:
            self._node.stop()
        finally:
            self._gone = True


class Scheduler(Shared, celery.beat.Scheduler):  # type: ignore[misc]
    """Entries from `beat_schedule` and `add_periodic_task`."""

    def setup_schedule(self) -> None:
        """What is configured, and what Celery adds to it."""
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.schedule)


def _bring_back(node: Node, entries: Mapping[str, Any]) -> None:
    """Entries that were gone, and whose jobs a beat therefore removed: disabled, and now enabled again."""
    with service_of(node).ledger() as ledger:
        removed = ledger.removed(node.application, list(entries))
    for job in removed:
        if job.removed_by == BEAT:
            with suppress(JobError):  # another beat was faster
                node.restore(job.spec.name, by=BEAT, why="its entry is back")


def _id(application: str, entry: str, key: str) -> str:
    return str(uuid5(_NAMESPACE, f"{application}\n{entry}\n{key}"))
