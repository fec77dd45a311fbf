"""What the tests of the doctor share."""

import uuid

import psycopg

from tenure import doctor


def findings(url, code, **options):
    return [finding for finding in doctor.examine(url, **options) if finding.code == code]


def finding(url, code, **options):
    (only,) = findings(url, code, **options)
    return only


def bad(report):
    return [found for found in report.findings if found.severity != "ok"]


def as_role(url, name):
    return url.replace("postgres@", f"{name}@")


def execute(url, text, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []


def add_node(url, *, label="web-1", state="alive", nonce=None, silent="0 s"):
    node = str(uuid.uuid4())
    execute(
        url,
        "INSERT INTO tenure.node (id, ttl, label, state, session_nonce, session_grace, renewed_at)"
        " VALUES (%s, 10, %s, %s, %s, 2, clock_timestamp() - %s::interval)",
        node,
        label,
        state,
        nonce,
        silent,
    )
    return node
