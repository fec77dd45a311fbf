"""What a row may name under the drop-in for APScheduler: a plain function of the application, and nothing else,
whatever the application has imported."""

import queue
import sys
import types

import pytest

from harness.scratch import eventually
from security.rows import PostgresHand, SqliteHand
from tenure.ext.apscheduler import BackgroundScheduler, functions
from tenure.ext.apscheduler.stored_functions import Loaded

called: queue.SimpleQueue[object] = queue.SimpleQueue()

SHOP = """
import os, subprocess
from os import system
from shutil import rmtree
from functools import partial

def remind(*args): told.put(args)
async def wait(*args): told.put(args)
def made():
    def inner(*args): told.put(args)
    return inner
inner = made()
shortcut = lambda *args: told.put(args)
renamed = remind
given = partial(remind, 1)

class Klass:
    def __init__(self, *args): told.put(args)
    def method(self, *args): told.put(args)
    @classmethod
    def of_class(cls, *args): told.put(args)
    @staticmethod
    def static(*args): told.put(args)

instance = Klass.__new__(Klass)

def __getattr__(name):
    told.put(name)
    return remind
"""


def tell(*args: object) -> None:
    called.put(args)


def module(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of this text, loaded."""
    made = types.ModuleType(name)
    made.told = called
    exec(source, vars(made))  # noqa: S102 - a text of this file
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def shop(monkeypatch):
    while not called.empty():
        called.get()
    module("shop", SHOP, monkeypatch)
    return module("shop.jobs", SHOP, monkeypatch)


@pytest.mark.parametrize(
    "reference",
    [
        "shop:os.system",
        "shop:system",
        "shop:subprocess.run",
        "shop:rmtree",
        "shop:Klass",
        "shop:Klass.method",
        "shop:Klass.of_class",
        "shop:instance.method",
        "shop:<lambda>",
        "shop:shortcut",
        "shop:renamed",
        "shop:given",
        "shop:inner",
        "shop:made.<locals>.inner",
        "shop:remind.__globals__",
        "shop:nothing",
        "shop:",
        "shop",
        ":remind",
        "",
        "shopping:remind",
        "other:remind",
        "os:system",
        "builtins:eval",
        "shop.jobs.remind",
        "shop.jobs:remind\n",
        "shop.unloaded:remind",
        "__main__:system",
        "x" * 100_000,
    ],
)
def test_a_stored_name_finds_nothing_but_a_plain_function_of_the_application(reference, shop, monkeypatch):
    module("other", SHOP, monkeypatch)
    monkeypatch.setattr(sys.modules["__main__"], "system", sys.modules["os"].system, raising=False)
    before = set(sys.modules)
    assert Loaded(["shop"]).find(reference) is None
    assert set(sys.modules) == before, "nothing is imported"
    assert called.empty(), "nothing is called"


def test_a_stored_name_finds_plain_functions_of_the_application(shop):
    found = Loaded(["shop"])
    assert found.find("shop.jobs:remind") is shop.remind
    assert found.find("shop.jobs:wait") is shop.wait
    assert found.find("shop.jobs:Klass.static") is shop.Klass.static
    assert Loaded(["shop.jobs"]).find("shop:remind") is None


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rows_that_name_anything_else_never_run_and_are_listed_once(kind, request, shop, caplog, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "system", sys.modules["os"].system, raising=False)
    if kind == "sqlite":
        hand = SqliteHand(request.getfixturevalue("sqlite_url"))
    else:
        hand = PostgresHand(request.getfixturevalue("database"))
    monkeypatch.setenv("TENURE_URL", hand.url)
    monkeypatch.setattr(functions, "LOADING", 0.0)
    BackgroundScheduler(importable=["shop"]).tenure.jobs()
    evil = ["shop:os.system", "__main__:system", "shop:Klass", "shop:shortcut", "shop:<lambda>", "os:system", "\x1b[2J"]
    scheduler = BackgroundScheduler(importable=["shop"], timezone="UTC")
    scheduler.add_job(tell, "interval", seconds=1, args=["healthy"], id="healthy")
    scheduler.start()
    for function in evil:
        hand.job(f"job of {function!r}", function=function, kwargs='{"args": ["touch evil"], "kwargs": {}}')
    hand.job("of the shop", function="shop:remind", kwargs='{"args": ["good"], "kwargs": {}}')
    scheduler.wakeup()
    found = set()
    while len(found) < 2:
        found.add(called.get(timeout=30))
    assert found == {("healthy",), ("good",)}
    listed = lambda: [record for record in caplog.records if getattr(record, "action", "") == "unregistered"]  # noqa: E731
    eventually(lambda: all(name in str([record.getMessage() for record in listed()]) for name in evil[:-1]), within=30)
    assert "\x1b" not in caplog.text
    assert "importable=" in listed()[0].getMessage()
    strange = [run for run in scheduler.tenure.runs(limit=1000) if run.job.startswith("job of ")]
    assert {run.state for run in strange} <= {"pending", "skipped"}, "none of them began"
    scheduler.shutdown()
