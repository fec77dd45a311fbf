"""A process that does the work of one attempt in one transaction, and says where it is before each step it is told to
take."""

import json
import sqlite3
import sys

import psycopg
import sqlalchemy

from tenure.transactions import effects


def main() -> None:
    url, claim = sys.argv[1], effects.RunClaim(**json.loads(sys.argv[2]))
    connection = (
        psycopg.connect(url) if url.startswith("postgresql") else sqlite3.connect(sqlalchemy.make_url(url).database)
    )
    say("begins")
    if effects.once(connection, claim, "invoice"):
        connection.execute(f"INSERT INTO work (what) VALUES ('{claim.run}')")
    say("worked")
    effects.complete(connection, claim)
    say("completed")
    connection.commit()
    say("committed")


def say(step: str) -> None:
    print(json.dumps({"at": step}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
