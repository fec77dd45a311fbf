"""How PostgreSQL finds what the ledger asks for: by an index, with plans made on empty tables as with plans made on full ones.

The server itself tells how it ran each statement, also those inside functions (auto_explain).
"""

import itertools
import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from harness.postgres import Postgres
from tenure.core.cluster import NodeCard
from tenure.core.messages import (
    ActionQuery,
    ClaimRequest,
    Ending,
    JobChange,
    JobPageQuery,
    NewRun,
    Planned,
    RunQuery,
    RunRequest,
)
from tenure.core.records import OPEN, Change, JobId, JobSpec, Rules, RunId, RunState
from tenure.stores import Session, store_for
from tenure.stores.ledger import Ledger
from tenure.triggers import every

HOURLY = every("1h").to_json()
SPEC = JobSpec("app", "job", "f", HOURLY, Rules(overlap="allow", max_running=1000))
NODE = str(uuid.uuid4())
_claims = itertools.count(1)
EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_parameter_max_length": "0",
}

FILL = """
INSERT INTO tenure.job (application, name, function, trigger, kwargs, rules, queue, overlap, max_running, on_time, on_lost, max_lost,
                        in_code, release, tzdata, since, lane, next_due)
SELECT j.application, 'job ' || n, j.function, j.trigger, j.kwargs, j.rules, j.queue, j.overlap, j.max_running, j.on_time, j.on_lost,
       j.max_lost, j.in_code, j.release, j.tzdata, j.since, j.lane, now() + interval '1 hour' + n * interval '1 second'
  FROM tenure.job j, generate_series({first}, {last}) n WHERE j.name = 'job';
INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state)
SELECT j.id, j.application, j.lane, 1, 'due', 'past', j.next_due - interval '10 days', j.next_due - interval '10 days', NULL, 'succeeded'
  FROM tenure.job j WHERE j.name <> 'job'
ON CONFLICT DO NOTHING;
INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state)
SELECT j.id, j.application, j.lane, 1, 'due', 'soon', j.next_due, j.next_due, j.next_due + interval '60 seconds', 'pending'
  FROM tenure.job j WHERE j.name <> 'job'
ON CONFLICT DO NOTHING;
"""


class Explained:
    """A ledger, and what its server says of the plans it used."""

    def __init__(self, server: Postgres, url: str) -> None:
        self._log = server.log
        self.database = url.rsplit("/", 1)[1]
        self.session: Session = store_for(url).session("test", timeout=60.0)
        self.ledger: Ledger = self.session.ledger

    def plans(self, act: Callable[[], object]) -> str:
        act()  # some statements come only with the second call
        so_far = self._log.stat().st_size
        act()
        with self._log.open(encoding="utf-8") as log:
            log.seek(so_far)
            return log.read()


def whole_scans(plans: str) -> list[str]:
    """Of whole tables, and of whole indexes: those without a condition."""
    lines = plans.splitlines()
    return [
        line
        for line, below in itertools.pairwise(lines)
        if re.search(r"Scan (using \w+ )?on (run|job)\b", line) and "Cond:" not in below
    ]


def everything(ledger: Ledger) -> None:
    """All that nodes do over and over, on the job that is due first: planned, claimed, finished, retried, taken back, changed."""
    now = ledger.now()
    token = str(uuid.uuid4())
    job = ledger.unplanned("app", before=now + 10, limit=1)[0]
    assert job.next_due is not None
    new = tuple(NewRun(now - late, now - late, None) for late in (3.0, 2.0))
    assert ledger.plan([Planned(job.id, job.generation, job.next_due, job.next_due + 1e-3, new)]) == 2
    run, *_ = ledger.claim(ClaimRequest(NODE, "app", token, 10, functions=("f", "another"))).runs
    ledger.finish([Ending(run.id, token, RunState.PENDING, again_in=0.0)])
    ledger.claim(ClaimRequest(NODE, "app", token, 1))
    assert ledger.put_back([(run.id, token)]) == 1
    ledger.claim(ClaimRequest(NODE, "app", token, 1))
    assert [ended.accepted for ended in ledger.finish([Ending(run.id, token, RunState.SUCCEEDED)])] == [True]
    ledger.reconcile(NODE, "app")
    ledger.note_begun([(run.id, token, now)])
    ledger.unbegun(job.id, job.generation)
    ledger.missed("app", 10)
    assert ledger.settle(job.id, job.generation, make_up=(), skip=(), reason="")
    ledger.change(JobChange("app", "job", Change.UPDATED, SPEC, next_due=job.next_due + 2e-3))
    (synced,) = ledger.sync("app", 0, [JobChange("app", "job", Change.ADDED, SPEC)])
    assert synced.row.spec.name == "job"
    ledger.functions("app")
    ledger.nodes("app")
    ledger.running("app")
    ledger.stored_arguments("app", "", 10)
    ledger.requested_arguments("app", RunId(0), 10)
    ledger.unserved("app", [("f", None), ("another", "default")], 10)
    assert len(ledger.job_marks("app", JobId(job.id + 1), 10, 10)) in {0, 10}


