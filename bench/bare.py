"""A Python process that has imported a driver and the modules around it, and does nothing: what memory is compared
with."""

import importlib
import json  # noqa: F401 - imported for its weight
import logging  # noqa: F401
import signal
import sys
import threading  # noqa: F401

from cluster import say

importlib.import_module(sys.argv[1])
say("joined")
say("leading")
signal.pause()
