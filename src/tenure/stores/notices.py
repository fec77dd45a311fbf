"""Notices between nodes: they learn of a change at once instead of at their next heartbeat.

A notice only saves time: every node would find the same change in the database a moment later, and a lost or forged
notice changes nothing else. Notices travel as short text over NOTIFY, or through a pipe. The functions in SQL write the
same text.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.util.names import MARKS


@dataclass(frozen=True, slots=True)
class Released:
    """The leader of this election gave its term back: candidates may try now."""

    election: str


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """An operator requested that the leader of this election resign; its next beat tells it so."""

    election: str


@dataclass(frozen=True, slots=True)
class JobsChanged:
    """Jobs or runs of this application changed."""

    application: str


@dataclass(frozen=True, slots=True)
class PeersChanged:
    """A node left or was declared dead: its elections and its runs are free."""


Notice = Released | ResignRequested | JobsChanged | PeersChanged

RESIGN, JOBS = MARKS
"""An election's name must not begin with one of these."""


def encode(notice: Notice) -> str:
    """The text of a notice."""
    match notice:
        case Released(election):
            return election
        case ResignRequested(election):
            return RESIGN + election
        case JobsChanged(application):
            return JOBS + application
        case PeersChanged():
            return ""


def decode(text: str) -> Notice:
    """The notice in a text. Every text is one, because any role that may connect may also notify."""
    match text[:1]:
        case "":
            return PeersChanged()
        case "?":
            return ResignRequested(text[1:])
        case "!":
            return JobsChanged(text[1:])
        case _:
            return Released(text)
