"""What one node does about a ledger whose clock leaps, turned by hand: no thread, and a steady clock that stands still
in between."""

import itertools
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tenure.core.backfills import Advanced, NewBackfill
from tenure.core.cluster import Acquire, Cadence, NodeCard
from tenure.core.database_clock import DatabaseClock
from tenure.core.keys import planner_of
from tenure.core.messages import ClaimRequest, Ending, JobChange, RunQuery
from tenure.core.records import Change, JobSpec, JobState, NodeFacts, Rules, RunState
from tenure.errors import StoreUnavailable
from tenure.jobs.decorators import Definitions
from tenure.jobs.operations import paused, requested, updated
from tenure.scheduling.agenda import Step
from tenure.scheduling.backfills import ADVANCE_AGAIN, ADVANCE_EVERY
from tenure.scheduling.context import LoopContext, LoopSignals
from tenure.scheduling.engine_options import EngineOptions
from tenure.scheduling.figures import COUNT_EVERY, COUNT_TIME, RESTS
from tenure.scheduling.followers import FOLLOW_BATCH, REST
from tenure.scheduling.loop import SchedulerLoop
from tenure.scheduling.planner import PLAN_BURST
from tenure.scheduling.retention import PRUNE_BATCH, PRUNE_EVERY, PRUNE_SOON, PRUNE_TIME
from tenure.scheduling.slices import WAITS
from tenure.stores.memory.store import MemoryStore
from tenure.stores.notices import JobsChanged
from tenure.triggers import cron, every
from tenure.util.urls import MemoryURL

NOON = 1_800_000_000.0
HOUR = 3600.0
_numbers = itertools.count(1)


class LiveNode:
    """Alive for ever."""

    id = "me"
    lease_until = math.inf

    def wake(self):
        pass


class FullExecutor:
    """No slot is free."""

    @property
    def in_hand(self):
        return {}

    def room(self):
        return 0

    def lose(self, attempts, why):
        pass

    def no_loop(self):
        return ""

    def give_back(self, older_than):
        pass

    def end_abandoned(self):
        pass


class FreeExecutor(FullExecutor):
    """A slot is free."""

    def room(self):
        return 1

    def take(self, _attempts):
        return 1


class Stage:
    """A node, a ledger, a job every ten seconds, and one that is never due."""

    def __init__(self, monkeypatch, *, plans=True, keep_for=HOUR, leap=0.0, executor=FullExecutor):
        self.executor = executor
        self.steady, self.leap, self.plans = 1000.0, leap, plans
        modules = "loop", "claimer", "clock_watch", "missed", "planner", "reconciler", "retention", "figures", "slices"
        for module in (*modules, "followers", "backfills"):
            monkeypatch.setattr(f"tenure.scheduling.{module}.boottime", lambda: self.steady)
        monkeypatch.setattr(
            "tenure.scheduling.clock_watch.walltime", lambda: datetime.fromtimestamp(NOON + self.steady, UTC)
        )
        monkeypatch.setattr("tenure.scheduling.planner.tzdata_version", lambda: "2026a")
        monkeypatch.setattr("tenure.scheduling.planner.__version__", "1")
        store = MemoryStore(MemoryURL(f"loop{next(_numbers)}"), clock=self.now)
        self.session = store.session("test", 1.0)
        self.ledger = self.session.ledger
        self.session.join(NodeCard(LiveNode.id, "me", 10.0, None))
        self.definitions = Definitions("app", "UTC", 0)
        self.definitions.define(
            lambda: None, every(seconds=10), "tick", kwargs=None, process=False, policy={"overlap": "allow"}
        )
        self.definitions.define(lambda: None, None, "by hand", kwargs=None, process=False, policy={})
        self.ledger.sync("app", 0, self.definitions.changes(self.now()))
        self.begin(keep_for)

    def begin(self, keep_for=HOUR):
        """A node that has just started."""
        options = EngineOptions(
            "app", "UTC", Cadence(heartbeat_every=1.0), keep_for=keep_for, keep=0, keep_keys=keep_for
        )
        node, registry = LiveNode(), self.definitions.registry
        context = LoopContext(node, self, self.executor(), registry, DatabaseClock(), options, LoopSignals(node))
        self.loop = SchedulerLoop(context, reporter=None, make_run=None)

    def now(self):
        return NOON + self.steady + self.leap

    def go_on(self, seconds):
        for _ in range(seconds):
            self.steady += 1.0
            self.loop.turn(self.session)

    @property
    def is_leader(self):
        return self.plans

    @property
    def job(self):
        return self.ledger.jobs("app", "tick")[0]

    @property
    def put_off(self):
        """How far from now, by the time that counts, the next due time is that is not planned."""
        return self.job.next_due - NOON - self.steady


