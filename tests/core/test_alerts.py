"""When an alert opens and closes, and what is wrong: the rules, without a store."""

from dataclasses import replace

import pytest

from tenure.core import alert_rules
from tenure.core.alerts import (
    CLOSED,
    EVERYTHING,
    MANY,
    OPENED,
    AlertKind,
    AlertLimits,
    AlertRow,
    DeadNode,
    JobMarks,
    Symptom,
    steps,
)
from tenure.core.coverage import Coverage
from tenure.core.messages import JobOutcome, JobStats, LaneJob, Overdue
from tenure.core.records import JobId, JobRow, JobSpec, JobState, NodeFacts, Rules, RunId, RunKind, RunRow, RunState
from tenure.errors import ConfigurationError
from tenure.triggers import every

NOW = 1_800_000_000.0
HOURLY = every("1h")
FAILS = Symptom(AlertKind.FAILING, "job", "it fails", NOW - 60)
NO_FIGURES = JobStats(0, 0, None, None, None, None, None, None)


class Looks:
    """The alerts after some looks, ten seconds apart, and what was told."""

    def __init__(self, **given: int | str) -> None:
        self.limits = AlertLimits.of(**given)
        self.rows: dict[str, AlertRow] = {}
        self.now = NOW

    def look(self, *findings: Symptom, judged=tuple(AlertKind), away: float = 60.0) -> list[str]:
        self.now += 10
        rows = [row for row in self.rows.values() if row.closed_at is None]
        made = steps("app", rows, findings, judged=judged, now=self.now, limits=self.limits, away=away)
        for step in made:
            if step.gone:
                del self.rows[step.row.id]
            else:
                self.rows[step.row.id] = step.row
        return [f"{step.event} {step.row.kind} {step.row.target}" for step in made if step.event]


def test_an_alert_is_told_when_it_opens_and_when_it_closes():
    looks = Looks()
    told = [looks.look(*found) for found in ([FAILS], [FAILS], [], [])]
    assert told == [["opened failing job"], [], ["closed failing job"], []]


def test_it_opens_after_n_looks_in_a_row_and_closes_after_m_without():
    looks = Looks(open_after=3, close_after=2)
    seen = "xx.xxx.x..x"
    told = [looks.look(*([FAILS] if one == "x" else [])) for one in seen]
    assert [(at, one) for at, one in enumerate(told) if one] == [
        (5, ["opened failing job"]),
        (9, ["closed failing job"]),
    ]


@pytest.mark.parametrize(
    ("kind", "looks_until"), [(AlertKind.NO_PLANNER, 4), (AlertKind.ORPHANED, 7), (AlertKind.OVERDUE, 1)]
)
def test_what_heals_by_itself_is_told_only_if_it_stays(kind, looks_until):
    looks, found = Looks(), Symptom(kind, "", "", NOW)
    told = [looks.look(found) for _ in range(9)]
    assert [number for number, one in enumerate(told, 1) if one] == [looks_until]


def test_what_was_seen_before_all_nodes_were_away_does_not_count():
    found = Symptom(AlertKind.NO_PLANNER, "", "", NOW)
    looks = Looks(no_planner="30s", open_after=3)
    assert [looks.look(found) for _ in range(2)] == [[], []]
    looks.now += 3600
    assert [looks.look(found, away=60.0) for _ in range(4)] == [[], [], [], ["opened no_planner "]]
    looks = Looks(no_planner="30s", open_after=3)
    assert [looks.look(found) for _ in range(2)] == [[], []]
    looks.now += 3600
    assert looks.look(found, away=4000.0) == ["opened no_planner "]


def test_alerts_of_kinds_that_were_not_judged_stay():
    looks = Looks()
    looks.look(FAILS)
    assert looks.look(judged=(AlertKind.PAUSED,)) == []
    assert looks.look() == ["closed failing job"]


