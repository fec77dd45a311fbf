"""A Python process that has imported psycopg and the modules around it, and does nothing: what memory is compared with."""

import json  # noqa: F401 - imported for its weight
import logging  # noqa: F401
import signal
import sqlite3  # noqa: F401
import threading  # noqa: F401

import psycopg  # noqa: F401
from cluster import say

say("joined")
say("leading")
signal.pause()