@pytest.fixture
def stage(monkeypatch):
    return lambda **options: Stage(monkeypatch, **options)


def test_a_return_that_is_taken_for_granted_puts_right_what_the_leap_has_put_off(stage):
    """The whole cluster began while the clock was ahead, and doubts nothing."""
    scene = stage(leap=HOUR)
    scene.go_on(1)
    scene.loop.heard(JobsChanged("app"))
    scene.go_on(2)
    assert scene.put_off > HOUR
    scene.leap = 0.0
    scene.go_on(3)
    assert scene.put_off < 30, "at once: it may be half a minute until the planner looks again"


def test_a_slow_database_keeps_nothing_put_off(stage, monkeypatch):
    """Each look takes longer than a planner may plan at a stretch."""
    scene = stage(leap=HOUR)
    scene.go_on(1)
    look = scene.ledger.planned_beyond

    def slowly(*which):
        scene.steady += 2 * PLAN_BURST
        return look(*which)

    monkeypatch.setattr(scene.ledger, "planned_beyond", slowly)
    scene.loop.heard(JobsChanged("app"))
    scene.go_on(2)
    scene.leap = 0.0
    scene.go_on(31)
    assert scene.put_off < 30


def test_what_is_put_off_while_others_still_go_by_a_wrong_time_is_put_right_again(stage):
    scene = stage()
    scene.go_on(30)
    scene.leap = HOUR
    scene.go_on(5)
    scene.leap = 0.0
    scene.go_on(5)
    for _ in range(3):
        scene.ledger.change(updated(scene.job, scene.now() + HOUR))
        assert scene.put_off > HOUR
        scene.go_on(31)
        assert scene.put_off < 30


def test_who_does_not_plan_leaves_what_is_long_overdue_to_the_planner(stage):
    scene = stage(plans=False)
    scene.go_on(30)
    before = scene.job.next_due
    scene.leap = HOUR
    scene.begin()
    scene.go_on(30)
    assert scene.job.next_due == before
    scene.plans = True
    scene.go_on(2)
    assert scene.job.next_due > before + HOUR / 2


def test_who_does_not_plan_takes_on_what_is_long_overdue_once_it_has_known_the_time_for_long(stage):
    scene = stage(plans=False)
    scene.steady += HOUR
    before = scene.job.next_due
    scene.go_on(290)
    assert scene.job.next_due == before
    scene.go_on(20)
    assert scene.job.next_due >= before + HOUR


def test_who_does_not_plan_takes_on_at_once_what_the_library_of_the_planner_may_be_too_old_for(stage):
    scene = stage(plans=False)
    scene.steady += HOUR
    before = scene.job.next_due
    scene.session.join(NodeCard("planner", "planner", 10.0, None))
    scene.ledger.write_facts(NodeFacts("planner", "app", frozenset({"tick"}), None, 1, 0, "0.9", "2026a"))
    scene.session.acquire(Acquire("planner", planner_of("app"), fenced=True))
    scene.go_on(5)
    assert scene.job.next_due >= before + HOUR


def test_the_planner_plans_what_some_live_node_can_run_and_nothing_else(stage):
    scene = stage()
    scene.ledger.change(replace_function(scene, "theirs"))
    scene.steady += 30.0
    before = scene.job.next_due
    scene.loop.heard(JobsChanged("app"))
    scene.go_on(5)
    assert scene.job.next_due == before, "no live node has it"
    scene.session.join(NodeCard("other", "other", 10.0, None))
    scene.ledger.write_facts(NodeFacts("other", "app", frozenset({"theirs"}), None, 1, 0, "1", "2026a"))
    scene.loop.heard(JobsChanged("app"))
    scene.go_on(2)
    assert scene.job.next_due >= before + 30
    scene.session.declare("other", None, "a test")
    scene.steady += 30.0
    before = scene.job.next_due
    scene.loop.heard(JobsChanged("app"))
    scene.go_on(5)
    assert scene.job.next_due == before, "and no live node has it again"


