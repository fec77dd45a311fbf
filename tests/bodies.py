"""Bodies of jobs that run in processes of their own, which find them here."""

import os
import time

from tenure import Run, current_run


def pid_of(run: Run) -> None:
    run.log(f"{run.job} {run.key} {run is current_run()}")
    run.log(os.getpid())


def fails() -> None:
    raise ValueError("in the child")


def dies() -> None:
    os._exit(3)


def sleeps() -> None:
    time.sleep(60)
