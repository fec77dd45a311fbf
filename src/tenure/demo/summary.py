"""The summary of the demo, from the notes of the processes and the audit of the ledger."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from tenure.core.audit import JobAudit
from tenure.demo.part import TTL
from tenure.demo.show import Show, counted
from tenure.demo.verdict import Bodies, Body, Judgement, Note, judge, judge_bodies
from tenure.util.durations import readable
from tenure.util.printable import printable
from tenure.views import RunView


def summarise(show: Show) -> int:
    """Print it. 1 if a promise was broken, or nothing ran."""
    stage = show.stage
    judgement = judge(
        Note(actor.label, note["kind"], note["term"], note["from"], note["to"])
        for actor in stage.actors
        for note in actor.notes()
        if note["kind"] in {"leads", "sample", "lost"}
    )
    print(
        f"\n{show.lasted:.0f} s, {len(stage.actors)} processes: {counted(show.kills, 'kill')}, "
        f"{counted(show.freezes, 'freeze')}, {len(judgement.stretches)} terms"
    )
    wrong = _election(show, judgement)
    scheduler = stage.scheduler
    audits = scheduler.audit(since=show.since, until=show.until)
    runs = scheduler.runs(since=show.since, until=show.until, limit=10_000)
    invoices = stage.invoices()
    wrong += _jobs(audits, runs, judge_bodies(bodies(show), invoices), invoices)
    nothing = not runs and not show.interrupted
    return 1 if wrong or nothing else 0


UNREPORTED = 0.5
"""Seconds. A body that ended this shortly before its process was killed may not have been reported, and then runs
again. `run.complete(conn)` exists to prevent that."""


def bodies(show: Show) -> list[Body]:
    """The calls of bodies for the judged due times, as the processes recorded them."""
    found = []
    for actor in show.stage.actors:
        notes = [note for note in actor.notes() if note["kind"] in {"began", "ended"}]
        reported = math.inf if actor.killed_at is None else actor.killed_at - UNREPORTED
        ended = {
            (note["job"], note["key"], note["attempt"])
            for note in notes
            if note["kind"] == "ended" and float(note["to"]) < reported
        }
        for note in notes:
            if note["kind"] == "began" and datetime.fromisoformat(note["key"]) < show.until:
                call = note["job"], note["key"], note["attempt"]
                found.append(Body(actor.label, *call, note["from"], call in ended, actor.was_frozen))
    return found


def _election(show: Show, judgement: Judgement) -> int:
    gaps = judgement.gaps()
    after_kills = [gap for term, gap in gaps if term in show.interrupted_terms]
    others = [gap for term, gap in gaps if term not in show.interrupted_terms]
    if after_kills:
        middle, most = readable(statistics.median(after_kills)), readable(max(after_kills))
        print(f"without a leader after a kill -9:  median {middle}, largest {most}")
    if others:
        print(f"without a leader after a freeze:   largest {readable(max(others))} (its ttl of {TTL:g} s decides)")
    print(
        f"two leaders at once:               {len(judgement.overlaps)} times, by {judgement.samples} samples of "
        f"{len(judgement.stretches)} terms"
    )
    for overlap in judgement.overlaps:
        print(f"  {overlap}")
    if not judgement.stretches:
        print("no process ever led")
    return len(judgement.overlaps) + (not judgement.stretches)


def _jobs(audits: Sequence[JobAudit], runs: Sequence[RunView], called: Bodies, invoices: Sequence[str]) -> int:
    due = sum(audit.due for audit in audits)
    ends = Counter[str]()
    for audit in audits:
        ends.update(audit.counts)
    done = ends.pop("succeeded", 0)
    late = sorted(run.lateness for run in runs if run.lateness is not None and run.attempt == 1)
    again = [run.lateness for run in runs if run.lateness is not None and run.attempt > 1]
    starts = sorted(run.started_at.timestamp() for run in runs if run.job == "tick" and run.started_at is not None)
    gap = max((b - a for a, b in itertools.pairwise(starts)), default=0.0)
    print(
        f"\n{due} due times of {counted(len(audits), 'job')}: {done} succeeded"
        + "".join(f", {count} {end}" for end, count in sorted(ends.items()))
    )
    print(f"bodies:                            {_calls(called, runs)}")
    if late:
        print(
            f"late:                              p50 {_at(late, 0.5)}, p99 {_at(late, 0.99)}, largest {_at(late, 1.0)}"
        )
        print(f"largest gap of the 200 ms job:     {readable(gap)}")
    if again:
        print(f"began again after an accident:     {len(again)}, the latest {readable(max(again))} after it was due")
    expected = {run.key for run in runs if run.job == "invoice" and run.state == "succeeded"}
    without = expected - set(invoices)
    print(f"effects committed with their run:  {len(expected & set(invoices))}")
    lost = due - done + len(without)
    print(f"run twice:                         {len(called.duplicates)}")
    print(f"lost:                              {lost}")
    for text in called.duplicates:
        print(f"  {text}")
    for text in [f"the effect of invoice {key} is missing" for key in sorted(without)]:
        print(f"  {text}")
    for audit in audits:
        if not audit.clean or audit.due != audit.counts.get("succeeded", 0):
            print("\n".join(f"  {printable(line)}" for line in audit.lines()))
    return len(called.duplicates) + lost


def _calls(called: Bodies, runs: Sequence[RunView]) -> str:
    """A body that was killed after its run was committed counts as done, and is not called again."""
    over = {(run.job, run.key, run.attempt) for run in runs if run.state == "succeeded"}
    done = sum((body.job, body.key, body.attempt) in over for body in called.cut_short)
    after = f" ({done} of them after their run was committed: these are done)" if done else ""
    return (
        f"{called.called} called, {len(called.cut_short)} cut short by a kill{after}, "
        f"{called.repeated} called again on another node"
    )


def _at(ordered: Sequence[float], share: float) -> str:
    return readable(ordered[min(int(len(ordered) * share), len(ordered) - 1)])