def replace_function(scene, function):
    change = updated(scene.job, scene.now())
    return replace(change, spec=replace(change.spec, function=function))


def test_a_pause_does_not_end_by_a_clock_that_is_doubted(stage):
    scene = stage()
    scene.go_on(60)
    scene.ledger.change(paused(scene.job, scene.now(), HOUR / 2))
    scene.leap = HOUR
    scene.go_on(20)
    assert scene.job.state is JobState.PAUSED
    scene.leap = 0.0
    scene.go_on(20)
    assert scene.job.state is JobState.PAUSED
    scene.steady += HOUR / 2
    scene.go_on(5)
    assert scene.job.state is JobState.ACTIVE


def test_pauses_that_end_together_do_not_hold_up_claims(stage, monkeypatch):
    """Each change takes 20 ms: as many as fit into a slice, then the others have their turn, and then it goes on at
    once."""
    scene = stage()
    for number in range(9):
        scene.definitions.define(
            lambda: None, every(seconds=10), f"paused {number}", kwargs=None, process=False, policy={}
        )
    scene.ledger.sync("app", 0, scene.definitions.changes(scene.now()))
    names = [f"paused {number}" for number in range(9)]
    scene.go_on(60)
    for name in names:
        scene.ledger.change(paused(scene.ledger.jobs("app", name)[0], scene.now(), 30))
    scene.steady += 25
    scene.go_on(4)
    real, changes = scene.ledger.change, []

    def change(one):
        scene.steady += 0.02
        changes.append(one.name)
        return real(one)

    monkeypatch.setattr(scene.ledger, "change", change)
    scene.steady += 2
    slices = []
    while len(changes) < len(names):
        before = len(changes)
        scene.loop.planner.plan(scene.ledger)
        slices.append(len(changes) - before)
        assert scene.loop.agenda.due(Step.PLAN) <= scene.steady or len(changes) == len(names)
    assert slices == [3, 3, 3]
    assert sorted(changes) == names


def test_a_resumed_job_is_claimed_at_once_also_if_others_were_planned_with_it(stage):
    scene = stage()
    scene.go_on(60)
    job = scene.ledger.jobs("app", "by hand")[0]
    scene.ledger.change(paused(job, scene.now(), 1))
    before = scene.job.next_due
    scene.steady += (
        scene.put_off - 2
    )  # the pause is over, and the other job is to be planned, from two seconds ahead on
    scene.loop.agenda.at(Step.CLAIM, math.inf)
    scene.loop.planner.plan(scene.ledger)
    assert scene.loop.agenda.due(Step.CLAIM) == scene.steady
    assert scene.ledger.jobs("app", "by hand")[0].state is JobState.ACTIVE
    assert scene.job.next_due > before


def test_new_zone_rules_for_many_jobs_do_not_hold_up_claims(stage, monkeypatch):
    scene = stage()
    for number in range(9):
        trigger = cron("0 3 * * *", tz="Europe/Berlin")
        scene.definitions.define(lambda: None, trigger, f"nightly {number}", kwargs=None, process=False, policy={})
    scene.ledger.sync("app", 0, scene.definitions.changes(scene.now()))
    real, slices, changed = scene.ledger.change, [], []

    def change(one):
        scene.steady += 0.02
        slices[-1] += 1
        changed.append(one.name)
        return real(one)

    monkeypatch.setattr(scene.ledger, "change", change)
    scene.loop._context.identity = LiveNode.id
    scene.loop.clock_watch.observe(scene.now(), scene.steady)
    for _ in range(3):
        slices.append(0)
        scene.loop._learn(scene.ledger)
        scene.steady = scene.loop.agenda.due(Step.LEARN)
    assert slices == [3, 3, 3]
    assert len(set(changed)) == 9


