"""APScheduler's configuration: job stores, executors and defaults, and what they mean in tenure."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenure.errors import ConfigurationError
from tenure.ext.apscheduler.errors import unsupported

logger = logging.getLogger("tenure")

DEFAULT_URL = "sqlite:///tenure.db"
DEFAULT_TABLE = "apscheduler_jobs"
_STORES = (
    "Jobs are kept in SQLite or PostgreSQL: write "
    "jobstores={'default': SQLAlchemyJobStore(url='postgresql://…')} or set TENURE_URL."
)
_KEEP = "To keep this store, keep APScheduler and write make_cluster_safe(scheduler, url)."
_EXECUTORS = "Write ThreadPoolExecutor, ProcessPoolExecutor or AsyncIOExecutor, or leave executors= out."


@dataclass(frozen=True)
class SQLAlchemyJobStore:
    """Names the database. It needs no SQLAlchemy and stores no pickles."""

    url: object = None
    engine: Any = None
    metadata: object = None
    tablename: str = DEFAULT_TABLE
    pickle_protocol: int = 5
    tableschema: str | None = None
    engine_options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class MemoryJobStore:
    """Names no database: the jobs are in TENURE_URL, or in a file beside the program."""


@dataclass(frozen=True)
class ThreadPoolExecutor:
    """Runs in threads of this process."""

    max_workers: int = 10
    pool_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ProcessPoolExecutor:
    """Runs in processes of their own."""

    max_workers: int = 10
    pool_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class AsyncIOExecutor:
    """Runs coroutines on the event loop, and functions in threads."""

    max_workers: int = 100


Executor = ThreadPoolExecutor | ProcessPoolExecutor | AsyncIOExecutor

_STORE_TYPES: Mapping[str, Any] = {"sqlalchemy": SQLAlchemyJobStore, "memory": MemoryJobStore}
_EXECUTOR_TYPES: Mapping[str, Any] = {
    "threadpool": ThreadPoolExecutor,
    "processpool": ProcessPoolExecutor,
    "asyncio": AsyncIOExecutor,
    "debug": ThreadPoolExecutor,
}


_OPTIONS = ("jobstores", "executors", "job_defaults", "timezone", "application", "functions", "importable")
DEFAULTS = ("misfire_grace_time", "coalesce", "max_instances")
"""Keys of APScheduler's `job_defaults`; all others there are options of tenure."""

_YES = frozenset({"true", "yes", "on", "y", "t", "1"})
_NO = frozenset({"false", "no", "off", "n", "f", "0"})


@dataclass
class Options:
    """The configuration of a scheduler."""

    jobstores: dict[str, SQLAlchemyJobStore | MemoryJobStore] = field(default_factory=dict)
    executors: dict[str, Executor] = field(default_factory=dict)
    job_defaults: dict[str, Any] = field(default_factory=dict)
    timezone: object = None
    application: str | None = None
    functions: tuple[object, ...] | None = None
    """All functions that stored jobs may name; None: what the application has loaded."""
    importable: tuple[str, ...] = ()
    """Further packages of the application."""

    def take(self, config: Mapping[str, Any]) -> None:
        """Set the options given to `configure`."""
        for word, value in config.items():
            match word:
                case "jobstores":
                    self.jobstores = {alias: store(given) for alias, given in value.items()}
                case "executors":
                    self.executors = {alias: executor(given) for alias, given in value.items()}
                case "job_defaults":
                    self.job_defaults = {word: _read(word, given) for word, given in value.items()}
                    check_max_instances(self.job_defaults)
                case "timezone":
                    self.timezone = value
                case "application":
                    self.application = value
                case "functions":
                    self.functions = tuple(value)
                case "importable":
                    self.importable = _packages(value)
                case "daemon" | "logger" | "jobstore_retry_interval" | "event_loop":
                    pass  # these have no meaning in tenure
                case _:
                    logger.warning(
                        "%s=%r is not an option of a scheduler and changes nothing. %s",
                        word,
                        value,
                        _meant(word),
                        extra={"action": "unknown_option"},
                    )

    @property
    def capacity(self) -> int:
        """The number of runs at once on this node."""
        return sum(executor.max_workers for executor in self.executors.values())

    def place(self) -> tuple[object, str]:
        """The URL of the store, and the application."""
        named = [one for one in self.jobstores.values() if isinstance(one, SQLAlchemyJobStore)]
        places = {str(address := _address(one)): address for one in named}
        if len(places) > 1:
            raise ConfigurationError(
                f"jobstores: {len(places)} databases are named. One scheduler has one: make a scheduler for each."
            )
        application = self.application or next(
            (one.tablename for one in named if one.tablename != DEFAULT_TABLE), "default"
        )
        if places:
            return next(iter(places.values())), application
        if os.environ.get("TENURE_URL"):
            return None, application
        logger.warning(
            "no store was named: jobs are kept in %s. Set TENURE_URL, or write jobstores={'default': "
            "SQLAlchemyJobStore(url=…)}",
            Path("tenure.db").absolute(),
            extra={"action": "default_store"},
        )
        return DEFAULT_URL, application