def test_the_key_of_a_message_is_the_same_for_all_who_send_it_and_differs_between_events():
    (opened,) = steps("app", [], [FAILS], judged=(), now=NOW, limits=AlertLimits())
    (closed,) = steps("app", [opened.row], [], judged=(AlertKind.FAILING,), now=NOW + 10, limits=AlertLimits())
    assert (opened.event, closed.event) == (OPENED, CLOSED)
    assert opened.key == steps("app", [], [FAILS], judged=(), now=NOW, limits=AlertLimits())[0].key != closed.key


def test_many_new_alerts_of_a_kind_are_one():
    looks = Looks()
    looks.look(FAILS)
    many = [Symptom(AlertKind.FAILING, f"job {number:02}", "it fails", NOW - number) for number in range(MANY + 1)]
    assert looks.look(FAILS, *many[:MANY]) == [f"opened failing job {number:02}" for number in range(MANY)]
    looks = Looks()
    looks.look(FAILS)
    assert looks.look(FAILS, *many) == [f"opened failing {EVERYTHING}"]
    (row,) = [row for row in looks.rows.values() if row.target == EVERYTHING]
    assert row.text.startswith("21 jobs: job 00, job 01,")
    assert "and 11 more" in row.text
    assert looks.look(FAILS, *many[:1]) == [], "it stays one until the last is over"
    assert looks.look(FAILS) == [f"closed failing {EVERYTHING}"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"failing": 0}, "failing: 0 must be a whole number, 1 or more"),
        ({"failing": True}, "failing: True"),
        ({"open_after": 1.5}, "open_after: 1.5"),
        ({"paused": "a week"}, "paused: 'a week'"),
        ({"no_planner": 0}, "no_planner: 0"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ConfigurationError, match=said.replace(".", r"\.")):
        AlertLimits.of(**given)


# What is wrong


def facts(label: str = "w1", *, functions=("f",), plans: bool = True) -> NodeFacts:
    return NodeFacts(label, "app", frozenset(functions), None, 4, 0, "0", "2026a", label=label, plans=plans)


def job(*, trigger=HOURLY, since: float = NOW - 9000, **more) -> JobRow:
    rules = Rules(**more)
    spec = JobSpec("app", "job", "f", None if trigger is None else trigger.to_json(), rules)
    return JobRow(JobId(1), spec, JobState.ACTIVE, 1, NOW + 60, since=since)


def judged(marks: JobMarks, *, figures: JobStats = NO_FIGURES, quiet: bool = False, at: float = NOW) -> list[str]:
    found = alert_rules.of_marks(marks, HOURLY, lambda _: figures, at, quiet)
    return [one.kind.value for one in found]


def due(number: int, since: float = NOW - 9000) -> float:
    when = since
    for _ in range(number):
        when = HOURLY.following(when)
    return when


def test_a_job_is_overdue_when_it_has_not_succeeded_within_expect_within():
    row = job(expect_within=900.0)
    by = due(1) + 900
    assert judged(JobMarks(row, ran=due(1)), at=by) == []
    assert judged(JobMarks(row, ran=due(1)), at=by + 1) == ["overdue"]
    assert judged(JobMarks(row, settled=due(1), ran=due(1)), at=by + 1) == []
    assert judged(JobMarks(row, settled=due(1), ran=due(2)), at=due(2) + 901) == ["overdue"]


def test_without_expect_within_a_job_is_overdue_by_what_its_runs_usually_take():
    known = JobStats(20, 0, 1.0, 10.0, 0.0, 0.0, None, None)
    marks = JobMarks(job(), ran=due(1))
    assert judged(marks, figures=known, at=due(1) + 60 + 30) == []
    assert judged(marks, figures=known, at=due(1) + 60 + 31) == ["overdue"]
    assert judged(marks, figures=NO_FIGURES, at=due(1) + 3000) == []
    few = JobStats(19, 0, 1.0, 10.0, 0.0, 0.0, None, None)
    assert judged(marks, figures=few, at=due(1) + 3000) == []


def test_a_run_that_waits_for_any_time_is_overdue_only_by_expect_within():
    waits = JobMarks(job(timeout=600.0), ran=due(1), busy=True, held=True)
    assert judged(waits, at=due(2)) == []
    assert judged(replace(waits, held=False), at=due(2)) == ["overdue"]
    assert judged(replace(waits, row=job(timeout=600.0, expect_within=900.0)), at=due(2)) == ["overdue"]