def test_new_zone_rules_reach_all_jobs_on_a_slow_database(stage, monkeypatch):
    scene = stage()
    trigger = cron("0 3 * * *", tz="Europe/Berlin")
    scene.definitions.define(lambda: None, trigger, "nightly", kwargs=None, process=False, policy={})
    scene.ledger.sync("app", 0, scene.definitions.changes(scene.now()))
    look, before = scene.ledger.planned_by_others, scene.ledger.jobs("app", "nightly")[0]

    def slowly(*which):
        scene.steady += 2 * PLAN_BURST
        return look(*which)

    monkeypatch.setattr(scene.ledger, "planned_by_others", slowly)
    scene.loop._context.identity = LiveNode.id
    scene.loop.clock_watch.observe(scene.now(), scene.steady)
    scene.loop._learn(scene.ledger)
    assert scene.ledger.jobs("app", "nightly")[0].generation > before.generation


def test_a_job_that_other_zone_rules_have_planned_is_planned_in_time_on_a_slow_database(stage, monkeypatch):
    """By a node that has not the newest rules, and therefore goes over nothing."""
    scene = stage()
    soon = datetime.fromtimestamp(scene.now() + 60, UTC)
    trigger = cron(f"{soon.minute} {soon.hour} * * *", tz="Africa/Abidjan")
    scene.definitions.define(lambda: None, trigger, "daily", kwargs=None, process=False, policy={})
    scene.ledger.sync("app", 0, scene.definitions.changes(scene.now()))
    look, before = scene.ledger.unplanned, scene.ledger.jobs("app", "daily")[0]

    def slowly(*which, **how):
        scene.steady += 2 * PLAN_BURST
        return look(*which, **how)

    monkeypatch.setattr(scene.ledger, "unplanned", slowly)
    monkeypatch.setattr(scene.loop.planner, "_go_over", lambda _: None)
    scene.loop._context.identity = LiveNode.id
    scene.steady = before.next_due - NOON - 1
    scene.loop.clock_watch.observe(scene.now(), scene.steady)
    scene.loop._learn(scene.ledger)
    scene.loop.planner.plan(scene.ledger)
    assert scene.ledger.jobs("app", "daily")[0].generation > before.generation


def test_nothing_is_forgotten_by_a_clock_that_is_believed_only_since_a_moment(stage):
    """What was run ahead of its time would be planned again if the clock came back."""
    scene = stage(keep_for=HOUR / 2)
    scene.go_on(100)
    [run] = scene.ledger.request_runs([requested(scene.ledger.jobs("app", "by hand")[0], "a", None)])
    scene.ledger.cancel(run.id, "", "")
    query = RunQuery("app", "by hand")
    scene.leap = HOUR
    scene.go_on(150)
    assert not scene.loop._context.clock.doubts
    assert scene.ledger.runs(query)
    scene.go_on(120)
    assert not scene.ledger.runs(query)


def prunes_on_until_it_rests(scene):
    """Turn after turn, no time in between but what retention itself asks for."""
    pauses = []
    while (pause := scene.loop.agenda.due(Step.PRUNE) - scene.steady) < 1.0:
        pauses.append(pause)
        scene.steady += max(pause, 0.0)
        scene.loop.turn(scene.session)
    return pauses


def test_retention_goes_on_until_nothing_is_overdue(stage):
    scene = stage(keep_for=HOUR / 2)
    scene.go_on(int(PRUNE_EVERY) + 2)
    job = scene.ledger.jobs("app", "by hand")[0]
    asked_for = [requested(job, f"run {number}", None) for number in range(PRUNE_BATCH[1] + 100)]
    for run in scene.ledger.request_runs(asked_for):
        scene.ledger.cancel(run.id, "", "")
    query = RunQuery("app", "by hand", limit=10_000)
    scene.steady += HOUR / 2 + PRUNE_EVERY
    scene.go_on(1)
    assert prunes_on_until_it_rests(scene)
    assert scene.ledger.runs(query) == []
    assert scene.loop.agenda.due(Step.PRUNE) - scene.steady <= PRUNE_SOON, "there was something: it looks again soon"
    scene.steady += PRUNE_SOON
    scene.go_on(1)
    assert scene.loop.agenda.due(Step.PRUNE) - scene.steady > PRUNE_SOON, "there was nothing"


