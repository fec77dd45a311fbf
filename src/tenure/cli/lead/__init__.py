"""`tenure lead`: runs a command only while this node leads.

It promises that every process of the command's group is dead before another node can lead. So the stop begins early:
when no heartbeat has been acknowledged for so long that less than `grace` of trust is left, the group gets SIGTERM, and
shortly before trust ends SIGKILL. Once the command was told to stop, a late acknowledgement changes nothing.

Three things hold even if this process dies or freezes. The command inherits the node's lock, so no node on this host
takes over while any process of it lives. The kernel kills the command with its parent (PDEATHSIG). And a guard process,
forked before anything else, kills the group when the pipe to this process closes, or when the last deadline that it was
told has passed.
"""

from __future__ import annotations

from tenure.cli.lead.process_group import find
from tenure.cli.lead.supervisor import Again, CommandOutcome, Lead, election_for
from tenure.cli.lead.timing import Act, Timing, act

__all__ = ["Act", "Again", "CommandOutcome", "Lead", "Timing", "act", "election_for", "find"]
