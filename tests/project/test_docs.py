"""The snippets of README and docs are run as they stand; only the user's own functions, and what stood in a snippet before, are ours."""

import ast
import asyncio
import contextlib
import inspect
import logging
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.pq import TransactionStatus

import tenure
import tenure.errors
import tenure.events
import tenure.testing
import tenure.views
from tenure import Election, Run, Scheduler, __version__

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONTRACT = Path(__file__).parent / "contract_snippets.md"
ELSEWHERE = {"docs/coming-from/rq.md": "rq"}
"""Pages about programs that are not installed here, and the environment of `dev.py test-ext` that runs them."""
TYPED_IN = {"docs/tutorial.md", "docs/tutorial-election.md"}
"""Pages whose snippets make up programs: test_tutorials.py types them in."""
FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Enough(Exception):
    """The user's function has been called often enough."""


def snippets() -> Iterator[Any]:
    for page in PAGES:
        if str(page.relative_to(ROOT)) in {*ELSEWHERE, *TYPED_IN}:
            continue
        for number, code in enumerate(FENCED.findall(page.read_text()), 1):
            yield pytest.param(code, id=f"{page.relative_to(ROOT)}#{number}")


class Users:
    """What a user of the snippets has written elsewhere."""

    def __init__(self) -> None:
        self.charged: list[object] = []
        self.engine = sqlalchemy.create_engine("sqlite:///jobs.db")
        self.c = SimpleNamespace(id=7, tz="Europe/Berlin")
        self.order = SimpleNamespace(id=4711)

    def export_batch(self, token: int) -> None:
        assert token > 0
        raise Enough

    async def export(self, token: int) -> None:
        self.export_batch(token)

    def charge_fees(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("SELECT 1")
        assert connection.info.transaction_status == TransactionStatus.INTRANS, "the work is not in a transaction"
        self.charged.append(connection)
        if len(self.charged) > 1:
            raise Enough

    def aggregate(self, day: date) -> None:
        assert isinstance(day, date)

    def insert_invoices(self, session: sqlalchemy.orm.Session, month: datetime) -> None:
        assert session.in_transaction()
        assert month.tzinfo is not None

    def send_report(self, customer_id: int) -> None:
        assert customer_id == self.c.id

    def names(self) -> dict[str, Any]:
        mine = {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "names"}
        return {**mine, "Session": sqlalchemy.orm.Session}


@pytest.mark.parametrize("code", list(snippets()))
def test_snippet(code: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENURE_URL", raising=False)
    if "postgresql:///app" in code or goes_on_from_a_term(code):
        database = request.getfixturevalue("database")
        code = code.replace("postgresql:///app", database)
    if "sentry_sdk.init(" in code:  # it puts itself around much of its process
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        return
    users = Users()
    known = {name: getattr(tenure, name) for name in tenure.__all__}
    events = {name: it for name, it in vars(tenure.events).items() if isinstance(it, type)}
    world: dict[str, Any] = {**known, **events, "tenure": tenure, "__name__": "snippet", **users.names()}
    with contextlib.ExitStack() as stack:
        stack.callback(users.engine.dispose)
        stack.callback(stop_all, world)
        stack.enter_context(contextlib.suppress(Enough))
        if goes_on_from_a_term(code):
            world["term"] = stack.enter_context(Election(database, "billing")).wait_until_leading(10)
            world["conn"] = stack.enter_context(psycopg.connect(database))
        if "scheduler" in code and not re.search(r"^ *scheduler = ", code, re.MULTILINE):
            world["scheduler"] = one_from_before(users)
        if goes_on_from_a_run(code):
            inside_a_job(code, world)
        else:
            execute(code, world)
            use(world)
            run_what_completes(code, world)


@pytest.mark.parametrize(("page", "name"), ELSEWHERE.items())
def test_what_is_not_run_here_is_run_in_an_environment_of_its_own(page: str, name: str) -> None:
    assert page in (ROOT / f"tests/ext/with_{name}.py").read_text()
    assert f'page("{name}")' in (ROOT / "tools/ext_environments.py").read_text()


def goes_on_from_a_term(code: str) -> bool:
    return "term." in code and "Election(" not in code


def goes_on_from_a_run(code: str) -> bool:
    return bool(re.search(r"\brun\.(once|complete)\(", code)) and "def " not in code


def execute(code: str, world: dict[str, Any]) -> None:
    """Run a snippet, also one that awaits at its top, and one that would run for ever."""
    if "scheduler.run()" in code:
        threading.Thread(target=stop_when_started, args=[world], daemon=True).start()
    compiled = compile(code, "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(compiled, world)  # noqa: S307 - that is the point
    if inspect.iscoroutine(outcome):
        asyncio.run(asyncio.wait_for(outcome, 20))


def use(world: dict[str, Any]) -> None:
    """Do with what a snippet defined what its reader would do."""
    if inspect.iscoroutinefunction(world.get("main")):
        asyncio.run(asyncio.wait_for(world["main"](), 20))
    for name, value in list(world.items()):
        if name.startswith("test_"):
            value()
    if isinstance(handler := world.get("handler"), logging.Handler):
        record = logging.makeLogRecord(
            {"msg": "run 4711 failed", "run_id": 4711, "exc_info": (ValueError, ValueError("no"), None)}
        )
        assert handler.filter(record)
        assert "run 4711 failed" in handler.format(record)
    app = world.get("app")
    if "web" in world or "web_wsgi" in world:
        open_the_page(app)
    elif type(app).__module__.startswith("fastapi"):
        asyncio.run(asyncio.wait_for(visit(app), 20))
    elif type(app).__module__.startswith("flask"):
        assert app.test_client().get("/health").status_code == 200


def open_the_page(app: Any) -> None:
    """A mounted page is closed to strangers, and open to those whom its `authorize` knows."""
    if type(app).__module__.startswith("fastapi"):
        answers = [asyncio.run(asked(app, "/ops/tenure/", headers)) for headers in ({}, {"X-User": "bob"})]
    else:
        client = app.test_client()
        answers = [client.get("/ops/tenure/", environ_base=base) for base in ({}, {"REMOTE_USER": "bob"})]
    assert [answer.status_code for answer in answers] == [403, 200]


async def asked(app: Any, path: str, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://app") as client:
        return await client.get(path, headers=headers)


async def visit(app: Any) -> None:
    """Bring a FastAPI application up, call what it offers, and down again."""
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        assert (await client.post("/jobs/heartbeat")).json()["run"] > 0
        assert (await client.get("/health")).json() == {"ok": True}


def one_from_before(users: Users) -> Scheduler:
    """The scheduler of the first snippet, with its jobs in the ledger."""

    def define(scheduler: Scheduler) -> Scheduler:
        @scheduler.cron("0 3 * * *", timeout="20m", retries=2)
        def daily_aggregate(run: Run) -> None:
            users.aggregate(day=run.scheduled_for.date())

        @scheduler.every("30s")
        async def heartbeat() -> None: ...

        scheduler.job(users.send_report)
        return scheduler

    define(Scheduler("sqlite:///jobs.db", tz="Asia/Seoul", capacity=0)).start()
    return define(Scheduler("sqlite:///jobs.db", tz="Asia/Seoul"))


def inside_a_job(code: str, world: dict[str, Any]) -> None:
    """Run a snippet as the body of a real run."""
    scheduler = Scheduler("sqlite:///jobs.db")

    @scheduler.job
    def body(run: Run) -> None:
        execute(code, {**world, "run": run})

    run_for_real(scheduler, "body")


def run_for_real(scheduler: Scheduler, job: str) -> None:
    ended = threading.Event()
    scheduler.on(tenure.events.RunEvent)(lambda _event: ended.set())
    with scheduler:
        asked = scheduler.run_now(job)
        assert ended.wait(20)
    found = scheduler.find_run(asked.id)
    assert found.state == "succeeded", found.reason


def run_what_completes(code: str, world: dict[str, Any]) -> None:
    """Functions that a snippet defines and that complete their runs, as real runs."""
    for name in re.findall(r"^def (\w+)\(run: Run\)", code, re.MULTILINE) if "run.complete(" in code else ():
        with sqlite3.connect("jobs.db") as connection:
            connection.execute("CREATE TABLE invoice (month TEXT)")
        connection.close()
        scheduler = world.get("scheduler")
        if scheduler is None:
            scheduler = Scheduler("sqlite:///jobs.db")
            scheduler.job(world[name])
        run_for_real(scheduler, name)


def stop_when_started(world: dict[str, Any]) -> None:
    while not (isinstance(scheduler := world.get("scheduler"), Scheduler) and scheduler.started):
        threading.Event().wait(0.02)
    scheduler.stop()


def stop_all(world: dict[str, Any]) -> None:
    for value in world.values():
        if isinstance(value, Scheduler) and value.started:
            value.stop(drain=5)


def test_what_was_agreed_on_is_shown_unchanged() -> None:
    shown = {code for page in PAGES for code in FENCED.findall(page.read_text())}
    agreed = FENCED.findall(CONTRACT.read_text())
    assert len(agreed) == 5
    for code in agreed:
        assert code in shown, code


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_links_to_sections_lead_to_one() -> None:
    for page in PAGES:
        for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            text = (page if not target else page.parent / target).read_text()
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert section in slugs, f"{page.relative_to(ROOT)} links to {target}#{section}"


def test_the_files_that_are_named_are_there() -> None:
    for page in PAGES:
        for path in re.findall(r"`((?:tests|docs|bench|chaos|sim|src)/[\w/.*-]+\.(?:py|md|sql))`", page.read_text()):
            assert list(ROOT.glob(path)), f"{page.relative_to(ROOT)} names {path}"


def test_the_tests_that_are_named_are_there() -> None:
    """`tests/core/test_audit.py::test_a`, `::test_b`, `…::test_c`: of the file that was named last in that line."""
    missing: list[str] = []
    for page in PAGES:
        for line in page.read_text().splitlines():
            file = ""
            for named, test in re.findall(r"(tests/[\w/]+\.py)?(?:…?::(test_\w+))?", line):
                file = named or file
                if test and not (file and f"def {test}(" in (ROOT / file).read_text()):
                    missing.append(f"{page.name}: {file}::{test}")
    assert missing == []


def test_the_modules_that_the_internals_name_are_there() -> None:
    package = ROOT / "src/tenure"
    folders = "|".join(folder.name for folder in package.iterdir() if folder.is_dir())
    for page in set((ROOT / "docs/internals").glob("*.md")) - {ROOT / "docs/internals/renames.md"}:
        for path in re.findall(rf"`((?:{folders})/[\w/.*-]*)`", page.read_text()):
            assert list(package.glob(path)), f"{page.relative_to(ROOT)} names {path}"


def test_every_command_is_in_the_reference() -> None:
    from tenure.cli.parser import build

    text = (ROOT / "docs/reference/cli.md").read_text()
    [commands] = [action for action in build()._actions if action.dest == "subcommand"]
    for command in commands.choices or ():
        assert re.search(rf"^\| \[?`{command}\b", text, re.MULTILINE), f"{command} is not in the table of commands"


def test_the_table_of_job_options_is_the_list_of_the_code() -> None:
    from tenure.core.job_options import OPTIONS
    from tenure.core.records import Rules

    table = (ROOT / "docs/reference/job-options.md").read_text().partition("| option |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    assert list(rows) == list(OPTIONS)
    for name, values in rows.items():
        default = getattr(Rules(), name)
        if isinstance(default, str | int | float):
            first = f"{default:g}" if isinstance(default, float) else str(default)
            assert values.lstrip("`").startswith(first), f"{name}: the first value is not the default"


def test_the_public_names_are_in_the_reference() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    for module in (tenure, tenure.errors, tenure.events, tenure.views):
        names = getattr(module, "__all__", None) or [name for name, it in vars(module).items() if isinstance(it, type)]
        missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
        assert missing == [], module.__name__


def test_the_changelog_names_the_version() -> None:
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()


def test_every_argument_of_the_scheduler_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/scheduler.md").read_text()
    for name in inspect.signature(Scheduler).parameters:
        assert f"| `{name}`" in text, name