def test_retention_that_fails_tries_less_and_later_until_it_gets_through(stage, monkeypatch):
    """As where the logs of a batch are too long for one statement: 12 runs at once are too many."""
    scene = stage(keep_for=HOUR / 2)
    scene.go_on(int(PRUNE_EVERY) + 2)
    job = scene.ledger.jobs("app", "by hand")[0]
    real, limits = scene.ledger.prune, []

    def prune(application, *, limit, **rest):
        limits.append(limit)
        scene.steady += 0.5
        if limit >= 12:
            raise StoreUnavailable("statement timeout")
        return real(application, limit=limit, **rest)

    monkeypatch.setattr(scene.ledger, "prune", prune)
    loop = scene.loop
    loop.agenda.soon(Step.PRUNE)
    loop.retention._batch, loop.retention._pruned_up_to = 100, 0
    for run in scene.ledger.request_runs([requested(job, f"run {number}", None) for number in range(100)]):
        scene.ledger.cancel(run.id, "", "")
    scene.steady += HOUR / 2 + PRUNE_EVERY
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            loop.turn(scene.session)
        assert loop.agenda.due(Step.PRUNE) == scene.steady + PRUNE_SOON
        count = len(limits)
        loop.turn(scene.session)
        assert len(limits) == count, "not at every turn"
        scene.steady += PRUNE_SOON
    assert limits == [100, 50, 25, 12]
    prunes_on_until_it_rests(scene)
    assert set(limits[4:]) == {6}, "what got through slowly is not exceeded"
    assert scene.ledger.runs(RunQuery("app", "by hand", limit=10_000)) == []


def test_retention_is_put_off_for_a_claim_but_not_for_ever(stage):
    scene = stage(keep_for=HOUR / 2)
    scene.go_on(int(PRUNE_EVERY) + 2)
    loop, ledger = scene.loop, scene.ledger
    soon = scene.steady + PRUNE_TIME / 2
    loop.retention._timer.not_after = scene.steady + WAITS
    loop.agenda.soon(Step.PRUNE)
    loop.agenda.at(Step.CLAIM, soon)
    loop.retention.prune(ledger)
    assert loop.agenda.due(Step.PRUNE) == soon
    scene.steady += WAITS
    loop.agenda.at(Step.CLAIM, scene.steady)
    loop.retention.prune(ledger)
    assert loop.agenda.due(Step.PRUNE) > scene.steady, "a slice was done"


def test_claims_in_vain_come_less_and_less_often_until_something_else_is_the_answer(stage):
    """Others have locked what is due, perhaps for as long as a transaction of a user is open."""
    scene = stage(executor=FreeExecutor)
    scene.go_on(1)
    loop, ledger, vain = scene.loop, scene.ledger, True
    claim = ledger.claim

    def claims(request):
        return replace(claim(replace(request, functions=())), next_at=None, more=vain)

    def pauses(count):
        for _ in range(count):
            loop.claimer.claim(scene.ledger)
            yield round(loop.agenda.due(Step.CLAIM) - scene.steady, 3)

    ledger.claim = claims
    assert list(pauses(8)) == [0.003, 0.006, 0.012, 0.024, 0.048, 0.096, 0.1, 0.1]
    vain = False
    assert list(pauses(1)) == [1.0]
    vain = True
    assert list(pauses(2)) == [0.003, 0.006]


# Figures


def counted(scene, name="tick"):
    """How many runs the figures of a job tell of."""
    return sum(row.figures.due for row in scene.ledger.hours("app", name, 0.0, scene.now() + HOUR))


def test_figures_follow_the_runs_and_outlive_them(stage):
    scene = stage(keep_for=120.0)
    job = scene.ledger.jobs("app", "by hand")[0]
    for run in scene.ledger.request_runs([requested(job, f"run {number}", None) for number in range(50)]):
        scene.ledger.cancel(run.id, "", "")
    scene.go_on(int(COUNT_EVERY) * 2 + 2)
    assert counted(scene, "by hand") == 50
    scene.go_on(int(PRUNE_EVERY) * 4)
    assert scene.ledger.runs(RunQuery("app", "by hand")) == []
    assert counted(scene, "by hand") == 50


def test_only_the_planner_counts_and_not_while_the_clock_is_doubted(stage):
    scene = stage(plans=False)
    scene.go_on(300)
    assert counted(scene) == 0
    scene.plans = True
    scene.leap = HOUR
    scene.go_on(30)
    assert scene.loop._context.clock.doubts
    assert counted(scene) == 0


