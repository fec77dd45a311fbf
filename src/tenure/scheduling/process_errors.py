"""How a body failed in its own process, as an exception that a log and an error tracker can show.

The child sends texts only: what it sends is never unpickled. The parent makes an exception of them whose class has the
name of the child's, and whose cause is the traceback there, as `concurrent.futures` does it.
"""

from __future__ import annotations

import json
import traceback

from tenure.util.tracebacks import from_body_on

MAX_ERROR = 8000
"""Characters of a traceback that a child sends, from its end."""
_MAX_MESSAGE, _MAX_NAME = 1000, 200


class ProcessFailed(Exception):
    """The body raised in its process, or the process ended without an answer. The message says which."""

    def __init__(self, said: str, text: str = "") -> None:
        super().__init__(said)
        self.text = text or said
        """What is kept with the run: the traceback, if there is one."""


class RemoteTraceback(Exception):
    """The traceback in the child, as the cause of a `ProcessFailed`."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}\n"""'


def told(error: BaseException) -> str:
    """What the child sends about an exception."""
    kind = type(error)
    try:
        message = str(error)
        text = "".join(traceback.format_exception(error.with_traceback(from_body_on(error.__traceback__)))).rstrip()
    except Exception:  # whatever its __str__ or __cause__ does
        message = "it cannot be printed"
        text = f"{kind.__name__} ({message})"
    names = kind.__module__[:_MAX_NAME], kind.__qualname__[:_MAX_NAME]
    text = text[-MAX_ERROR - 1 :]  # one more than is kept: that it was cut is seen there
    return json.dumps([*names, message[:_MAX_MESSAGE], text], ensure_ascii=False)


def heard(said: str) -> ProcessFailed:
    """The exception, in the parent. Raises ValueError or TypeError for what `told` does not write."""
    module, name, message, text = map(str, json.loads(said))
    kind = type(name, (ProcessFailed,), {"__module__": module})
    error: ProcessFailed = kind(message, text)
    error.__cause__ = RemoteTraceback(text)
    return error
