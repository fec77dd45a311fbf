"""Every server and reloader that people use, for longer than in `make test`: each due time is run once, in the
processes that serve.

`python tools/ext_long.py`, or some of it: `python tools/ext_long.py gunicorn`. The last ones show that the scenes can
fail: there every worker has a ledger of its own, as it would be without tenure.
"""

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from ext import scenes
from ext.served import PROJECTS
from harness import processes
from harness.postgres import Postgres

RUNS = 10
ALONE = "memory://"
Scene = Callable[[Path, str], int]

SCENES: dict[str, Scene] = {
    "uvicorn --workers 4": partial(scenes.uvicorn_workers, runs=RUNS, workers=4),
    "uvicorn --reload": partial(scenes.uvicorn_reload, runs=RUNS),
    "uvicorn under gunicorn": partial(scenes.uvicorn_under_gunicorn, runs=RUNS),
    "uvicorn under gunicorn --preload": lambda folder, url: scenes.uvicorn_under_gunicorn(
        folder, url, "--preload", runs=RUNS
    ),
    "flask: gunicorn": partial(scenes.gunicorn, runs=RUNS),
    "flask: gunicorn --preload": lambda folder, url: scenes.gunicorn(folder, url, "--preload", runs=RUNS),
    "flask run": partial(scenes.flask_reloader, runs=RUNS),
    "app.run()": partial(scenes.flask_alone, runs=RUNS),
    "manage.py tenure start": partial(scenes.django_command, runs=RUNS),
    "manage.py runserver": partial(scenes.django_reloader, runs=RUNS),
    "django: gunicorn": partial(scenes.django_gunicorn, runs=RUNS),
    "django: gunicorn --preload": lambda folder, url: scenes.django_gunicorn(folder, url, "--preload", runs=RUNS),
    "gevent": lambda folder, url: scenes.gunicorn(folder, url, "-k", "gevent", runs=RUNS),
    "gevent --preload": lambda folder, url: scenes.gunicorn(
        folder, url, "-k", "gevent", "--preload", "-c", str(PROJECTS / "gevent_conf.py"), runs=RUNS
    ),
    "gevent, patched too late": scenes.gevent_too_late,
    "uwsgi": partial(scenes.uwsgi, runs=RUNS),
}
ALONE_IN_EACH: dict[str, Scene] = {
    "uvicorn, each worker alone": lambda folder, _: scenes.uvicorn_workers(folder, ALONE, workers=4),
    "flask: gunicorn, each alone": lambda folder, _: scenes.gunicorn(folder, ALONE),
    "flask: --preload, each alone": lambda folder, _: scenes.gunicorn(folder, ALONE, "--preload"),
}


def main(words: list[str]) -> int:
    failed = 0
    with Postgres() as server, tempfile.TemporaryDirectory() as scratch:
        for number, (name, scene) in enumerate({**SCENES, **ALONE_IN_EACH}.items()):
            if words and not any(word in name for word in words):
                continue
            began = time.monotonic()
            folder = Path(scratch, str(number))
            folder.mkdir()
            told = outcome(name, scene, folder, server.create_database())
            failed += told.startswith("FAILED")
            print(f"{name:32} {time.monotonic() - began:5.0f} s   {told}", flush=True)
    return int(failed > 0)


def outcome(name: str, scene: Scene, folder: Path, url: str) -> str:
    """What a scene came to, in a sentence."""
    try:
        runs = scene(folder, url)
    except AssertionError as error:
        if name in ALONE_IN_EACH and "run twice" in str(error):
            return "run twice, as it must be"
        traceback.print_exc()
        return "FAILED"
    except Exception:
        traceback.print_exc()
        return "FAILED"
    finally:
        processes.end_all()
    if name in ALONE_IN_EACH:
        return f"FAILED: {runs} due times, each run once; then the scene proves nothing"
    return f"{runs} due times, each run once"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