@pytest.fixture(scope="module", params=["planned while empty", "analysed while small", "never analysed", "analysed"])
def explained(request, postgres: Postgres) -> Iterator[Explained]:
    url = postgres.create_database()
    name = url.rsplit("/", 1)[1]
    for setting, value in EXPLAIN.items():
        postgres.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    store_for(url).prepare()
    postgres.execute("ALTER TABLE tenure.run SET (autovacuum_enabled = off)", dbname=name)
    postgres.execute("ALTER TABLE tenure.job SET (autovacuum_enabled = off)", dbname=name)
    early = Explained(postgres, url)
    early.session.join(NodeCard(NODE, "a node", 30.0))
    early.ledger.change(JobChange("app", "job", Change.ADDED, SPEC, next_due=early.ledger.now()))
    if request.param == "analysed while small":
        postgres.execute(FILL.format(first=1, last=50), dbname=name)
        postgres.execute("VACUUM ANALYZE", dbname=name)
    for _ in range(3):
        everything(early.ledger)
    postgres.execute(FILL.format(first=51, last=100_000), dbname=name)
    if request.param == "analysed":
        postgres.execute("ANALYZE", dbname=name)
    late = Explained(postgres, url)
    yield early if "while" in request.param else late
    early.session.close()
    late.session.close()
    postgres.drop_database(url)


def test_nothing_that_nodes_do_reads_a_whole_table(explained):
    plans = explained.plans(lambda: everything(explained.ledger))
    assert "run_due" in plans
    assert whole_scans(plans) == []


@pytest.mark.parametrize(
    ("index", "within"),
    [
        ("run_due", "claim"),
        ("run_expires", "claim"),
        ("run_waiting", "claim"),
        ("run_open", "claim"),
        ("run_pkey", "finish"),
        ("job_next", "unplanned"),
        ("run_expires", "missed"),
        ("run_running", "reconciliation"),
    ],
)
def test_the_frequent_questions_have_indexes_of_their_own(explained, index, within):
    ledger = explained.ledger

    def claim() -> None:
        (asked,) = ledger.request_runs([RunRequest("app", "job", str(uuid.uuid4()), None)])
        assert asked is not None
        later = ledger.now() + 2 * next(_claims)  # a claim looks for what expires once a second
        ledger.claim(ClaimRequest(NODE, "app", str(uuid.uuid4()), 1, as_of=later))
        ledger.cancel(asked.id, "", "")

    questions = {
        "claim": claim,
        "finish": lambda: ledger.finish([Ending(RunId(1), "none", RunState.SUCCEEDED)]),
        "unplanned": lambda: ledger.unplanned("app", before=ledger.now() + 5, limit=5),
        "missed": lambda: ledger.missed("app", 5),
        "reconciliation": lambda: ledger.reconcile(NODE, "app"),
    }
    assert f"using {index} on" in explained.plans(questions[within])


def test_a_scan_is_noticed(explained, postgres):
    plans = explained.plans(
        lambda: postgres.execute("SELECT 1 FROM tenure.job j WHERE j.paused_why = 'x'", dbname=explained.database)
    )
    assert whole_scans(plans)


