"""Keeps elections, jobs and runs in a database: one protocol, three stores (memory, SQLite, PostgreSQL). `store_for`
makes a store from a URL. All of G1 to G5 rests on what a store does in one transaction."""

from __future__ import annotations

import os

from tenure.errors import ConfigurationError
from tenure.stores.base import Session, Store
from tenure.util import urls

__all__ = ["Session", "Store", "store_for"]


def store_for(url: object = None, *, schema: str = "tenure", migrate: bool = True) -> Store:
    """Return the store behind a URL (or TENURE_URL). Opens nothing yet. Drivers are imported here and not before."""
    if isinstance(url, Store):
        return url
    if url is None:
        url = os.environ.get("TENURE_URL")
        if not url:
            raise ConfigurationError(
                f"no store URL was given and TENURE_URL is not set. Write a URL such as {urls.EXAMPLES}."
            )
    match urls.parse(url):
        case urls.SqliteURL() as parsed:
            from tenure.stores.sqlite.store import SqliteStore

            return SqliteStore(parsed, migrate=migrate)
        case urls.MemoryURL() as parsed:
            from tenure.stores.memory.store import MemoryStore

            return MemoryStore(parsed)
        case urls.PostgresURL() as parsed:
            try:
                from tenure.stores.postgres.store import PostgresStore
            except ImportError as error:
                raise ConfigurationError(
                    f"PostgreSQL needs the driver psycopg 3, which could not be imported ({error}). "
                    "Run: pip install 'tenure[postgres]'."
                ) from error

            return PostgresStore(parsed, schema=schema, migrate=migrate)
