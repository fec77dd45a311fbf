"""A candidate that blocks in pg_advisory_lock: `advisory.py URL`. Never notices a leader that is frozen or cut off."""

import sys
import time

import psycopg

from cluster import say

connection = psycopg.connect(sys.argv[1], autocommit=True)
say("joined")
connection.execute("SELECT pg_advisory_lock(4711)")
say("leading")
time.sleep(3600)
