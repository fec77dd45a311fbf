"""The snippets of README and docs are run as they stand; only the user's own functions are ours."""

import asyncio
import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from tenure import Election, __version__

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Enough(Exception):
    """The user's function has been called often enough."""


def snippets() -> Iterator[Any]:
    for page in PAGES:
        for number, code in enumerate(
            re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1
        ):
            yield pytest.param(code, id=f"{page.relative_to(ROOT)}#{number}")


def export_batch(token: int) -> None:
    assert token > 0
    raise Enough


async def export(token: int) -> None:
    export_batch(token)


def charge_fees(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT 1")
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise AssertionError("the work is not in a transaction")
    charged.append(connection)
    if len(charged) > 1:
        raise Enough


charged: list[object] = []


@pytest.mark.parametrize("code", list(snippets()))
def test_snippet(code: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = code.replace("postgresql:///app", database)
    world: dict[str, Any] = {"export_batch": export_batch, "export": export, "charge_fees": charge_fees}
    charged.clear()
    with contextlib.ExitStack() as stack:
        if "term." in code and "Election(" not in code:  # the snippet goes on from one before it
            world["term"] = stack.enter_context(Election(database, "billing")).wait_until_leading(10)
            world["conn"] = stack.enter_context(psycopg.connect(database))
        stack.enter_context(contextlib.suppress(Enough))
        exec(compile(code, "snippet", "exec"), world)  # noqa: S102 - that is the point
        if inspect.iscoroutinefunction(world.get("main")):
            asyncio.run(asyncio.wait_for(world["main"](), 20))


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_changelog_names_the_version() -> None:
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()