# What people ask, on a table that has grown: many jobs, many runs of each, and few that failed

JOBS, RUNS_EACH = 1000, 150
GROWN = f"""
INSERT INTO tenure.job (application, name, function, trigger, kwargs, rules, queue, overlap, max_running, on_time, on_lost, max_lost,
                        in_code, release, tzdata, since, next_due)
SELECT j.application, 'job ' || n, j.function, j.trigger, j.kwargs, j.rules, j.queue, j.overlap, j.max_running, j.on_time, j.on_lost,
       j.max_lost, j.in_code, j.release, j.tzdata, j.since, now() + interval '1 hour'
  FROM tenure.job j, generate_series(1, {JOBS}) n WHERE j.name = 'job';
INSERT INTO tenure.job_change (job, generation, at, what, trigger, by, why)
SELECT j.id, 1, now() - interval '30 days', 'added', j.trigger, '', '' FROM tenure.job j WHERE j.name <> 'job';
INSERT INTO tenure.run (job, application, generation, kind, key, scheduled_for, due_at, state, attempt, started_at, finished_at)
SELECT j.id, j.application, 1, 'due', n::text, now() - n * interval '1 hour', now() - n * interval '1 hour',
       (CASE WHEN j.id % 100 = 7 AND n % 50 = 3 THEN 'failed' ELSE 'succeeded' END)::tenure.run_state, 1, now(), now()
  FROM generate_series(1, {RUNS_EACH}) n, tenure.job j WHERE j.name <> 'job';
INSERT INTO tenure.run (job, application, generation, kind, key, scheduled_for, due_at, state)
SELECT j.id, j.application, 1, 'due', 'soon', now() + interval '5 seconds', now(), 'pending' FROM tenure.job j WHERE j.name LIKE 'job 1%';
INSERT INTO tenure.job_hour (job, application, hour, removed, succeeded, failed, lost, cancelled, skipped, missed, open, late_total, late_most,
                             late, took_total, took_most, took)
SELECT j.id, j.application, date_trunc('hour', now(), 'UTC') - n * interval '1 hour', false, 1, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, 0, ''
  FROM generate_series(1, {RUNS_EACH}) n, tenure.job j WHERE j.name <> 'job';
INSERT INTO tenure.job_day (job, application, day, succeeded, failed, lost, cancelled, skipped, missed, late_total, late_most, late, took_total,
                            took_most, took)
SELECT j.id, j.application, date_trunc('day', now(), 'UTC') - n * interval '1 day', 1, 0, 0, 0, 0, 0, 0, 0, '', 0, 0, ''
  FROM generate_series(20, 70) n, tenure.job j WHERE j.name <> 'job';
"""


# Besides, all that piles up around them: logs, the terms of many elections, nodes that ended, and actions
GROWN += """
INSERT INTO tenure.run_log (run, attempt, place, at, line)
SELECT n, 1, p, now(), 'a line' FROM generate_series(1, 100) n, generate_series(1, 100) p;
INSERT INTO tenure.election (name) SELECT 'election ' || n FROM generate_series(1, 100) n;
INSERT INTO tenure.term (election, number, node, label, began_at, began_by)
SELECT e.name, n, gen_random_uuid(), 'a node', now() - n * interval '1 minute', 'released'
  FROM tenure.election e, generate_series(1, 200) n;
INSERT INTO tenure.node (id, ttl, label, state, ended_at)
SELECT gen_random_uuid(), 10, 'a node', 'left', now() - n * interval '1 minute' FROM generate_series(1, 5000) n;
INSERT INTO tenure.action (at, application, by, what, target, why, origin, detail)
SELECT now(), CASE WHEN n % 2 = 0 THEN 'app' ELSE 'another' END, 'ada', 'pause', 'job', '', '', '' FROM generate_series(1, 10000) n;
ANALYZE tenure.action;   -- as the server does by itself: its autovacuum is not switched off
"""
LONG = {"run", "job", "job_change", "job_hour", "job_day", "run_log", "term", "node", "action"}


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def grown(request, postgres: Postgres) -> Iterator[Explained]:
    url = postgres.create_database()
    name = url.rsplit("/", 1)[1]
    for setting, value in {**EXPLAIN, "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off"}.items():
        postgres.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    store_for(url).prepare()
    for table in ("run", "job", "job_hour", "job_day"):
        postgres.execute(f"ALTER TABLE tenure.{table} SET (autovacuum_enabled = off)", dbname=name)
    first = Explained(postgres, url)
    first.ledger.change(JobChange("app", "job", Change.ADDED, SPEC, next_due=first.ledger.now()))
    first.session.close()
    postgres.execute(GROWN, dbname=name)
    if request.param == "analysed":
        postgres.execute("ANALYZE", dbname=name)
    explained = Explained(postgres, url)
    yield explained
    explained.session.close()
    postgres.drop_database(url)