def test_due_times_before_the_end_of_a_run_that_waited_are_not_awaited():
    ended = JobMarks(job(timeout=600.0), settled=due(1), settled_at=due(4) + 60, ran=due(1))
    assert judged(ended, at=due(5) + 660) == []
    assert judged(ended, at=due(5) + 661) == ["overdue"]
    written = replace(ended, row=job(timeout=600.0, expect_within=900.0))
    assert judged(written, at=due(2) + 901) == ["overdue"]


def test_a_due_time_that_a_user_cancelled_is_not_awaited():
    marks = JobMarks(job(expect_within=900.0), settled=due(1))
    assert judged(marks, at=due(2) + 70) == []
    assert judged(marks, at=due(2) + 901) == ["overdue", "never_ran"]


def test_a_job_of_which_nothing_is_left_is_neither_overdue_nor_has_it_never_run():
    over = JobMarks(replace(job(expect_within=900.0), state=JobState.DONE, next_due=None))
    assert judged(replace(over, row=replace(over.row, state=JobState.ACTIVE))) == ["overdue", "never_ran"]
    assert judged(over) == []
    assert judged(replace(over, missed=due(1))) == ["missed"]


def test_durations_are_asked_for_only_when_they_decide():
    def refuse(name):
        raise AssertionError(name)

    for marks in (JobMarks(job(), settled=due(3), ran=due(3)), JobMarks(job(expect_within=60.0), ran=due(1))):
        assert len([*alert_rules.of_marks(marks, HOURLY, refuse, NOW, quiet=False)]) <= 1


def test_a_job_never_ran_since_it_was_changed():
    row = job()
    assert judged(JobMarks(row), at=due(1) + 60 + 15) == []
    assert judged(JobMarks(row), at=due(1) + 60 + 16) == ["never_ran"]
    assert judged(JobMarks(row, ran=row.since - 1)) == ["never_ran"]
    assert judged(JobMarks(row, ran=due(1))) == []
    assert judged(JobMarks(row, busy=True)) == []
    assert judged(JobMarks(row), quiet=True) == []


def test_a_missed_due_time_is_told_until_a_later_run_has_ended():
    row = job()
    assert judged(JobMarks(row, ran=due(1), missed=due(2))) == ["missed"]
    assert judged(JobMarks(row, ran=due(2), missed=due(2))) == []
    assert judged(JobMarks(row, ran=due(1), missed=due(2), busy=True)) == [], "it is made up for right now"
    assert judged(JobMarks(row, ran=due(1), missed=due(2)), quiet=True) == []


def test_a_job_on_request_is_never_overdue():
    assert [*alert_rules.of_marks(JobMarks(job(trigger=None)), None, lambda _: NO_FIGURES, NOW, quiet=False)] == []


def test_a_job_fails_n_times_in_a_row():
    limits = AlertLimits(failing=3)

    def found(failures):
        outcome = JobOutcome("job", RunId(1), RunState.FAILED, NOW, "Traceback …\nValueError: no", failures, NOW - 60)
        return alert_rules.failing([outcome], limits)

    assert found(2) == []
    (three,) = found(3)
    (four,) = found(4)
    assert three == four, "the same sentence, or every failure would write"
    assert three.text.startswith("'job' has failed at least 3 times in a row since ")
    assert three.text.endswith("ValueError: no")


def test_orphaned_jobs_are_those_that_no_live_node_can_run():
    jobs = [LaneJob(JobId(1), "mine", "f", "default"), LaneJob(JobId(2), "theirs", "g", "default")]
    (found,) = alert_rules.orphaned(Coverage("app", [facts()]), jobs, NOW)
    assert (found.target, found.text) == ("theirs", "'theirs' is orphaned: no live node has its function 'g'.")


