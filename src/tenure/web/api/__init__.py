"""The same views as JSON, and every operation, under /api/v1. Errors are problem+json (RFC 9457).

`openapi.json` beside this file describes all of it, by hand; tests hold every route and every answer to it.
"""

from __future__ import annotations

from tenure.web.api.answers import problem
from tenure.web.api.changes import CHANGES, json_of
from tenure.web.api.reads import READS

__all__ = ["CHANGES", "READS", "json_of", "problem"]
