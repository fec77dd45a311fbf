"""The beat: Celery's entries are jobs in tenure's ledger, and Celery itself sends the messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from queue import SimpleQueue
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import celery.beat
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_logger

from tenure.core.keys import due_key
from tenure.errors import ConfigurationError, JobError, StoreUnavailable, UnknownJob
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
"""Seconds between two attempts while the database does not answer."""
CAPACITY = 8
"""Messages that one beat sends at once."""
RETRIES = 20
"""How often a message is sent again while the broker is away: for about eight minutes."""
BACKOFF = ("1s", "30s")
MAX_LOST = 10
DRAIN = "10s"
AWAKE = 1.0
"""The longest sleep of a beat's main thread, in seconds."""
LOOK_EVERY = 0.02
"""Seconds between two checks whether a stopping beat has left."""

BEAT = "celery beat"
"""The ledger's `by` for jobs that a beat removes because their entries are gone."""

_NAMESPACE = uuid5(NAMESPACE_URL, "tenure.ext.celery")


def task_id(application: str, entry: str, scheduled_for: datetime) -> str:
    """The id of the message for one due time of an entry: the same from every beat, and from every try."""
    return _id(application, entry, due_key(instant(scheduled_for)))


class Shared:
    """A mixin for Celery's scheduler classes that shares the entries between several beats.

    Settings: `tenure_url` (else TENURE_URL); `tenure_options`, which go to `tenure.Scheduler`; and `tenure_prepare`, a
    function, or its name, that gets each scheduler before it starts. Nothing is opened before the first tick.
    """

    app: Any
    schedule: Any
    max_interval: float
    _node: Node | None = None
    _stopper: NodeStopper | None = None
    _entries: Mapping[str, Any] = {}
    _gone: frozenset[str] = frozenset()
    """Entries that are gone and whose jobs still have to be removed."""
    _looks_from = 0.0

    def tick(self, *_args: object, **_kwargs: object) -> float:
        """Start the node and apply changed entries; tenure does the rest. Returns the seconds until the next call.

        That is soon: the kernel may deliver a signal to any thread, and Python runs its handler when the main thread
        wakes.
        """
        if boottime() >= self._looks_from:
            self._looks_from = boottime() + self._look()
        return min(max(self._looks_from - boottime(), 0.0), AWAKE)

    def _look(self) -> float:
        """Apply changed entries. Returns the seconds until the next check."""
        entries = dict(self.schedule)
        try:
            node = self._node
            if node is None or entries != self._entries:
                node = self._take_in(entries)
            self._remove_gone(node)
        except StoreUnavailable as error:
            logger.error("beat: %s Trying again in %g s.", error, AGAIN)  # noqa: TRY400 - the message says it all
            return AGAIN
        return self.max_interval

    def close(self) -> None:
        """Send no more, finish what is being sent, and leave.

        Celery calls this in its signal handler, which may interrupt anything on the main thread, even this method.
        """
        if self._stopper is not None:
            self._stopper.stop()
        super().close()  # type: ignore[misc]

    @property
    def info(self) -> str:
        """The line about the store in Celery's banner."""
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
        """When an entry is due; None to leave it out."""
        return trigger_of(entry.name, entry.schedule)

    def wanted(self, entry: Any, run: Run) -> bool:  # noqa: ARG002 - for subclasses
        """True if this due time is to be sent."""
        return True

    def sent(self, entry: Any, run: Run) -> None:
        """Called after the broker has accepted a message."""

    def _take_in(self, entries: Mapping[str, Any]) -> Node:
        node, old = self.node(entries), self._node
        self._gone = self._gone.union(self._entries).difference(entries)
        if old is not None:
            stopper = self._stopper
            self._node = self._stopper = None
            old.stop()
            if stopper is not None:
                stopper.discard()
        _bring_back(node, entries)
        if (prepare := self.app.conf.get("tenure_prepare")) is not None:
            _function(prepare)(node)
        node.start()
        self._node, self._entries, self._stopper = node, entries, NodeStopper(node)
        return node

    def _remove_gone(self, node: Node) -> None:
        for name in sorted(self._gone):
            with suppress(UnknownJob):  # another beat has removed it
                node.remove(name, by=BEAT, why="its entry is gone")
            self._gone -= {name}

    def _sender(self, application: str, entry: Any) -> Callable[[Run], None]:
        def send(run: Run) -> None:
            if not self.wanted(entry, run):
                run.log("not sent: the entry is disabled, not yet started or expired")
                return
            message = object.__new__(type(entry))  # not every kind of entry can be copied by its constructor
            vars(message).update(vars(entry))
            headers = {**entry.options.get("headers", {}), "scheduled_for": run.scheduled_for.isoformat()}
            message.options = {"task_id": _id(application, entry.name, run.key), **entry.options, "headers": headers}
            logger.info("Scheduler: Sending due task %s (%s), due %s", entry.name, entry.task, run.key)
            self.apply_async(message, advance=False)  # type: ignore[attr-defined]
            self.sent(entry, run)

        return send


class NodeStopper:
    """Stops a node for a signal handler, which may have interrupted anything.

    It uses a thread that already exists, and takes no lock on the caller's side.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._requests, self._gone = node, Requests(), False
        self._wanted: SimpleQueue[bool] = SimpleQueue()  # its `put` may interrupt another
        threading.Thread(target=self._serve, name="tenure stopper", daemon=True).start()

    def stop(self) -> None:
        """Return when the node has left. A second signal does not wait for messages being sent, a third for nothing."""
        if not self._gone and self._requests.add():
            self._wanted.put(True)
        while not self._gone and self._requests.count < 3:  # noqa: PLR2004
            sleep(LOOK_EVERY)

    def discard(self) -> None:
        """End the thread: the node was stopped in another way."""
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


class BeatScheduler(Shared, celery.beat.Scheduler):  # type: ignore[misc]
    """Entries from `beat_schedule` and `add_periodic_task`."""

    def setup_schedule(self) -> None:
        """The configured entries, and those that Celery adds."""
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.schedule)


def _function(setting: Any) -> Callable[[Node], object]:
    """The function that `tenure_prepare` is or names."""
    try:
        found = symbol_by_name(setting)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"tenure_prepare: {setting!r:.80} cannot be imported: {error}. Write 'module:function', such as "
            "'tenure.ext.opentelemetry:instrument', or the function itself."
        ) from error
    if not callable(found):
        raise ConfigurationError(
            f"tenure_prepare: {found!r:.80} is a {type(found).__name__}. Write a function that takes a Scheduler."
        )
    made: Callable[[Node], object] = found
    return made


def _bring_back(node: Node, entries: Mapping[str, Any]) -> None:
    """Restore the jobs that a beat removed because their entries were gone, if the entries are back."""
    with service_of(node).ledger() as ledger:
        removed = ledger.removed(node.application, list(entries))
    for job in removed:
        if job.removed_by == BEAT:
            with suppress(JobError):  # another beat has restored it
                node.restore(job.spec.name, by=BEAT, why="its entry is back")


def _id(application: str, entry: str, key: str) -> str:
    return str(uuid5(_NAMESPACE, f"{application}\n{entry}\n{key}"))
