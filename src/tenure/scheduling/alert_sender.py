"""Sends alerts to the sinks of this node, on a thread for each sink. The control loop claims messages and notes what
became of them (`alert_messages.py`): these threads never touch the database, and no run waits for them.

A node that cannot read the database says so itself, because the ledger cannot.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tenure.alerts import AlertNews, NotAccepted, Sink
from tenure.core.alerts import CLOSED, NAMESPACE, OPENED, AlertKind, AlertMessage
from tenure.scheduling.sending_thread import SendingThread, tried
from tenure.util.clock import boottime, sleep, walltime
from tenure.util.instants import shown
from tenure.util.printable import printable

logger = logging.getLogger("tenure")

CLAIM_LASTS = 60.0
"""Seconds after which a claim lapses, and another node may send the message."""
LEAST_LEFT = 25.0
"""Seconds that the claim of a message must still last before it is tried: three tries of 5 s take 18."""
AGAIN_IN, AGAIN_AT_MOST = 60.0, 3600.0
"""Seconds until a message that was not accepted can be claimed again: at first, doubled each time, and at most."""
GIVE_UP = 20
"""Claims without success, over most of a day, after which a message is given up."""
MISSES = 3
"""Checks in a row without an answer of the database after which the node says so."""
WAITING = 100
"""How many messages may wait for one sink."""
NOTED_EVERY = 0.01
"""At a stop: seconds between two looks whether the loop has noted what was sent."""


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Something to send. `message` is None for what only this node knows."""

    news: AlertNews
    message: AlertMessage | None
    until: float


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What became of a claimed message, for the ledger."""

    number: int
    error: str = ""
    again_in: float | None = None


class AlertSender:
    """The sinks of one node. `told` is called when outcomes wait for the ledger."""

    def __init__(self, sinks: Iterable[Sink], application: str, label: str, told: Callable[[], None]) -> None:
        self._application, self._label = application, label
        self._sinks = {sink.name: sink for sink in sinks}
        self._sending = {
            name: SendingThread(f"tenure alerts {label} {name}", partial(self._send, sink), WAITING, told)
            for name, sink in self._sinks.items()
        }
        self.outcomes: deque[SendOutcome] = deque()
        """For the control loop, which takes from the left."""
        self._problems: dict[str, str] = {}
        self._stopping = threading.Event()
        self._own = _OwnNews()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks."""
        return tuple(self._sinks)

    @property
    def free(self) -> tuple[str, ...]:
        """Those that send nothing at the moment."""
        return tuple(name for name, thread in self._sending.items() if not thread.busy)

    @property
    def problems(self) -> tuple[str, ...]:
        """Which sinks accept nothing at the moment, a sentence each."""
        return tuple(self._problems.values())

    @property
    def dead_threads(self) -> tuple[str, ...]:
        """The names of threads that died."""
        return tuple(name for thread in self._sending.values() for name in thread.dead_threads)

    def take(self, messages: Iterable[AlertMessage], claimed_at: float) -> None:
        """Send these, which this node has claimed."""
        for message in messages:
            news = AlertNews.of(message, self._label)
            self._sending[message.sink].put(_Claimed(news, message, claimed_at + CLAIM_LASTS))

    def stop(self, patience: float) -> None:
        """Wait for what is being sent, and for the loop to note it. What is left is sent by another node."""
        until = boottime() + patience
        self._stopping.set()
        for thread in self._sending.values():
            thread.finish(until)
            thread.stop()
        while self.outcomes and boottime() < until:
            sleep(NOTED_EVERY)

    def _send(self, sink: Sink, claimed: _Claimed) -> None:
        if claimed.until - boottime() < LEAST_LEFT:
            return  # the claim lapses, and is made anew
        error = self._tried(sink, claimed)
        message = claimed.message
        if message is None:
            if not error:
                self._own.accepted.add((sink.name, claimed.news.id))
        elif not error:
            self.outcomes.append(SendOutcome(message.number))
        else:
            again_in = min(AGAIN_IN * 2**message.tries, AGAIN_AT_MOST) if message.tries + 1 < GIVE_UP else None
            if self._stopping.is_set():
                again_in = 0.0  # another node may do better
            self.outcomes.append(SendOutcome(message.number, error, again_in))
        self._note(sink, claimed.news, error, message)

    def _tried(self, sink: Sink, claimed: _Claimed) -> str:
        """Try a few times, while the claim lasts. Returns the error of the last try, '' if the sink has accepted it."""

        def send() -> None:
            try:
                sink.send(claimed.news)
            except NotAccepted:
                raise
            except BaseException as failure:  # a function of the application; its text may quote a secret
                logger.debug("alert sink %r raised", sink.name, exc_info=failure, extra={"action": "alert_sink_raised"})
                raise NotAccepted(f"it raised {type(failure).__name__}") from None

        def pause(seconds: float) -> bool:
            return claimed.until - boottime() <= LEAST_LEFT or self._stopping.wait(seconds)

        return tried(send, pause)

    def _note(self, sink: Sink, news: AlertNews, error: str, message: AlertMessage | None) -> None:
        extra = {"action": "alert_sent" if not error else "alert_not_sent", "sink": sink.name, "alert": news.alert}
        if not error:
            if self._problems.pop(sink.name, ""):
                logger.warning("alert sink %r accepts messages again", sink.name, extra=extra)
            return
        self._problems[sink.name] = f"alert sink {sink.name!r} does not accept messages: {error}"
        given_up = message is not None and message.tries + 1 >= GIVE_UP
        say = logger.error if given_up else logger.warning
        then = "given up" if given_up else "it will be sent again"
        say("alert sink %r did not accept %r: %s; %s", sink.name, printable(news.title), error, then, extra=extra)

    # What only this node knows

    def look(self, answers: int, problem: Callable[[], str]) -> None:
        """Called again and again, with how many answers of the database there were so far."""
        own = self._own
        if answers != own.answers:
            own.answers, own.misses = answers, 0
            if own.news is not None and own.news.event == OPENED:
                own.opened = own.news.id
                own.news = self._news(CLOSED, own.since, own.news.text)
                own.missing = set(self._sinks)
        else:
            if not own.misses:
                own.since = walltime()
            own.misses += 1
            if own.misses >= MISSES and (own.news is None or own.news.event == CLOSED):
                why = problem()
                text = f"node {self._label} has not been able to read the database since {shown(own.since.timestamp())}"
                own.news = self._news(OPENED, own.since, f"{text}{': ' if why else '.'}{why}")
                own.missing = set(self._sinks)
        if own.news is None:
            return
        own.missing -= {name for name, key in tuple(own.accepted) if key == own.news.id}
        for name in [name for name in own.missing if not self._sending[name].busy]:
            if own.news.event == CLOSED and (name, own.opened) not in own.accepted:
                own.missing.discard(name)  # it was not told that it had begun, and will not be
            else:
                self._sending[name].put(_Claimed(own.news, None, boottime() + CLAIM_LASTS))
        if own.news.event == CLOSED and not own.missing:
            own.news = None
            own.accepted.clear()

    def _news(self, event: str, since: datetime, text: str) -> AlertNews:
        about = f"{self._application}\n{AlertKind.NO_ANSWER}\n{self._label}\n{since.timestamp():.6f}"
        return AlertNews(
            id=str(uuid.uuid5(NAMESPACE, f"{about}\n{event}")),
            event=event,
            application=self._application,
            kind=AlertKind.NO_ANSWER.value,
            target=self._label,
            text=text,
            label=self._label,
            alert=str(uuid.uuid5(NAMESPACE, about)),
            since=since,
            opened_at=walltime() if event == OPENED else None,
            closed_at=walltime() if event == CLOSED else None,
        )


class _OwnNews:
    """That this node cannot read the database: what is told, and which sinks have accepted it."""

    def __init__(self) -> None:
        self.answers = self.misses = 0
        self.since = walltime()
        self.news: AlertNews | None = None
        self.opened = ""
        """The id of the news that it began."""
        self.missing: set[str] = set()
        """Sinks that have not accepted it."""
        self.accepted: set[tuple[str, str]] = set()