def rows_read(plans: str) -> int:
    """The most rows of a long table that one node of a plan has read in all its loops.

    The table of jobs may be read once, but not for each of many things.
    """
    most, loops = 0, 1
    for line in plans.splitlines():
        if found := re.search(r"Scan .*?on (\w+).*\(actual rows=(\d+)(?:\.\d+)? loops=(\d+)\)", line):
            loops = int(found[3]) if found[1] in LONG else 0
            read = int(found[2]) * loops
            most = max(most, 0 if found[1] == "job" and read <= JOBS + 1 else read)
        elif found := re.search(r"Rows Removed by Filter: (\d+)", line):
            most = max(most, int(found[1]) * loops)
    return most


@pytest.mark.parametrize(
    ("question", "at_most"),
    [
        ("the newest", JOBS + 100),  # all jobs are due at one instant: these are sorted by number
        ("failed", 60),
        ("running", 0),
        ("open", 200),
        ("of a day", JOBS + 100),  # all jobs are due at one instant: these are sorted by number
        ("failed of a day", 20),
        ("of a job", 200),
        ("a further page", JOBS + 100),  # all jobs are due at one instant: these are sorted by number
        ("the run after another", 10),
        ("changes of a job", 1),
        ("how many", 200),
        ("overdue", 400),
        ("how busy nodes are", 0),
        ("figures", 11_000),
        ("for an audit", 300),
        ("by key", 1),
        ("in a slot", 1),
        ("coming", 200),
        ("into a slot", 2),
        ("again", 2),
        ("a page of jobs", 1100),
        ("strips", 60 * 10),
        ("log ends", 10),
        ("terms of each election", 400),
        ("terms of one election", 20),
        ("nodes", 51),
        ("a page of actions", 100),
        ("a page of actions on one job", 100),
        ("counting", 100),
        ("the hours of a job", 30),
        ("the days of a job", 60),
        ("totals", 300),
        ("counts by queue", 600),
        ("closing days", 30),
        ("open by queue", 300),
        ("how runs ended", 200 * 33),  # an incremental sort reads 33 rows of each job at the least
        ("how long they took", 110),
    ],
)
def test_what_people_ask_reads_little_more_than_the_answer(grown, question, at_most):
    ledger, limit = grown.ledger, 100
    now = ledger.now()
    failed, day = (RunState.FAILED, RunState.LOST), now - 86400
    few = [row.id for row in ledger.jobs("app")[:10]]
    questions: dict[str, Callable[[], object]] = {
        "the newest": lambda: ledger.runs(RunQuery("app", limit=limit)),
        "failed": lambda: ledger.runs(RunQuery("app", states=failed, limit=limit)),
        "running": lambda: ledger.runs(RunQuery("app", states=(RunState.RUNNING,), limit=limit)),
        "open": lambda: ledger.runs(RunQuery("app", states=tuple(OPEN), before=now, limit=limit)),
        "of a day": lambda: ledger.runs(RunQuery("app", since=day, limit=limit)),
        "failed of a day": lambda: ledger.runs(RunQuery("app", states=failed, since=day, limit=limit)),
        "of a job": lambda: ledger.runs(RunQuery("app", "job 7", since=day, limit=limit)),
        "a further page": lambda: ledger.runs(RunQuery("app", before=now - 3600, below=RunId(7), limit=limit)),
        "the run after another": lambda: ledger.runs(
            RunQuery("app", "job 7", since=now - 7200, above=RunId(7), before=now, limit=1, oldest_first=True)
        ),
        "changes of a job": lambda: ledger.changes("app", "job 7"),
        "how many": lambda: ledger.tally("app", day, 10_000),
        "overdue": lambda: ledger.overdue("app", now - 15, 100),
        "how busy nodes are": lambda: ledger.running("app"),
        "figures": lambda: ledger.figures("app", 10),
        "by key": lambda: ledger.runs(RunQuery("app", "job 7", key="soon")),
        "in a slot": lambda: ledger.runs(RunQuery("app", slot="a slot")),
        "coming": lambda: ledger.coming("app", limit),
        "into a slot": lambda: ledger.request_runs(
            [RunRequest("app", "job 7", str(uuid.uuid4()), now + 3600, slot="a slot", if_waiting="replace")]
        ),
        "again": lambda: ledger.retry([RunId(7)], ""),
        "counting": lambda: ledger.count_hours("app", since=now - 7200, beyond=few[0], jobs=10),
        "the hours of a job": lambda: ledger.hours("app", "job 7", day, now),
        "the days of a job": lambda: ledger.days("app", "job 7", now - 400 * 86400, now - 6 * 86400),
        "totals": lambda: ledger.totals("app", day, [f"job {n}" for n in range(10)]),
        "counts by queue": lambda: ledger.counts_by_queue("app", now - 3600),
        "closing days": lambda: ledger.close_days("app", before=now - 14 * 86400, oldest=now - 400 * 86400, limit=9),
        "for an audit": lambda: ledger.past(few, day, now),
        "a page of jobs": lambda: ledger.job_page(JobPageQuery("app", contains="7", first=("job 1",), limit=50)),
        "strips": lambda: ledger.strips(few, now, 60),
        "log ends": lambda: ledger.log_ends([RunId(number) for number in range(1, 11)]),
        "terms of each election": lambda: grown.session.recent_terms("", 20, 20),
        "terms of one election": lambda: grown.session.terms("election 7", 20),
        "nodes": lambda: grown.session.node_records(50),
        "a page of actions": lambda: ledger.actions(ActionQuery("app", below=5000, limit=50)),
        "a page of actions on one job": lambda: ledger.actions(ActionQuery("app", "job", below=5000, limit=50)),
        "open by queue": lambda: ledger.open_runs("app", 10_000),
        "how runs ended": lambda: ledger.last_ends("app", [row.id for row in ledger.jobs("app")[:200]]),
        "how long they took": lambda: ledger.durations(few, 10),
    }
    plans = grown.plans(questions[question])
    assert rows_read(plans) <= at_most, plans


