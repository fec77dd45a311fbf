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
        fileno = self.pgconn.socket
        poll = select.poll()
        try:
            wanted = next(gen)
            while True:
                poll.register(fileno, _EVENTS[wanted])
                left = deadline - boottime()
                happened = poll.poll(max(left, 0.0) * 1000)
                if not happened:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.timeout:g} s")
                wanted = gen.send(_ready(happened[0][1], wanted))
        except StopIteration as end:
            return end.value


_EVENTS = {Wait.R: select.POLLIN, Wait.W: select.POLLOUT, Wait.RW: select.POLLIN | select.POLLOUT}


def _ready(event: int, wanted: Wait) -> Ready:
    ready = 0
    if event & ~select.POLLOUT:
        ready |= Ready.R
    if event & ~select.POLLIN:
        ready |= Ready.W
    return Ready(ready & wanted or wanted)
