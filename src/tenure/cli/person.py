"""The person who gives a command, for the record: every command that changes something is an action of a person."""

from __future__ import annotations

import argparse
import getpass
import os
import socket

from tenure.core.messages import Action


def person(arguments: argparse.Namespace) -> str:
    """Who gives this command: as given by --by, else the login. Never empty."""
    if arguments.by:
        return str(arguments.by)
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return f"user {os.getuid()}"


def origin() -> str:
    """Where this command was given."""
    return f"command line on {socket.gethostname()}"


def action(arguments: argparse.Namespace, what: str) -> Action:
    """What the log of actions says of this command."""
    return Action(what, person(arguments), arguments.why, origin())