BACKLOG = """
INSERT INTO tenure.lane (application, function, queue) SELECT j.application, 'backlog', 'q' FROM tenure.job j WHERE j.name = 'job';
INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at, state)
SELECT j.id, j.application, l.id, 1, 'due', 'backlog ' || n, now() - n * interval '1 minute', now() - n * interval '1 minute',
       now() + CASE WHEN n <= 150 THEN - n * interval '1 minute' ELSE interval '1 hour' END, 'pending'
  FROM generate_series(1, 20000) n, tenure.job j, tenure.lane l WHERE j.name = 'job' AND l.function = 'backlog';
"""
GONE = """
DELETE FROM tenure.run WHERE key LIKE 'backlog %';
DELETE FROM tenure.lane WHERE function = 'backlog';
"""


def test_what_is_overdue_is_found_without_reading_the_backlog(grown, postgres):
    """Most of it is older and has still its grace."""
    postgres.execute(BACKLOG, dbname=grown.database)
    try:
        ledger = grown.ledger
        now = ledger.now()
        late = [one for one in ledger.overdue("app", now - 15, 100) if one.run is not None]
        assert len(late) == 100
        assert now - 151 * 60 <= min(one.due for one in late) <= max(one.due for one in late) <= now - 50 * 60
        plans = grown.plans(lambda: ledger.overdue("app", now - 15, 100))
        scans = re.findall(r"Scan \S+ \S+ on run .*\(actual rows=([\d.]+) loops=(\d+)\)", plans)
        read = [round(float(rows) * int(loops)) for rows, loops in scans]
        assert max(read) <= 400, plans
    finally:
        postgres.execute(GONE, dbname=grown.database)


