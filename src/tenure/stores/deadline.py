"""A psycopg connection whose statements end in time, whatever the network and the server do.

`statement_timeout` needs a server that runs, and TCP's own time-outs need a network that answers; a frozen server or a silent
middlebox gives neither. So the client waits for so long and no longer, and then drops the connection: the outcome is unknown.
"""

from __future__ import annotations

import select
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.waiting import Ready, Wait

from tenure.clock import boottime


class DeadlineConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection with a `timeout` in seconds for each exchange with the server."""

    timeout: float = 5.0

    def wait(self, gen: Generator[Any, Any, Any], *_: Any, **__: Any) -> Any:
        """Drive one exchange to its end, or drop the connection. How often to look for Ctrl-C is of no interest to our threads."""
        deadline = boottime() + self.timeout
        try:
            wanted = next(gen)
            fileno = self.pgconn.socket
            poll = select.poll()
            while True:
                poll.register(fileno, _EVENTS[wanted])
                happened = poll.poll(max(deadline - boottime(), 0.0) * 1000)
                if not happened:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.timeout:g} s")
                wanted = gen.send(_READY.get(happened[0][1], wanted))
        except StopIteration as end:
            return end.value


_EVENTS = {Wait.R: select.POLLIN, Wait.W: select.POLLOUT, Wait.RW: select.POLLIN | select.POLLOUT}

_READY = {select.POLLIN: Ready.R, select.POLLOUT: Ready.W, select.POLLIN | select.POLLOUT: Ready.RW}
"""Anything else is an error, which shows in whatever was waited for."""
