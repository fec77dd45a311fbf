"""The pages, each in a module of its own: what it shows (a frozen view), how that is read, and the handler.

To add a page: write its module here with `show`, its template in `templates/`, and a line in `PAGES` below.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure.web.page_request import Handler
from tenure.web.pages import actions, audit, backfill, job, load, now, run, terms


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and where it stands."""

    path: str
    show: Handler
    title: str = ""
    """What the navigation calls it; '' for a page that other pages lead to."""
    key: str = ""
    """After `g` this key goes there."""


PAGES = (
    Page("/", now.show, "Now", "n"),
    Page("/job", job.show),
    Page("/run/{number}", run.show),
    Page("/backfill", backfill.show),
    Page("/terms", terms.show, "Terms", "t"),
    Page("/load", load.show, "Load", "l"),
    Page("/audit", audit.show, "Audit", "a"),
    Page("/actions", actions.show, "Actions", "d"),
)
"""All pages; those with a title are in the navigation, in this order."""
