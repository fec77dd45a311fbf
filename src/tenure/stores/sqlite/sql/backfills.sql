-- Backfills, and their due times.

-- name: add_backfill
-- Add a backfill.
INSERT INTO tenure_backfill (application, job, name, since, until, include, at_once, even_forgotten, state, by, why,
                             traceparent, created_at)
VALUES (:application, :job, :name, :since, :until, :include, :at_once, :even_forgotten, 'running', :by, :why,
        :traceparent, :now)

-- name: add_backfilled
-- Add a due time to a backfill.
INSERT INTO tenure_backfill_due (backfill, scheduled_for, job) VALUES (?, ?, ?)

-- name: runs_of_keys
-- The runs of a job that have these keys.
SELECT r.key, r.state, r.count
  FROM json_each(:keys) k CROSS JOIN tenure_run r ON r.job = :job AND r.key = k.value

-- name: backfill
-- One backfill.
SELECT {backfill} FROM tenure_backfill b WHERE b.number = :number AND b.application = :application

-- name: backfills
-- The newest backfills of an application, or of a job.
SELECT {backfill} FROM tenure_backfill b INDEXED BY tenure_backfill_of_application
 WHERE b.application = :application AND (:job IS NULL OR b.name = :job) ORDER BY b.number DESC LIMIT :limit

-- name: unfinished_backfills
-- Backfills with due times that are not settled, oldest first.
SELECT {backfill} FROM tenure_backfill b INDEXED BY tenure_backfill_unfinished
 WHERE b.application = :application AND b.finished_at IS NULL ORDER BY b.number

-- name: backfill_counts
-- How many due times of a backfill there are of each outcome, or with runs in each state.
SELECT coalesce(d.outcome, r.state, CASE WHEN d.run IS NULL THEN 'left' ELSE 'overtaken' END) AS word, count(*)
  FROM tenure_backfill_due d LEFT JOIN tenure_run r ON r.id = d.run
 WHERE d.backfill = :number GROUP BY word

-- name: backfill_left
-- The oldest due times that nothing has requested.
SELECT d.scheduled_for FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_left
 WHERE d.backfill = :number AND d.outcome IS NULL AND d.run IS NULL ORDER BY d.scheduled_for LIMIT :limit

-- name: backfill_ended
-- The oldest due times whose runs are over, and how those ended, among the oldest of those that were requested.
SELECT o.scheduled_for, coalesce(r.state, 'overtaken')
  FROM (SELECT d.scheduled_for, d.run FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_open
         WHERE d.backfill = :number AND d.outcome IS NULL AND d.run IS NOT NULL
         ORDER BY d.scheduled_for LIMIT :looks) o
  LEFT JOIN tenure_run r ON r.id = o.run
 WHERE coalesce(r.state, 'overtaken') NOT IN ('pending', 'waiting', 'running')
 ORDER BY o.scheduled_for LIMIT :limit

-- name: backfill_open
-- How many due times have runs that are not known to be over.
SELECT count(*) FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_open
 WHERE d.backfill = :number AND d.outcome IS NULL AND d.run IS NOT NULL

-- name: settle_backfilled
-- Note how a due time was settled.
UPDATE tenure_backfill_due SET outcome = ? WHERE backfill = ? AND scheduled_for = ?

-- name: take_backfilled
-- Note which run was requested for a due time.
UPDATE tenure_backfill_due SET run = :run WHERE backfill = :number AND scheduled_for = :scheduled_for

-- name: leave_backfilled
-- Nothing requests what is left of a backfill any more.
UPDATE tenure_backfill_due SET outcome = 'left' WHERE backfill = :number AND outcome IS NULL AND run IS NULL

-- name: backfill_unbegun
-- The runs of a backfill that have not begun, or are between two attempts.
SELECT r.id FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_open
 CROSS JOIN tenure_run r ON r.id = d.run
 WHERE d.backfill = :number AND d.outcome IS NULL AND d.run IS NOT NULL AND r.state IN ('pending', 'waiting')

-- name: move_backfill
-- Give a backfill another state.
UPDATE tenure_backfill SET state = :state, state_by = :by, state_why = :why WHERE number = :number

-- name: finish_backfill
-- A backfill without an unsettled due time is over.
UPDATE tenure_backfill
   SET finished_at = :now, state = CASE state WHEN 'cancelled' THEN state ELSE 'done' END
 WHERE number = :number AND finished_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM tenure_backfill_due d
                    WHERE d.backfill = tenure_backfill.number AND d.outcome IS NULL)

-- name: settle_removed
-- A job was removed: settle what is left to backfill, and the runs that were cancelled.
UPDATE tenure_backfill_due
   SET outcome = CASE WHEN run IS NULL THEN 'left'
                      ELSE (SELECT r.state FROM tenure_run r
                             WHERE r.id = tenure_backfill_due.run AND r.state NOT IN ('pending', 'waiting', 'running'))
                      END
 WHERE job = :id AND outcome IS NULL

-- name: cancel_removed_backfills
-- The backfills of a job that was removed.
UPDATE tenure_backfill
   SET state = 'cancelled', state_by = :by, state_why = :why,
       finished_at = CASE WHEN EXISTS (SELECT 1 FROM tenure_backfill_due d
                                        WHERE d.backfill = tenure_backfill.number AND d.outcome IS NULL)
                          THEN NULL ELSE :now END
 WHERE application = :application AND finished_at IS NULL AND job = :id AND state IN ('running', 'paused')

-- name: old_backfills
-- The oldest backfills that were over before an instant.
SELECT number FROM tenure_backfill INDEXED BY tenure_backfill_finished
 WHERE application = :application AND finished_at IS NOT NULL AND finished_at < :before
 ORDER BY finished_at LIMIT :limit

-- name: forget_backfilled
-- Delete the due times of a backfill.
DELETE FROM tenure_backfill_due WHERE backfill = ?

-- name: forget_backfill
-- Delete a backfill.
DELETE FROM tenure_backfill WHERE number = ?
