"""How PostgreSQL finds what the ledger asks for: by an index, with plans made on empty tables as with plans made on full ones.

The server itself tells how it ran each statement, also those inside functions (auto_explain).
"""

import itertools
import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from harness.postgres import Postgres
from tenure.ledger import Change, ClaimRequest, Ending, JobSpec, NewRun, Planned, Rules, RunId, RunState
from tenure.model import NodeCard
from tenure.stores import Session, store_for
from tenure.stores.ledger import Asked, JobChange, Ledger
from tenure.triggers import every

HOURLY = every("1h").to_json()
SPEC = JobSpec("app", "job", "f", HOURLY, Rules(overlap="allow", max_running=1000))
NODE = str(uuid.uuid4())
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
    ledger.roll_call(NODE, "app")
    ledger.note_begun([(run.id, token, now)])
    ledger.unbegun(job.id, job.generation)
    ledger.missed("app", 10)
    assert ledger.settle(job.id, job.generation, make_up=(), skip=(), reason="")
    ledger.change(JobChange("app", "job", Change.UPDATED, SPEC, next_due=job.next_due + 2e-3))
    (synced,) = ledger.sync("app", 0, [JobChange("app", "job", Change.ADDED, SPEC)])
    assert synced.spec.name == "job"
    ledger.functions("app")
    ledger.nodes("app")


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
        ("run_running", "roll call"),
    ],
)
def test_the_frequent_questions_have_indexes_of_their_own(explained, index, within):
    ledger = explained.ledger

    def claim() -> None:
        (asked,) = ledger.ask([Asked("app", "job", str(uuid.uuid4()), None)])
        assert asked is not None
        ledger.claim(ClaimRequest(NODE, "app", str(uuid.uuid4()), 1))
        ledger.cancel(asked.id, "", "")

    questions = {
        "claim": claim,
        "finish": lambda: ledger.finish([Ending(RunId(1), "none", RunState.SUCCEEDED)]),
        "unplanned": lambda: ledger.unplanned("app", before=ledger.now() + 5, limit=5),
        "missed": lambda: ledger.missed("app", 5),
        "roll call": lambda: ledger.roll_call(NODE, "app"),
    }
    assert f"using {index} on" in explained.plans(questions[within])


def test_a_scan_is_noticed(explained, postgres):
    plans = explained.plans(
        lambda: postgres.execute("SELECT 1 FROM tenure.job j WHERE j.paused_why = 'x'", dbname=explained.database)
    )
    assert whole_scans(plans)
