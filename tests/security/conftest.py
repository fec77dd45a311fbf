"""Roles that may connect and nothing else."""

import uuid
from collections.abc import Iterator

import pytest


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
