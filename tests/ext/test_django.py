"""tenure in Django: the project's own database, its `jobs.py`, its transactions, its commands."""

import re
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from ext import scenes
from ext.served import Served
from harness.processes import Worker
from harness.scratch import eventually


@pytest.mark.timeout(120)
def test_the_command_runs_jobs_whose_effects_commit_with_their_runs(tmp_path, database) -> None:
    assert scenes.django_command(tmp_path, database) >= 4


@pytest.mark.timeout(120)
def test_the_jobs_of_the_page_run_as_they_stand(tmp_path, sqlite_url) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/django.md").read_text()
    (code,) = [
        block for block in re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "jobs.py" in block
    ]
    served = Served(tmp_path, sqlite_url, "django_site", "manage.py", "tenure", "start", TENURE_URL="")
    served.touched.write_text(code)
    with served:
        eventually(lambda: served.worker.errors and "started" in " ".join(served.worker.errors), within=20)
        served.run("manage.py", "tenure", "run-now", "daily_aggregate", "--wait", "20s")


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": "/srv/a b.db"}, "sqlite:////srv/a%20b.db"),
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}, "memory://default"),
        (
            {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "shop",
                "USER": "me",
                "PASSWORD": "it's",
                "HOST": "db",
                "PORT": "5433",
                "OPTIONS": {"sslmode": "require", "pool": False, "isolation_level": None},
                "CONN_MAX_AGE": 60,
            },
            "sslmode=require dbname=shop user=me password='it\\'s' host=db port=5433",
        ),
    ],
    ids=["file", "memory", "postgresql"],
)
def test_the_databases_of_a_project_become_urls(database, url) -> None:
    code = f"""
import django
from django.conf import settings
settings.configure(DATABASES={{"default": {database!r}}}, INSTALLED_APPS=["tenure.ext.django"])
django.setup()
from tenure.ext.django.project import url_of
print(url_of("default"))
"""
    worker = Worker("code", env={})
    worker.command = [sys.executable, "-c", code]
    with worker:
        assert worker.wait(within=20) == 0, worker.story()
    found = worker.lines[-1]
    assert found == url if "=" not in url else conninfo_to_dict(found).items() >= conninfo_to_dict(url).items()


def test_django_can_drop_its_test_database_after_tests_that_use_the_scheduler(database) -> None:
    given = conninfo_to_dict(database)
    words = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    told = {ours: str(given.get(theirs) or "") for ours, theirs in words.items()}
    code = f"""
import django
from django.conf import settings
settings.configure(
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql", **{told!r}}}}}, INSTALLED_APPS=["tenure.ext.django"]
)
django.setup()
from django.test.runner import DiscoverRunner
from tenure.ext.django import scheduler
runner = DiscoverRunner(interactive=False, verbosity=0)
runner.setup_test_environment()
databases = runner.setup_databases()
scheduler.job(name="work")(lambda: None)
scheduler.add("work", None, name="job")
print(scheduler.run_now("job").state)
runner.teardown_databases(databases)
"""
    worker = Worker("code", env={})
    worker.command = [sys.executable, "-c", code]
    with worker:
        assert worker.wait(within=20) == 0, worker.story()
    assert worker.lines[-1] == "pending"
