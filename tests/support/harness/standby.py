"""A primary with a synchronous standby behind one address, which moves when the primary dies."""

import time
from typing import Self

from harness import scratch
from harness.postgres import Postgres
from harness.proxy import Proxy

SYNC = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"


class Pair:
    """`with Pair() as pair: … pair.fail_over(); pair.add_standby()`. Clients use `pair.url(database)`."""

    def __init__(self) -> None:
        self.primary = Postgres()
        self.standby: Postgres | None = None
        self.address: Proxy | None = None

    def __enter__(self) -> Self:
        self.primary.start()
        self.address = Proxy(self.primary.port)
        return self

    def __exit__(self, *_: object) -> None:
        if self.address is not None:
            self.address.close()
        for server in (self.primary, self.standby):
            if server is not None:
                server.close()

    def url(self, dbname: str = "postgres") -> str:
        assert self.address is not None
        return self.address.url(dbname)

    def add_standby(self) -> None:
        """From now on no commit is acknowledged that the standby does not have."""
        self.standby = self.primary.replica()
        self._synchronous(self.primary, "*")
        scratch.eventually(lambda: self.primary.execute(SYNC) == [("sync",)], what="a synchronous standby")

    def fail_over(self, after: float = 0.0) -> None:
        """kill -9 of the primary; after a while the standby is promoted, and the address leads there."""
        assert self.address is not None
        assert self.standby is not None
        dead, heir = self.primary, self.standby
        self.address.refuse()
        dead.crash()
        self.address.cut()
        time.sleep(after)
        heir.promote()
        self._synchronous(heir, "")
        self.primary, self.standby = heir, None
        self.address.target = ("127.0.0.1", heir.port)
        self.address.heal()
        dead.close()

    def _synchronous(self, server: Postgres, names: str) -> None:
        server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        server.execute("SELECT pg_reload_conf()")
