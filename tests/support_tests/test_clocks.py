"""The shim shifts what it should, while the process runs, and nothing else."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.clocks import ShiftedClock
from harness.components import need
from harness.postgres import Postgres
from harness.processes import Worker

CLOCKS = """
import datetime, json, sys, threading, time
while True:
    began = time.monotonic()
    time.sleep(0.02); threading.Event().wait(0.02)
    print(json.dumps({
        "waited": time.monotonic() - began, "wall": time.time(), "datetime": datetime.datetime.now().timestamp(),
        "boot": time.clock_gettime(time.CLOCK_BOOTTIME), "monotonic": time.monotonic()}))
"""


def pythons():
    """This Python and every newer one that really runs here (pyenv's shims exist for versions that do not)."""
    found = {sys.executable}
    for name in ("python3.12", "python3.13", "python3.14"):
        places = [shutil.which(name), *Path.home().glob(f".pyenv/versions/{name[6:]}.*/bin/python3")]
        for program in map(str, filter(None, places)):
            if subprocess.run([program, "-c", ""], check=False, capture_output=True).returncode == 0:
                found.add(program)
                break
    return sorted(found)


@pytest.mark.parametrize("python", pythons(), ids=lambda program: Path(program).parent.parent.name)
def test_a_running_python_sees_its_clocks_jump(python, shifted_clock, tmp_path):
    script = tmp_path / "clocks.py"
    script.write_text(CLOCKS)
    with Worker(script, env=shifted_clock.env, python=python) as worker:
        for wall, boot in [(0, 0), (7200, 0), (-7200.5, 0), (0, 3600), (-86400, 0.25)]:
            shifted_clock.wall(wall)
            shifted_clock.boot(boot)
            worker.wait_event()  # may have been half measured before the jump
            seen = worker.wait_event()
            assert seen["wall"] - time.time() == pytest.approx(wall, abs=0.2)
            assert seen["datetime"] - time.time() == pytest.approx(wall, abs=0.2)
            assert seen["boot"] - time.clock_gettime(time.CLOCK_BOOTTIME) == pytest.approx(boot, abs=0.2)
            assert seen["monotonic"] - time.monotonic() == pytest.approx(0, abs=0.2)
            assert 0.04 <= seen["waited"] < 1


def test_a_running_server_sees_its_clock_jump():
    need("postgres")
    need("gcc")
    clock = ShiftedClock()
    with Postgres(env=clock.env) as server:
        for wall in (0, 7200, -7200):
            clock.wall(wall)
            [(now, stamp, _slept)] = server.execute(
                "SELECT extract(epoch FROM now()), extract(epoch FROM clock_timestamp()), pg_sleep(0.01)"
            )
            assert float(now) - time.time() == pytest.approx(wall, abs=0.5)
            assert float(stamp) - time.time() == pytest.approx(wall, abs=0.5)
