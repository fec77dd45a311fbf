-- Statements of `tenure once`, which runs a command once per key.

-- name: guarded
-- When a key was taken last.
SELECT at FROM tenure_guard WHERE name = :name AND key = :key

-- name: guard
-- Take a key, unless it was taken within the span.
INSERT INTO tenure_guard (name, key, at, by, until) VALUES (:name, :key, :now, :by, :until)
ON CONFLICT (name, key) DO UPDATE   -- a key without an end stays so
   SET at = excluded.at, by = excluded.by,
       until = CASE WHEN tenure_guard.until IS NOT NULL THEN excluded.until END
 WHERE tenure_guard.at <= :before

-- name: unguard
-- Give a key back after the command has failed.
DELETE FROM tenure_guard WHERE name = :name AND key = :key AND by = :by

-- name: sweep_guards
-- Delete keys whose span ended a day ago. The day is for callers that still use a longer `--within` during a change
-- of it.
DELETE FROM tenure_guard WHERE until < :before
