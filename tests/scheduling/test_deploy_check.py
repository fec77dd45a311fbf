"""Deploys that leave something behind, with real processes: each ends with a WARNING, an exit code and one cause."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from harness import constants
from harness.scratch import eventually
from tenure import Scheduler, every

APP = """
import logging, sys
from tenure import Scheduler, every
from tenure.events import OrphanEvent
from tenure.scheduling import deploy_check, loop

deploy_check.QUIET, deploy_check.AGAIN, loop.LEARN_EVERY = 1.0, 2.0, 2.0
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stderr)
scheduler = Scheduler({url!r}, application="shop", label={label!r}, release={release}, queues={queues!r}, **{more!r})

@scheduler.on(OrphanEvent)
def told(event):
    logging.info("EVENT %s %s %s", type(event).__name__, event.job, event.cause)

{jobs}
scheduler.run(lines=False)
"""
V1 = """
@scheduler.every("1s", grace="1s")
def poll(): pass

@scheduler.every("1s", grace="1s")
def flaky(): pass

@scheduler.every("1s", grace="1s", queue="reports")
def report(): pass

@scheduler.job
def customer_report(customer_id): pass
"""
V2 = """
@scheduler.every("1s", grace="1s")
def poll_orders(): pass

@scheduler.every("1s", grace="1s", queue="reports")
def report(): pass

