"""A psycopg connection whose statements end in time, whatever the network and the server do.

`statement_timeout` needs a running server, and TCP's own timeouts need a network that answers. A frozen server or a
silent middlebox gives neither. So the client waits for a limited time and then drops the connection; the outcome is
unknown.
"""

from __future__ import annotations

import select
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

from tenure.util.clock import boottime

LATER = 10.0
"""How much later than the last permitted use the server ends a resting connection: never between check and
statement."""
ASKED_AFTER = 1.0
"""A connection that has rested for longer must first answer a query: the network may have dropped it silently …"""
ANSWER_WITHIN = 2.0
"""… and if no answer comes within this time, it is closed."""


class DeadlineConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection with a `timeout` in seconds for each exchange with the server."""

    timeout: float = 5.0
    _ends_by_itself = False

    def wait(self, gen: Generator[Any, Any, Any], *_: Any, **__: Any) -> Any:
        """Drive one exchange to its end, or drop the connection. Our threads need no interval for Ctrl-C."""
        deadline = boottime() + self.timeout
        try:
            wanted = next(gen)
            fileno = self.pgconn.socket
            poll = _Poll()
            while True:
                poll.register(fileno, _EVENTS[wanted])
                happened = poll.poll(max(deadline - boottime(), 0.0) * 1000)
                if not happened:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.timeout:g} s")
                wanted = gen.send(_READY.get(happened[0][1], wanted))
        except StopIteration as end:
            return end.value

    def rest(self, seconds: float) -> bool:
        """Let the server end this connection a little after this many unused seconds. False if it cannot rest."""
        if self.closed or self.info.transaction_status != TransactionStatus.IDLE:
            return False
        if not self._ends_by_itself:
            try:
                self.execute(_END_WHEN_IDLE, [f"{(seconds + LATER) * 1000:.0f}ms"])
            except psycopg.Error:
                return False
            self._ends_by_itself = True
        return True

    def fresh(self, idle: float) -> bool:
        """True if it still works after it has rested for this many seconds."""
        usual, self.timeout = self.timeout, ANSWER_WITHIN
        try:
            poll = _Poll()
            poll.register(self.fileno(), _IN)
            if poll.poll(0):  # an unrequested message from the server announces the end
                return False
            if idle > ASKED_AFTER:
                self.execute("SELECT 1")
        except psycopg.Error:
            return False
        finally:
            self.timeout = usual
        return True


_END_WHEN_IDLE = (
    """SELECT set_config('idle_session_timeout', %s, false) WHERE current_setting('idle_session_timeout') = '0'"""
)
"""If the server's administrator has chosen a timeout, that one counts."""

if hasattr(select, "poll"):
    _Poll, _IN, _OUT = select.poll, select.POLLIN, select.POLLOUT
else:  # Windows, where no node runs; operations wait for one connection at a time
    _IN, _OUT = 1, 4

    class _Poll:  # type: ignore[no-redef]
        """The part of `select.poll` that is used above."""

        def register(self, fileno: int, events: int) -> None:
            self._fileno, self._events = fileno, events

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            reads, writes = ([self._fileno] if self._events & one else [] for one in (_IN, _OUT))
            readable, writable, _ = select.select(reads, writes, [], milliseconds / 1000)
            found = (_IN if readable else 0) | (_OUT if writable else 0)
            return [(self._fileno, found)] if found else []


_EVENTS = {Wait.R: _IN, Wait.W: _OUT, Wait.RW: _IN | _OUT}

_READY = {_IN: Ready.R, _OUT: Ready.W, _IN | _OUT: Ready.RW}
"""Everything else is an error, which shows in the exchange itself."""
