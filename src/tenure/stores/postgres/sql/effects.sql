-- Statements that `term.fence`, `run.complete` and `run.once` send over the caller's connection.

-- name: fence
-- Raise if the term is over.
SELECT {schema}.fence(%(name)s, %(term)s, %(holder)s)

-- name: complete
-- Let the run succeed with the caller's transaction.
SELECT {schema}.complete(%(run)s, %(token)s, %(started_at)s)

-- name: once
-- Claim a key for the caller's transaction; false if an attempt of the run has committed it.
SELECT {schema}.once(%(run)s, %(token)s, %(key)s)
