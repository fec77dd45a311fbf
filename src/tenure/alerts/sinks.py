"""Where alerts go: the log, a webhook, a command, or a function of the application.

A sink accepts a message by returning. Whatever it raises means that it has not: the message is sent again later, under
the same id. Sinks are called on a thread of their own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
import json
import logging
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tenure.alerts.http import HttpRequest, NotAccepted, checked_timeout, checked_url, send, shown_url
from tenure.alerts.news import AlertNews
from tenure.errors import ConfigurationError
from tenure.util.clock import walltime
from tenure.util.durations import Duration
from tenure.util.names import named
from tenure.util.plurals import a_type
from tenure.util.printable import printable

logger = logging.getLogger("tenure")

SECRET_BYTES = (24, 64)
"""How long a signing secret is, as Standard Webhooks says."""


class Sink(ABC):
    """Where alerts go. The ledger remembers by its name what it was told; all workers give it the same one."""

    def __init__(self, name: str) -> None:
        self.name = named(name, "name of the sink")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @abstractmethod
    def send(self, news: AlertNews) -> None:
        """Pass it on. Raise `NotAccepted`, or anything else, if that did not work."""


class Log(Sink):
    """The logger `tenure`, as WARNING."""

    def __init__(self, *, name: str = "log") -> None:
        super().__init__(name)

    def send(self, news: AlertNews) -> None:
        extra = {"action": f"alert_{news.event}", "kind": news.kind, "target": news.target, "alert": news.alert}
        logger.warning("%s", printable(news.message), extra=extra)


class Webhook(Sink):
    """A POST of JSON. With a secret it is signed as Standard Webhooks says (https://www.standardwebhooks.com)."""

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration = "5s",
        name: str = "webhook",
    ) -> None:
        """`secret` is base64, with or without 'whsec_' before it; `headers` are sent along."""
        super().__init__(name)
        self._url = checked_url(url, f"{name}: url")
        self._key = None if secret is None else _key(secret, name)
        self._headers = _headers(headers, name)
        self._timeout = checked_timeout(timeout, f"{name}: timeout")

    def __repr__(self) -> str:
        return f"<Webhook {self.name!r} to {shown_url(self._url)}>"

    def send(self, news: AlertNews) -> None:
        now = walltime()
        payload = {"type": f"alert.{news.event}", "timestamp": now.isoformat(), "data": news.as_dict()}
        body = json.dumps(payload).encode()
        seconds = str(int(now.timestamp()))
        headers = {"Content-Type": "application/json", **self._headers}
        headers |= {"webhook-id": news.id, "webhook-timestamp": seconds}
        if self._key is not None:
            signed = f"{news.id}.{seconds}.".encode() + body
            digest = hmac.new(self._key, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        send(HttpRequest(self._url, body, headers), self._timeout)


class Command(Sink):
    """A program: it gets the JSON on its stdin and the texts in its environment, and accepts by ending with 0."""

    def __init__(self, command: Sequence[str], *, timeout: Duration = "5s", name: str = "command") -> None:
        """`command` is the program and its arguments. No shell reads them."""
        super().__init__(name)
        words: tuple[object, ...] = () if isinstance(command, str) else tuple(command)
        if not words or not all(isinstance(word, str) for word in words):
            raise ConfigurationError(
                f"{name}: the command must be a list of texts: Command(['/usr/local/bin/page', '--urgent'])."
            )
        self._command = tuple(command)
        self._timeout = checked_timeout(timeout, f"{name}: timeout")

    def __repr__(self) -> str:
        return f"<Command {self.name!r}: {self._command[0]}>"

    def send(self, news: AlertNews) -> None:
        said = {
            "TENURE_ALERT_ID": news.id,
            "TENURE_ALERT_EVENT": news.event,
            "TENURE_ALERT_KIND": news.kind,
            "TENURE_ALERT_TARGET": news.target,
            "TENURE_ALERT_TEXT": news.message,
            "TENURE_APPLICATION": news.application,
        }
        environment = {**os.environ, **{name: printable(text) for name, text in said.items()}}
        try:
            process = subprocess.Popen(  # noqa: S603 - the application names it, and no shell reads it
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        except OSError as error:
            raise NotAccepted(f"the command cannot be started: {error.strerror}") from None
        try:
            with suppress(BrokenPipeError):  # it does not read
                process.communicate(json.dumps(news.as_dict()).encode(), timeout=self._timeout)
            code = process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            raise NotAccepted(f"the command had not ended after {self._timeout:g} s, and was killed") from None
        finally:
            _end(process)
        if code:
            raise NotAccepted(f"the command ended with {code}")


class FunctionSink(Sink):
    """A function of the application. Not made by users: `alert_to` takes the function."""

    def __init__(self, function: Callable[[AlertNews], object]) -> None:
        name = getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise ConfigurationError(f"alert_to(): {function!r} has no name. Write a function with def.")
        super().__init__(name)
        self._function = function

    def send(self, news: AlertNews) -> None:
        self._function(news)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of it and of what it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _key(secret: object, name: str) -> bytes:
    """The bytes of a signing secret. No error quotes it."""
    if not isinstance(secret, str):
        raise ConfigurationError(f"{name}: secret is {a_type(secret)}. Write 'whsec_…', in base64.")
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(
            f"{name}: secret is not base64. Write 'whsec_' and 24 to 64 bytes in base64."
        ) from None
    least, most = SECRET_BYTES
    if not least <= len(key) <= most:
        raise ConfigurationError(f"{name}: secret has {len(key)} bytes. Write {least} to {most}, in base64.")
    return key


def _headers(headers: Mapping[str, str] | None, name: str) -> dict[str, str]:
    """Headers that can be sent. No error quotes a value."""
    found = dict(headers or {})
    for key, value in found.items():
        if not f"{key}{value}".isprintable():
            raise ConfigurationError(f"{name}: the header {key!r} must be a text on one line.")
        if not (key + value).isascii():
            raise ConfigurationError(f"{name}: the header {key!r} has characters that are not ASCII.")
    return found


def sink_of(given: object) -> Sink:
    """The sink, or the function as one."""
    if isinstance(given, Sink):
        return given
    if inspect.iscoroutinefunction(given):
        raise ConfigurationError(
            f"alert_to(): {given.__qualname__} is a coroutine function, which has no loop here. Write a function."
        )
    if callable(given) and not isinstance(given, type):
        return FunctionSink(given)
    raise ConfigurationError(
        f"alert_to(): {a_type(given)} cannot be told. Write Log(), Webhook(url), Command([…]), CheckIn(url, style=…), "
        "PlannerPing(url), or a function that takes one AlertNews."
    )
