"""Everything that `make test` shows in short, for longer: every server and reloader, and beats that are killed for two minutes.

`python tests/ext/long.py`, or some of it: `python tests/ext/long.py beats gunicorn`.
"""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ext import beats, scenes
from harness import processes
from harness.postgres import Postgres
from tenure.ext.celery.beat import CAPACITY

RUNS = 10
Scene = Callable[[Path, str], object]


def killed_beats(folder: Path, url: str) -> object:
    """Ten kills in two minutes."""
    verdict = beats.play(folder, url, kills=10, apart=11.0)
    assert not verdict.missing, verdict
    assert not verdict.strangers, verdict
    assert verdict.repeats <= 10 * CAPACITY, verdict
    return verdict


SCENES: dict[str, Scene] = {
    "beats": killed_beats,
    "uvicorn --workers": partial(scenes.uvicorn_workers, runs=RUNS),
    "uvicorn --reload": partial(scenes.uvicorn_reload, runs=RUNS),
    "gunicorn": partial(scenes.gunicorn, runs=RUNS),
    "gunicorn --preload": lambda folder, url: scenes.gunicorn(folder, url, "--preload", runs=RUNS),
    "flask run": partial(scenes.flask_reloader, runs=RUNS),
    "app.run()": partial(scenes.flask_alone, runs=RUNS),
    "manage.py tenure start": partial(scenes.django_command, runs=RUNS),
    "manage.py runserver": partial(scenes.django_reloader, runs=RUNS),
    "django under gunicorn": partial(scenes.django_gunicorn, runs=RUNS),
    "django under gunicorn --preload": lambda folder, url: scenes.django_gunicorn(folder, url, "--preload", runs=RUNS),
}


def main(words: list[str]) -> int:
    failed = 0
    with Postgres() as server, tempfile.TemporaryDirectory() as scratch:
        for number, (name, scene) in enumerate(SCENES.items()):
            if words and not any(word in name for word in words):
                continue
            began = time.monotonic()
            folder = Path(scratch, str(number))
            folder.mkdir()
            try:
                told = scene(folder, server.create_database())
                outcome = told if isinstance(told, beats.Verdict) else f"{told} due times, each run once"
            except Exception:
                traceback.print_exc()
                outcome, failed = "FAILED", failed + 1
            finally:
                processes.end_all()
            print(f"{name:32} {time.monotonic() - began:5.0f} s   {outcome}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
