-- Statements that `term.fence`, `run.complete` and `run.once` send over the caller's connection. They name `main`,
-- because an attached file would not commit together with the caller's.

-- name: fence
-- Roll the caller's transaction back if the term is over.
INSERT INTO main.tenure_fence (name, term, holder) VALUES (:name, :term, :holder)

-- name: standing
-- Which term an election has, for the error message.
SELECT term, holder, state = 'held' FROM main.tenure_election WHERE name = :name

-- name: complete
-- Let the run succeed with the caller's transaction, or roll it back if the attempt no longer has the run.
INSERT INTO main.tenure_completion (run, token, started_at, finished_at)
VALUES (:run, :token, :started_at, :finished_at)

-- name: hold
-- Roll the caller's transaction back if the attempt no longer has the run.
INSERT INTO main.tenure_hold (run, token) VALUES (:run, :token)

-- name: once
-- Take a key for the caller's transaction. No row if an attempt of the run has committed it.
INSERT INTO main.tenure_effect (run, key, made_at) VALUES (:run, :key, :made_at) ON CONFLICT DO NOTHING RETURNING 1

-- name: run_standing
-- What a run is, for the error message.
SELECT state, state = 'running' AND token = :token FROM main.tenure_run WHERE id = :run
