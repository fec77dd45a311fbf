"""Handles failover and restore (promise G1).

After the database's identity changes, nodes grant no terms until every lease from before has expired. Then they raise
the epoch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from tenure.core.cluster import Epoch
from tenure.stores import Session
from tenure.util.clock import boottime

logger = logging.getLogger("tenure")


class EpochGuard:
    """What one node has noticed.

    `forget` drops what was watched in the old database; `resume` is called when grants are allowed.
    """

    def __init__(self, *, forget: Callable[[], None], resume: Callable[[], None]) -> None:
        self._forget, self._resume = forget, resume
        self._noticed: Epoch | None = None
        self._put_back = False
        self.ripe_at = math.inf
        """When the epoch may be raised, if there is something to raise it for."""

    def put_back(self) -> None:
        """The same database was put back in time, which only this node has seen."""
        self._put_back = True

    def notice(self, session: Session) -> None:
        """A grant was refused, or may be: look, and wait until no node can believe in a grant that was lost."""
        epoch = session.epoch()
        if epoch.settled:
            self._noticed, self.ripe_at = None, math.inf
            self._resume()
        elif epoch != self._noticed:
            logger.warning(
                "the database is not the one that the terms were granted on (failover, restore or copy): "
                "no grants for %g s, then the epoch is raised",
                epoch.max_ttl,
                extra={"action": "database_moved"},
            )
            self._noticed, self.ripe_at = epoch, boottime() + epoch.max_ttl
            self._forget()

    def turn(self, session: Session) -> None:
        """Stop grants on all nodes, or raise the epoch, if it is time."""
        if self._put_back:
            self._put_back = False
            session.unsettle(session.epoch())
            self.notice(session)
        if self._noticed is None or boottime() < self.ripe_at:
            return
        noticed, self._noticed, self.ripe_at = self._noticed, None, math.inf
        if session.raise_epoch(noticed):
            logger.warning("the epoch was raised: terms go on from a higher number", extra={"action": "epoch_raised"})
        self._forget()
        self.notice(session)