def store(given: Any) -> SQLAlchemyJobStore | MemoryJobStore:
    """A job store: ours, a dict that describes one, or APScheduler's own."""
    if isinstance(given, SQLAlchemyJobStore | MemoryJobStore):
        return given
    if isinstance(given, Mapping):
        words = dict(given)
        kind = str(words.pop("type", words.pop("class", ""))).rpartition(":")[2]
        made = _STORE_TYPES.get(kind.lower().removesuffix("jobstore"))
        if made is None:
            raise unsupported(f"the job store {kind or given!r}", f"{_STORES} {_KEEP}")
        try:
            return made(**words)  # type: ignore[no-any-return]
        except TypeError as error:
            raise ConfigurationError(f"jobstores: {error}.") from None
    match type(given).__name__:
        case "SQLAlchemyJobStore":
            return SQLAlchemyJobStore(engine=given.engine, tablename=given.jobs_t.name)
        case "MemoryJobStore":
            return MemoryJobStore()
        case other:
            raise unsupported(f"the job store {other}", f"{_STORES} {_KEEP}")


def executor(given: Any) -> Executor:
    """An executor: ours, a dict that describes one, or APScheduler's own."""
    if isinstance(given, ThreadPoolExecutor | ProcessPoolExecutor | AsyncIOExecutor):
        return given
    if isinstance(given, Mapping):
        words = dict(given)
        kind = str(words.pop("type", words.pop("class", ""))).rpartition(":")[2]
        made = _EXECUTOR_TYPES.get(kind.lower().removesuffix("executor"))
        if made is None:
            raise unsupported(f"the executor {kind or given!r}", _EXECUTORS)
        known = {word: int(value) for word, value in words.items() if word == "max_workers"}
        return made(**known)  # type: ignore[no-any-return]
    match type(given).__name__:
        case "ThreadPoolExecutor":
            return ThreadPoolExecutor(given._pool._max_workers)  # noqa: SLF001 - it is kept nowhere else
        case "ProcessPoolExecutor":
            return ProcessPoolExecutor(given._pool._max_workers)  # noqa: SLF001
        case "AsyncIOExecutor":
            return AsyncIOExecutor()
        case "DebugExecutor":
            return ThreadPoolExecutor()
        case other:
            raise unsupported(f"the executor {other}", _EXECUTORS)


def flattened(given: Mapping[str, Any], prefix: str | None) -> dict[str, Any]:
    """`{"apscheduler.executors.default.type": …}` as nested dicts."""
    config: dict[str, Any] = {}
    for key, value in given.items():
        if prefix and not key.startswith(prefix):
            continue
        *path, last = key.removeprefix(prefix or "").split(".")
        inner = config
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return config


def _meant(word: str) -> str:
    """What to write instead of an unknown option."""
    if word in DEFAULTS:
        return f"Write job_defaults={{{word!r}: …}}."
    near = difflib.get_close_matches(word.replace("_", ""), {one.replace("_", ""): one for one in _OPTIONS}, n=1)
    meant = next((one for one in _OPTIONS if near and one.replace("_", "") == near[0]), None)
    return f"Did you mean {meant}=?" if meant else f"The options are {', '.join(_OPTIONS)}."


def _read(word: str, given: Any) -> Any:
    """A default of jobs; in configuration files the values are strings."""
    if not isinstance(given, str):
        return given
    text = given.strip().lower()
    if word == "coalesce" and text in _YES | _NO:
        return text in _YES
    return int(text) if word in {"max_instances", "misfire_grace_time"} and text.isdecimal() else given


def check_max_instances(options: Mapping[str, Any]) -> None:
    """Refuse a wrong number of instances where it is written, not when the scheduler starts."""
    count = options.get("max_instances", 1)
    if type(count) is not int or count < 1:
        raise ConfigurationError(f"max_instances={count!r} is not a whole number of 1 or more. Write max_instances=1.")


def _packages(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise ConfigurationError(f"importable: {given!r} is not a list of packages. Write importable=['shop.jobs'].")
    return tuple(given)


def _address(named: SQLAlchemyJobStore) -> object:
    if named.url is None and named.engine is None:
        raise ConfigurationError(
            "SQLAlchemyJobStore: no url was given. Write SQLAlchemyJobStore(url='postgresql://…')."
        )
    return named.engine.url if named.url is None else named.url
