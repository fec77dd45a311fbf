"""The row lease of the article: `lease.py URL BEAT EXPIRY`.

One row, the database's clock; everybody tries once per beat.
"""

import sys
import time

import psycopg

from cluster import say

TABLE = """CREATE TABLE IF NOT EXISTS scheduler_leader (
    id int PRIMARY KEY CHECK (id = 1), holder text, expires_at timestamptz NOT NULL)"""
ROW = "INSERT INTO scheduler_leader VALUES (1, NULL, now()) ON CONFLICT DO NOTHING"
HEARTBEAT = """UPDATE scheduler_leader SET holder = %(me)s, expires_at = now() + %(expiry)s * interval '1 second'
                WHERE id = 1 AND (holder = %(me)s OR expires_at < now()) RETURNING holder"""

url, beat, expiry = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
connection = psycopg.connect(url, autocommit=True)
me = str(connection.info.backend_pid)
connection.execute("SELECT pg_advisory_lock(1)")  # CREATE IF NOT EXISTS fails when two do it at once
connection.execute(TABLE)
connection.execute(ROW)
connection.execute("SELECT pg_advisory_unlock(1)")
say("joined")
leading = False
while True:
    led, leading = leading, connection.execute(HEARTBEAT, {"me": me, "expiry": expiry}).fetchone() is not None
    if leading and not led:
        say("leading")
    time.sleep(beat)
