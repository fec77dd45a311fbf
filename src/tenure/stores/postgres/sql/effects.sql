-- What `run.complete` and `run.once` say over the caller's connection.

-- name: complete
SELECT {schema}.complete(%(run)s, %(token)s, %(started_at)s)

-- name: once
SELECT {schema}.once(%(run)s, %(token)s, %(key)s)
