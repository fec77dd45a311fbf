# PYTHON_ARGCOMPLETE_OK
"""The command line. Every command gives one clear answer, and its exit code gives it again:

0    yes, done
1    the answer is no: no such job or run, it failed, not accounted for, no leader, not in time, not settled, a finding
2    wrong usage or configuration
3    the database does not answer
4    the database answers but cannot be used: tables missing, too new, no permission
70   a bug in tenure (TENURE_DEBUG=1 shows the traceback)
130  interrupted

`tenure lead` and `tenure once` end with the exit code of their commands.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from tenure.cli import completion
from tenure.cli import parser as parsing
from tenure.cli.output import SpeltOut, say_text
from tenure.errors import ConfigurationError, StoreError, StoreUnavailable, TenureError
from tenure.util.signals import receive_exit_codes

USAGE, UNAVAILABLE, UNUSABLE, BUG, INTERRUPTED = 2, 3, 4, 70, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    receive_exit_codes()
    given = list(sys.argv[1:] if argv is None else argv)
    parser = parsing.build()
    _offer_argcomplete(parser)
    arguments = parsing.parse(parser, given)
    if arguments.subcommand != "start":  # which runs an application, with the logging of the application
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(SpeltOut("tenure: %(message)s"))
        logging.basicConfig(level=logging.INFO if arguments.verbose else logging.WARNING, handlers=[handler])
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `tenure terms | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("TENURE_DEBUG"):
            raise
        known = isinstance(error, TenureError)
        message = str(error) if known else f"unexpected {type(error).__name__}: {error}"
        hint = "" if known else "\nThis is a bug in tenure. TENURE_DEBUG=1 shows where it happened."
        say_text(f"{message}{hint}")
        return _code(error)


def _code(error: Exception) -> int:
    match error:
        case ConfigurationError():
            return USAGE
        case StoreUnavailable():
            return UNAVAILABLE
        case StoreError():
            return UNUSABLE
        case TenureError():
            return 1
        case _:
            return BUG


def _offer_argcomplete(parser: argparse.ArgumentParser) -> None:
    """Support argcomplete where it is installed; `tenure completion` works without."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            import argcomplete
        except ImportError:
            return
        completion.complete_jobs(parser)
        argcomplete.autocomplete(parser)
