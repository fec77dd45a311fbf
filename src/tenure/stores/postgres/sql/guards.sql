-- Statements of `tenure once`, which runs a command once per key.

-- name: guard
-- Take a key, unless it was taken within the span. A second caller at the same time waits for the first one's commit
-- and then sees its row.
INSERT INTO {schema}.guard AS g (name, key, at, by, until)
VALUES (%(name)s, %(key)s, clock_timestamp(), %(by)s, clock_timestamp() + make_interval(secs => %(within)s::float8))
ON CONFLICT (name, key) DO UPDATE   -- a key without an end stays so
   SET at = clock_timestamp(), by = excluded.by, until = CASE WHEN g.until IS NOT NULL THEN excluded.until END
 WHERE g.at <= clock_timestamp() - make_interval(secs => %(within)s::float8)
RETURNING true

-- name: unguard
-- Give a key back after the command has failed.
DELETE FROM {schema}.guard WHERE name = %(name)s AND key = %(key)s AND by = %(by)s

-- name: sweep_guards
-- Delete keys whose span ended a day ago. The day is for callers that still use a longer `--within` during a change
-- of it.
DELETE FROM {schema}.guard g
 WHERE (g.name, g.key) IN (SELECT o.name, o.key FROM {schema}.guard o
                            WHERE o.until < clock_timestamp() - interval '1 day'
                            ORDER BY o.until LIMIT 10000 FOR UPDATE SKIP LOCKED)