def test_too_much_reading_is_noticed(grown, postgres):
    ask = "SELECT 1 FROM tenure.run r WHERE r.state > 'running' AND r.application = 1 AND r.label = 'x'"
    plans = grown.plans(lambda: postgres.execute(ask, dbname=grown.database))
    assert rows_read(plans) >= JOBS * RUNS_EACH / 10


# Followers: many parents, each with a follower and one run that owes it, and many that owe nothing any more

FOLLOWED = """
INSERT INTO tenure.job (application, name, function, trigger, kwargs, rules, queue, overlap, max_running, on_time, on_lost, max_lost,
                        in_code, release, tzdata, since, lane, after, after_on, followed)
SELECT j.application, kind || n, j.function, CASE kind WHEN 'p' THEN j.trigger END, j.kwargs, j.rules, j.queue, j.overlap,
       j.max_running, j.on_time, j.on_lost, j.max_lost, j.in_code, j.release, j.tzdata, j.since, j.lane,
       CASE kind WHEN 'f' THEN 'p' || n END, 'success', kind = 'p'
  FROM tenure.job j, unnest(ARRAY['p', 'f']) kind, generate_series(1, 2500) n WHERE j.name = 'job';
INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, state, attempt, started_at, finished_at)
SELECT j.id, j.application, j.lane, 1, 'due', n::text, now() - n * interval '1 hour', now(), 'succeeded', 1, now(), now()
  FROM tenure.job j, generate_series(1, 10) n WHERE j.name <> 'job';
INSERT INTO tenure.run (job, application, lane, generation, kind, key, scheduled_for, due_at, state, attempt, finished_at, owes)
SELECT j.id, j.application, j.lane, 1, 'due', 'owing', now() - interval '1 minute', now(), 'succeeded', 1, now(), true
  FROM tenure.job j WHERE j.name LIKE 'p%';
"""


@pytest.fixture(params=["planned while nothing owes", "never analysed", "analysed while nothing owes", "analysed"])
def owing(request, postgres: Postgres) -> Iterator[Explained]:
    url = postgres.create_database()
    name = url.rsplit("/", 1)[1]
    for setting, value in {**EXPLAIN, "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off"}.items():
        postgres.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    store_for(url).prepare()
    for table in ("run", "job"):
        postgres.execute(f"ALTER TABLE tenure.{table} SET (autovacuum_enabled = off)", dbname=name)
    early = Explained(postgres, url)
    early.ledger.change(JobChange("app", "job", Change.ADDED, SPEC, next_due=early.ledger.now()))
    if request.param == "analysed while nothing owes":
        postgres.execute("ANALYZE", dbname=name)
    for _ in range(7):  # more often than a plan is made anew
        early.ledger.follow_up("app", 100)
    postgres.execute(FOLLOWED, dbname=name)
    if request.param == "analysed":
        postgres.execute("ANALYZE", dbname=name)
    late = Explained(postgres, url)
    yield early if "planned" in request.param else late
    early.session.close()
    late.session.close()
    postgres.drop_database(url)


def test_what_followers_are_owed_is_read_page_by_page(owing):
    """100 of 2,500 parents: little more is read than these, their runs, and their followers."""
    plans = owing.plans(lambda: owing.ledger.follow_up("app", 100))
    assert "run_owed" in plans
    assert rows_read(plans) <= 200, plans


def test_retention_looks_at_what_may_still_follow_along_indexes(owing):
    """A page of 100 jobs, of which nothing is old enough: their parents, and what these owe."""
    before = owing.ledger.now() - 86400
    plans = owing.plans(lambda: owing.ledger.prune("app", before=before, keep=0, limit=100, jobs=100))
    looks = [one for one in re.split(r"duration: [\d.]+ ms  plan:", plans) if "WITH RECURSIVE above" in one]
    assert len(looks) == 100
    assert all("run_owed" in look for look in looks)
    assert max(map(rows_read, looks)) <= 10, plans