def test_due_times_that_a_live_node_could_have_begun_are_not_started():
    def late(name, function, at, run=None):
        return Overdue(JobId(1), name, function, "default", at, at + 60, run)

    overdue = [late("a", "f", NOW - 100), late("a", "f", NOW - 500, RunId(1)), late("b", "g", NOW - 100)]
    (found,) = alert_rules.not_started(Coverage("app", [facts()]), overdue)
    assert (found.target, found.since) == ("a", NOW - 500)
    assert alert_rules.not_started(Coverage("app", []), overdue) == []


def running(began: float, name: str = "job") -> RunRow:
    return RunRow(RunId(7), JobId(1), name, "k", RunKind.DUE, RunState.RUNNING, NOW, NOW, 1, 0, 0, "w1", began, began)


@pytest.mark.parametrize(
    ("p99", "runs", "took", "told"),
    [
        (20.0, 20, 61.0, True),
        (20.0, 20, 60.0, False),
        (20.0, 19, 1000.0, False),
        (1.0, 1000, 29.0, False),
        (1.0, 1000, 31.0, True),
        (None, 0, 1000.0, False),
    ],
)
def test_a_run_is_too_long_compared_with_the_others_of_its_job(p99, runs, took, told):
    stats = JobStats(runs, 0, p99, p99, 0.0, 0.0, None, None)
    found = alert_rules.too_long([running(NOW - took)], lambda _: stats, NOW)
    assert [one.target for one in found] == (["job"] if told else [])


def test_of_several_runs_that_take_too_long_the_oldest_is_told():
    stats = JobStats(100, 0, 1.0, 1.0, 0.0, 0.0, None, None)
    (found,) = alert_rules.too_long([running(NOW - 100), running(NOW - 200)], lambda _: stats, NOW)
    assert found.since == NOW - 200


def test_a_job_that_is_paused_for_long_is_told_unless_its_pause_has_an_end():
    row, week = job(), 7 * 86400.0
    assert alert_rules.paused([(row, NOW - week)], NOW, AlertLimits()) == []
    assert [one.target for one in alert_rules.paused([(row, NOW - week - 1)], NOW, AlertLimits())] == ["job"]

    assert alert_rules.paused([(replace(row, paused_until=NOW + 5), NOW - week - 1)], NOW, AlertLimits()) == []


def test_no_planner_is_told_only_while_nodes_are_alive():
    assert [one.kind for one in alert_rules.no_planner(Coverage("app", [facts(plans=False)]), NOW)] == ["no_planner"]
    assert alert_rules.no_planner(Coverage("app", [facts()]), NOW) == []
    assert alert_rules.no_planner(Coverage("app", []), NOW) == []


def test_a_node_is_silent_until_it_is_back_or_has_been_away_for_an_hour():
    died = DeadNode("w1", NOW - 60, "silence")

    def silent(*dead, alive=(), at=NOW):
        return [one.target for one in alert_rules.silent(dead, dict.fromkeys(alive, 0.0), at)]

    assert silent(died) == ["w1"]
    assert silent(died, alive=["w1"]) == []
    assert silent(died, alive=["w2"]) == ["w1"]
    assert silent(died, at=NOW + 3600) == []
    (found,) = alert_rules.silent([died, DeadNode("w1", NOW - 30, "its process ended")], {}, NOW)
    assert found.since == NOW - 30


def test_who_believes_the_clock_waits_for_those_that_doubt_it():
    row = AlertRow("id", "app", AlertKind.CLOCK_DOUBTED, "", "", NOW, NOW, NOW)
    assert not alert_rules.clock_believed([row], NOW)
    assert not alert_rules.clock_believed([row], NOW + 360)
    assert alert_rules.clock_believed([row], NOW + 361)
    assert alert_rules.clock_believed([row], NOW - 3600), "it was of the clock that jumped"
    assert alert_rules.clock_believed([replace(row, kind=AlertKind.FAILING)], NOW)


def test_a_clock_that_is_doubted_is_told():
    assert alert_rules.clock_doubted(None) == []
    assert [one.kind for one in alert_rules.clock_doubted(NOW)] == ["clock_doubted"]