def test_a_pass_that_took_long_is_followed_by_a_long_rest(stage, monkeypatch):
    scene = stage()
    real, sizes = scene.ledger.count_hours, []

    def count_hours(application, *, jobs, **rest):
        sizes.append(jobs)
        scene.steady += 2.0
        return real(application, jobs=jobs, **rest)

    monkeypatch.setattr(scene.ledger, "count_hours", count_hours)
    scene.go_on(200)
    assert sizes[:2] == [20, 1], "a slice that was slow is followed by a smaller one"
    assert len(sizes) <= 200 / (RESTS * 2.0) + 1


def test_counting_is_put_off_for_a_claim_but_not_for_ever(stage):
    scene = stage()
    scene.go_on(int(COUNT_EVERY) * 2 + 2)
    loop, ledger = scene.loop, scene.ledger
    soon = scene.steady + COUNT_TIME / 2
    loop.figures._timer.not_after = scene.steady + WAITS
    loop.agenda.at(Step.CLAIM, soon)
    loop.figures.count(ledger)
    assert loop.agenda.due(Step.COUNT) == soon
    scene.steady += WAITS
    loop.agenda.at(Step.CLAIM, scene.steady)
    assert not loop.figures._pass.closing
    loop.figures.count(ledger)
    assert loop.figures._pass.closing, "a slice was done"


def test_counting_that_fails_counts_less_and_later_and_goes_on_where_it_was(stage, monkeypatch):
    scene = stage()
    real, asked = scene.ledger.count_hours, []

    def count_hours(application, *, jobs, **rest):
        asked.append(jobs)
        if jobs > 5:
            raise StoreUnavailable("statement timeout")
        return real(application, jobs=jobs, **rest)

    monkeypatch.setattr(scene.ledger, "count_hours", count_hours)
    while scene.loop.agenda.due(Step.COUNT) > scene.steady + 1 or not scene.loop._context.clock.believed_since:
        scene.go_on(1)
    while len(asked) < 3:
        scene.steady = max(scene.loop.agenda.due(Step.COUNT), scene.steady)
        try:
            scene.loop.turn(scene.session)
        except StoreUnavailable:
            assert scene.loop.agenda.due(Step.COUNT) == scene.steady + COUNT_EVERY
    assert asked == [20, 10, 5]
    assert counted(scene) > 0


def test_an_idle_application_notes_nothing(stage, monkeypatch):
    scene = stage()
    scene.ledger.change(paused(scene.job, scene.now(), None))
    noted = []
    monkeypatch.setattr(scene.ledger, "note_counted", lambda *mark: noted.append(mark))
    scene.go_on(300)
    assert noted == []


# Followers and backfills


def followed(scene, *names):
    """These jobs run on request, and each is followed by another one."""
    for name in names:
        for spec in (
            JobSpec("app", name, "f", None, Rules(overlap="allow", max_running=None)),
            JobSpec("app", f"after {name}", "g", None, Rules(after=name, overlap="allow")),
        ):
            assert scene.ledger.change(JobChange("app", spec.name, Change.ADDED, spec))


def end(scene, name, runs=1, state=RunState.CANCELLED):
    """So many runs of this job are over."""
    (job,) = scene.ledger.jobs("app", name)
    for run in scene.ledger.request_runs([requested(job, f"run {n}", None) for n in range(runs)]):
        if state is RunState.CANCELLED:
            scene.ledger.cancel(run.id, "", "")
            continue
        (claimed,) = scene.ledger.claim(ClaimRequest("me", "app", "token", 1, ("f",))).runs
        scene.ledger.finish([Ending(claimed.id, "token", state)])


def runs_of(scene, name):
    return scene.ledger.runs(RunQuery("app", name, limit=10_000))


def noted(scene, monkeypatch, *names):
    """The calls of these operations from now on."""
    calls = []

    def note(name):
        real = getattr(scene.ledger, name)
        monkeypatch.setattr(scene.ledger, name, lambda *args, **more: (calls.append(name), real(*args, **more))[1])

    for name in names:
        note(name)
    return calls


