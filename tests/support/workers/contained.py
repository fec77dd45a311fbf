"""What a container runs, by `tenure start contained`."""

import bodies
from tenure import Run, Scheduler

scheduler = Scheduler(drain="10s")
scheduler.job(process=True)(bodies.pid_of)


@scheduler.job
def one_second(run: Run) -> None:
    assert run.wait("1s")