@scheduler.job
def customer_report(cid): pass
"""
V3 = V1.replace("customer_report(customer_id)", "customer_report(customer_id: str, day: str = 'today')")


def customer_report(customer_id):
    """As in V1."""


class Node:
    """A worker process, and what it has logged."""

    def __init__(self, folder, url, label, jobs, *, release=0, queues=None, **more):
        self.log = folder / f"{label}.log"
        code = APP.format(url=url, label=label, jobs=jobs, release=release, queues=queues, more=more)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE")}
        with self.log.open("w") as log:
            self._process = subprocess.Popen([sys.executable, "-c", code], stderr=log, env=environment)

    def has_logged(self, *texts):
        said = self.log.read_text()
        return all(text in said for text in texts)

    def kill(self):
        self._process.kill()
        self._process.wait(30)

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


@pytest.fixture
def deploy(tmp_path, url):
    """Start a worker with this code; it stops at the end."""
    nodes = []

    @contextmanager
    def started(label, jobs, **more):
        node = Node(tmp_path, url, label, jobs, **more)
        nodes.append(node)
        try:
            eventually(lambda: node.has_logged("scheduler 'shop' started"), within=30, what=f"{label}: its start")
            yield node
        finally:
            node.stop()

    return started


@pytest.fixture
def asked(tenure, monkeypatch, url):
    monkeypatch.setenv("TENURE_URL", url)
    constants.give(monkeypatch.setattr, SLACK=5.0)

    def run(*words):
        code, out, _ = tenure(*words, "--json")
        return code, json.loads(out)

    return run


@pytest.mark.timeout(180)
def test_a_deploy_that_renames_removes_changes_arguments_and_leaves_a_queue_alone(deploy, asked, url):
    with deploy("v1", V1) as old:
        people = Scheduler(url, application="shop")
        people.job(customer_report)
        for number in range(7):
            people.add("customer_report", every("1h"), name=f"customer:{number}", kwargs={"customer_id": number})
        eventually(lambda: people.runs("poll", state="succeeded"), within=20, what="a run")
        eventually(lambda: asked("status")[0] == 0, within=20, what="its planner")
        assert old.has_logged("INFO job 'poll' is new: Every 1 s", "INFO job 'report' is new")
    with deploy("v2", V2, queues=("default",)) as new:
        assert new.has_logged(
            "INFO job 'poll_orders' is new", "INFO job 'poll' is gone from the code", "INFO job 'flaky' is gone"
        )
        warnings = (
            "WARNING 2 jobs are orphaned, because no live node has their functions: flaky, poll.",
            "WARNING report is orphaned: v2, the only live node that has its function 'report', does not serve its queue",
            "WARNING 7 stored jobs have arguments that 'customer_report' does not take, so the runs will fail: ",
            "customer:0, customer:1, customer:2, customer:3, customer:4 and 2 more. customer_report",
            "has no parameter 'customer_id'",
            "EVENT JobOrphaned poll no_function",
            "EVENT JobOrphaned report no_queue",
        )
        eventually(lambda: new.has_logged(*warnings), within=40, what="warnings")

        def causes():
            return {concern["cause"]: concern for concern in asked("status")[1]["attention"]}

        eventually(lambda: causes().get("no_function", {}).get("fails"), within=40, what="a due time past its grace")
        assert asked("status")[0] == 1
        assert causes()["no_function"]["jobs"] == ["flaky", "poll"]
        assert causes()["no_queue"]["jobs"] == ["report"]
        code, audit = asked("audit")
        assert (code, audit["clean"], audit["overdue"] > 0) == (1, True, True)
        for job, cause in (("poll", "no_function"), ("flaky", "no_function"), ("report", "no_queue")):
            assert asked("why", job)[1]["cause"] == cause
        for job in ("poll", "flaky", "report"):
            people.remove(job)
        assert asked("status")[0] == 1, "v2 defines 'report'"
        people.restore("report")
        people.pause("report", why="no reports today")
        code, status = asked("status")
        assert (code, [one["cause"] for one in status["attention"]]) == (1, ["arguments"])
        (unfit,) = asked("audit")[1]["unfit"]
        assert (unfit["function"], unfit["surely"], unfit["jobs"], len(unfit["some"])) == (
            "customer_report",
            True,
            7,
            5,
        )
        for number in range(7):
            _, why = asked("why", f"customer:{number}")
            assert (why["cause"], "has no parameter 'customer_id'" in why["why"]) == ("arguments", True)
        people.run_now("customer:0")
        eventually(lambda: asked("why", "customer:0")[1]["cause"] == "failed", within=20, what="its failure")
        assert "customer_id" in asked("why", "customer:0")[1]["why"]
        for number in range(7):
            Scheduler(url, application="shop").update(f"customer:{number}", kwargs={"cid": number})
        eventually(lambda: asked("status")[0] == 0, within=40, what="that the arguments fit again")
        assert asked("audit")[1]["unfit"] == []
        assert asked("why", "customer:1")[1]["cause"] == "not_due"


@pytest.mark.timeout(180)
def test_runs_that_were_requested_with_arguments_of_their_own_are_looked_at_too(deploy, asked, url):
    people = Scheduler(url, application="shop")
    with deploy("v1", V1):
        people.job(customer_report)
        soon = people.run_at("customer_report", in_="1h", kwargs={"customer_id": 1})
        late = people.run_at("customer_report", in_="2h", kwargs={"customer_id": 2})
        people.pause("customer_report")
    with deploy("v2", V2), deploy("v2 too", V2):
        for job in ("poll", "flaky"):
            people.remove(job)
        eventually(lambda: asked("status")[0] == 1, within=40, what="an exit code")
        eventually(lambda: asked("audit")[1]["unfit"], within=40)
        (unfit,) = asked("audit")[1]["unfit"]
        assert (unfit["jobs"], unfit["runs"], unfit["surely"]) == (0, 2, True)
        assert f"run {late.id} of customer_report" in unfit["text"]
        assert asked("audit", "customer_report")[0] == 1
        assert asked("audit", "poll_orders")[0] == 0
        for run in (soon, late):
            people.cancel(run.id, by="ada")
        eventually(lambda: asked("status")[0] == 0, within=40)


@pytest.mark.timeout(180)
def test_a_node_that_has_found_unfit_arguments_and_is_gone_is_followed_by_another(deploy, asked, url):
    """Neither of them plans."""
    people = Scheduler(url, application="shop")

    def found_by():
        return [node.label for node in people._service.look(lambda ledger: ledger.nodes("shop")) if node.unfit]

    with deploy("planner", '@scheduler.every("1h")\ndef plain(): pass\n'):
        eventually(lambda: asked("status")[1]["planner"], within=20)
        people.job(customer_report)
        people.add("customer_report", every("1h"), name="customer:1", kwargs={"customer_id": 1})
        with deploy("one", V2) as one, deploy("two", V2) as two:
            time.sleep(8)  # the node with the lesser id may have come later, and takes over what the other has found
            eventually(lambda: found_by() in (["one"], ["two"]), within=40)
            (first,) = found_by()
            {"one": one, "two": two}[first].stop()
            eventually(lambda: found_by() == ["two" if first == "one" else "one"], within=40)
            assert [one["jobs"] for one in asked("audit")[1]["unfit"]] == [1]


def test_a_deploy_that_declares_another_type_warns_of_stored_values(deploy, asked, url):
    with deploy("v1", V1):
        people = Scheduler(url, application="shop")
        people.job(customer_report)
        for number in range(7):
            people.add("customer_report", every("1h"), name=f"customer:{number}", kwargs={"customer_id": number})
        people.add("customer_report", every("1h"), name="customer:text", kwargs={"customer_id": "7"})
    with deploy("v3", V3) as new:
        warnings = (
            "WARNING 7 stored jobs have arguments that 'customer_report' does not take, so the runs may fail: ",
            "customer:0, customer:1, customer:2, customer:3, customer:4 and 2 more. customer_report",
            "takes customer_id: str, and was given the int 0. Write customer_id='0'.",
        )
        eventually(lambda: new.has_logged(*warnings), within=40, what="warnings")
        assert not new.has_logged("will fail")
        eventually(lambda: asked("status")[1]["attention"], within=20)
        code, status = asked("status")
        assert (code, [(one["cause"], one["fails"]) for one in status["attention"]]) == (0, [("arguments", False)])
        _, why = asked("why", "customer:0")
        assert (why["cause"], "may fail" in why["why"]) == ("not_due", True)
        assert "may fail" not in asked("why", "customer:text")[1]["why"]


def test_a_job_that_was_removed_and_is_rolled_back(deploy, asked, url):
    people = Scheduler(url, application="shop")
    with deploy("v1", V1):
        people.remove("poll", by="ada")
    with deploy("again", V1) as node:
        assert node.has_logged("WARNING job 'poll' is defined here, but was removed by ada at")
        eventually(lambda: node.has_logged("WARNING poll is defined in code, but was removed by ada"), within=40)
        eventually(lambda: asked("nodes")[0] == 0, within=20)
        code, status = asked("status")
        assert code == 1
        assert [(one["cause"], one["jobs"]) for one in status["attention"]] == [("removed", ["poll"])]
        _, why = asked("why", "poll")
        assert (why["cause"], why["facts"]["by"]) == ("removed", "ada")
        people.restore("poll")
        assert asked("status")[0] == 0


def test_a_release_that_is_lower_changes_nothing_and_says_so(deploy, asked, url):
    changed = V1.replace('every("1s"', 'every("2s"')
    with deploy("five", V1, release=5), deploy("four", changed, release=4) as old:
        assert old.has_logged("INFO job 'poll' runs as release 5 defines it, which is newer than 4 here")
        people = Scheduler(url, application="shop")
        assert people.find_job("poll").trigger.startswith("Every 1 s")
        eventually(lambda: asked("status")[0] == 0, within=20)
    with deploy("six", changed, release=6) as new:
        assert new.has_logged("INFO job 'poll': its definition in the code has changed (trigger: Every 1 s")
    with deploy("six again", V1, release=6) as again:
        eventually(lambda: again.has_logged("It was the same until"), within=10)


def test_a_node_without_work_of_its_own_tells_of_the_change_once(deploy, asked):
    """Two nodes; the one that plans goes, and with it the only function."""
    with deploy("worker", V1) as worker, deploy("web", V2) as web:
        eventually(lambda: asked("status")[1]["planner"], within=20)
        worker.stop()
        eventually(lambda: web.has_logged("EVENT JobOrphaned poll no_function"), within=40)
        time.sleep(3)
        assert web.log.read_text().count("EVENT JobOrphaned poll") == 1
        with deploy("back", V1) as back:
            eventually(lambda: web.has_logged("EVENT JobServed poll"), within=60)
            assert not back.has_logged("EVENT")


@pytest.mark.timeout(180)
def test_a_node_that_was_killed_and_that_no_other_declares_dead_does_not_count_as_alive(deploy, asked, tenure, url):
    """Until the next release starts, and that one says what is gone from the code."""
    slow = 'import time\n@scheduler.every("1s", grace="1s")\ndef slow(): time.sleep(600)\n'
    quick = {"ttl": 2, "heartbeat_every": 0.2, "attempt_timeout": 0.6}
    with deploy("v1", V1 + slow, **quick) as node:
        eventually(lambda: asked("why", "slow")[1]["cause"] == "running", within=20, what="a run")
        code, (alive,) = asked("nodes")
        assert (code, alive["silent"]) == (0, False)
        node.kill()
        eventually(lambda: asked("nodes")[0] == 1, within=20, what="the exit code of `nodes`")
        _, (silent,) = asked("nodes")
        assert (silent["label"], silent["silent"], silent["id"]) == ("v1", True, alive["id"])
        _, out, _ = tenure("nodes")
        assert ("silent" in out, "no node of 'shop' is alive" in out) == (True, True)
        _, running = asked("why", "slow")
        assert (running["cause"], running["facts"]["silent"]) == ("running", True)
        assert "on v1" in running["why"]
        assert "gives no sign of life" in running["why"]
        eventually(lambda: asked("why", "poll")[1]["cause"] == "no_node", within=20, what="`why`")
        eventually(lambda: asked("status")[0] == 1, within=20)
        eventually(lambda: "no_node" in {one["cause"] for one in asked("status")[1]["attention"]}, within=20)
        eventually(lambda: asked("audit")[0] == 1, within=20)
        assert "no node of 'shop' is alive" in tenure("jobs", "--orphaned")[1]
        with deploy("v2", V2, **quick) as new:
            assert new.has_logged("INFO job 'flaky' is gone from the code")
            eventually(lambda: [one["label"] for one in asked("nodes")[1]] == ["v2"], within=20)
            assert asked("nodes")[0] == 0
