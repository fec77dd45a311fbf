-- What `run.complete` and `run.once` say over the caller's connection. main: an attached file would not commit together with it.

-- name: complete
INSERT INTO main.tenure_completion (run, token, started_at, finished_at) VALUES (:run, :token, :started_at, :finished_at)

-- name: hold
INSERT INTO main.tenure_hold (run, token) VALUES (:run, :token)

-- name: once
INSERT INTO main.tenure_effect (run, key, made_at) VALUES (:run, :key, :made_at) ON CONFLICT DO NOTHING RETURNING 1

-- name: run_standing
SELECT state, state = 'running' AND token = :token FROM main.tenure_run WHERE id = :run
