"""The page in an application of each framework, as the documentation mounts it; FRAMEWORK says which."""

import os
from typing import Any

from tenure import Run, Scheduler
from tenure.web import Caller, web, web_wsgi

scheduler = Scheduler(application="shop", ttl=6, heartbeat_every=0.5, attempt_timeout=1)


@scheduler.job
def asked(run: Run) -> None:
    run.log(f"by {run.key}")


@scheduler.every("1s")
def tick(run: Run) -> None:
    """Shows that this process takes part."""


def by_request(request: Any) -> Caller | None:
    return Caller("ann", "act") if request.headers.get("x-user") == "ann" else None


def by_environ(environ: dict[str, Any]) -> Caller | None:
    return Caller("ann", "act") if environ.get("HTTP_X_USER") == "ann" else None


def in_fastapi() -> Any:
    from fastapi import FastAPI

    made = FastAPI(lifespan=scheduler.lifespan)
    made.mount("/ops/tenure", web(scheduler, authorize=by_request))
    made.get("/hello")(lambda: "world")
    return made


def in_litestar() -> Any:
    from litestar import Litestar, asgi, get

    @get("/hello", sync_to_thread=False)
    def hello() -> str:
        return "world"

    page = asgi("/ops/tenure", is_mount=True)(web(scheduler, authorize=by_request))
    return Litestar([hello, page], lifespan=[scheduler.lifespan])


def in_flask() -> Any:
    from flask import Flask
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    from tenure.ext.flask import init_app

    made: Any = Flask("shop")
    init_app(made, scheduler)
    made.get("/hello")(lambda: "world")
    made.wsgi_app = DispatcherMiddleware(made.wsgi_app, {"/ops/tenure": web_wsgi(scheduler, authorize=by_environ)})
    return made


def _django() -> None:
    import django
    from django.conf import settings

    settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="x", ALLOWED_HOSTS=["127.0.0.1"], DATABASES={})
    django.setup()


def in_django() -> Any:
    _django()
    from django.core.wsgi import get_wsgi_application
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    return DispatcherMiddleware(get_wsgi_application(), {"/ops/tenure": web_wsgi(scheduler, authorize=by_environ)})


def in_django_asgi() -> Any:
    _django()
    from django.core.asgi import get_asgi_application
    from starlette.applications import Starlette
    from starlette.routing import Mount

    page = Mount("/ops/tenure", web(scheduler, authorize=by_request))
    return Starlette(routes=[page, Mount("/", get_asgi_application())], lifespan=scheduler.lifespan)


def _urls() -> list[Any]:
    if "django" not in os.environ["FRAMEWORK"]:
        return []
    from django.http import HttpResponse
    from django.urls import path

    return [path("hello", lambda _request: HttpResponse("world"))]


app = globals()[f"in_{os.environ['FRAMEWORK']}"]()
urlpatterns = _urls()
