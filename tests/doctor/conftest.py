"""Databases and servers for the doctor to examine."""

import uuid
from collections.abc import Iterator

import pytest

from harness.components import need
from harness.postgres import Postgres
from tenure.stores import store_for


@pytest.fixture
def ready(database):
    """A database with tenure's tables."""
    store_for(database).prepare()
    return database


@pytest.fixture
def role(postgres) -> Iterator[str]:
    """A role that may connect and nothing else."""
    name = f"role_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    for (database,) in postgres.execute(
        "SELECT datname FROM pg_database WHERE datallowconn AND datname <> 'template0'"
    ):
        postgres.execute(f"DROP OWNED BY {name}", dbname=database)
    postgres.execute(f"DROP ROLE {name}")


@pytest.fixture(scope="module")
def two_phase() -> Iterator[Postgres]:
    """A server that allows two-phase commit and has few connections."""
    need("postgres")
    settings = {"max_prepared_transactions": "5", "max_connections": "20", "full_page_writes": "off"}
    with Postgres(settings=settings) as own:
        yield own


@pytest.fixture(scope="module")
def healthy() -> Iterator[Postgres]:
    """A server as it should be; the harness's own saves fsync."""
    need("postgres")
    with Postgres(fsync=True, settings={"autovacuum": "off"}) as own:
        yield own