def test_followers_of_many_are_paid_page_by_page_with_claims_in_between(stage, monkeypatch):
    monkeypatch.setattr("tenure.scheduling.followers.FOLLOW_BATCH", 2)
    scene = stage(executor=FreeExecutor)
    followed(scene, "one", "two")
    end(scene, "one", 3)
    end(scene, "two")
    calls = noted(scene, monkeypatch, "follow_up", "claim")
    scene.loop.agenda.at(Step.RECONCILE, math.inf)
    for _ in range(4):
        scene.loop.agenda.soon(Step.CLAIM)
        scene.loop.turn(scene.session)
    assert calls == ["follow_up", "claim"] * 3 + ["claim"]
    assert [len(runs_of(scene, f"after {name}")) for name in ("one", "two")] == [3, 1]


def test_following_up_that_fails_tries_less_and_later_and_claims_go_on(stage, monkeypatch):
    scene = stage(executor=FreeExecutor)
    followed(scene, "one")
    end(scene, "one", 3)
    scene.loop.agenda.at(Step.FOLLOW, math.inf)
    real, tried, calls = scene.ledger.follow_up, [], noted(scene, monkeypatch, "claim")

    def follow_up(application, limit, **page):
        tried.append((scene.steady, limit))
        if limit > FOLLOW_BATCH // 4:
            raise StoreUnavailable("statement timeout")
        return real(application, limit, **page)

    monkeypatch.setattr(scene.ledger, "follow_up", follow_up)
    began = scene.steady + 1
    for second in range(12):
        try:
            scene.go_on(1)
        except StoreUnavailable:
            assert second in {0, REST}
    assert tried == [(began + n * REST, FOLLOW_BATCH // 2**n) for n in range(3)]
    assert len(calls) == 10, "in every turn but two"
    assert len(runs_of(scene, "after one")) == 3


@pytest.mark.parametrize("leap", [365 * 24 * HOUR, -HOUR])
def test_a_leap_that_no_answer_has_shown_yet_puts_no_follower_off(stage, leap):
    """The payment is the first statement after it."""
    scene = stage()
    scene.go_on(1)
    followed(scene, "one")
    end(scene, "one", state=RunState.SUCCEEDED)
    scene.leap = leap
    scene.loop.followers.follow_up(scene.ledger)
    scene.leap = 0.0
    (run,) = scene.ledger.claim(ClaimRequest("me", "app", "another", 1, ("g",))).runs
    assert run.name == "after one"


@pytest.mark.parametrize("leap", [365 * 24 * HOUR, -HOUR])
def test_a_leap_that_no_answer_has_shown_yet_puts_no_backfill_off(stage, leap):
    scene = stage()
    scene.go_on(1)
    followed(scene, "one")
    due = tuple(scene.now() - HOUR * n for n in (3, 2))
    scene.ledger.create_backfill(NewBackfill("app", "one", due[0], due[-1] + 1, due, at_once=1))
    (first,) = scene.ledger.claim(ClaimRequest("me", "app", "token", 9, ("f",))).runs
    scene.ledger.finish([Ending(first.id, "token", RunState.SUCCEEDED)])
    scene.leap = leap
    scene.loop.backfills.hear()
    scene.loop.backfills.advance(scene.ledger)
    scene.leap = 0.0
    (second,) = scene.ledger.claim(ClaimRequest("me", "app", "another", 9, ("f",))).runs
    assert second.scheduled_for == due[1]


def test_a_backfill_that_others_hold_up_is_tried_less_and_less_often(stage, monkeypatch):
    scene = stage()
    scene.loop.backfills.hear()
    answers, tried = [Advanced(held=True)] * 12 + [Advanced(more=True)] * 2, []
    monkeypatch.setattr(scene.ledger, "advance_backfills", lambda *_, **__: answers.pop(0))
    while answers:
        scene.steady = max(scene.steady, scene.loop.agenda.due(Step.BACKFILL))
        tried.append(scene.steady)
        scene.loop.backfills.advance(scene.ledger)
    waits = [later - sooner for sooner, later in itertools.pairwise(tried)]
    assert waits[:7] == pytest.approx([ADVANCE_AGAIN * 2**n for n in range(7)])
    assert waits[-2:] == pytest.approx([ADVANCE_EVERY, ADVANCE_AGAIN]), "something was done"
