"""tenure in Django: the project's own database, its `jobs.py`, its transactions, its commands."""

import pytest

from ext import scenes


@pytest.mark.timeout(120)
def test_the_command_runs_jobs_whose_effects_commit_with_their_runs(tmp_path, database) -> None:
    assert scenes.django_command(tmp_path, database) >= 4
