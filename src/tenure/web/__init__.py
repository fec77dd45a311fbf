"""The page: what the jobs of an application are doing, and what a person on call may do about it.

from tenure.web import Caller, web, web_wsgi

def authorize(request):
    return Caller(request.user.name, "act") if request.user.is_staff else None

app.mount("/tenure", web(scheduler, authorize=authorize))                      # FastAPI, Starlette, Litestar
app.wsgi_app = DispatcherMiddleware(                                           # Flask
    app.wsgi_app, {"/tenure": web_wsgi(scheduler, authorize=by_environ)}
)

Without `authorize` a mounted page answers 403 to everyone. `tenure web` shows it without any code.

    request ─▶ headers ─▶ host ─▶ caller ─▶ origin (of a change) ─▶ handler: right to the operation
              headers.py  access.py, token_login.py    site.py      pages/, operations.py, api/
                                                                       │ ledger_reads.py: bounded reads, on threads
    live.py: one poller per process tells all open browsers            ▼
    that something has changed; they fetch the same page again      templates/, drawings.py, formats.py
"""

from __future__ import annotations

from tenure.errors import ConfigurationError

try:
    import jinja2  # noqa: F401 - only to say what is missing
    import starlette  # noqa: F401 - as above
except ImportError as missing:
    raise ConfigurationError(
        f"The page needs {missing.name}, which is not installed. pip install 'tenure[web]'"
    ) from None

from tenure.web.access import OPERATIONS, Caller
from tenure.web.mounting import web, web_wsgi

__all__ = ["OPERATIONS", "Caller", "web", "web_wsgi"]
