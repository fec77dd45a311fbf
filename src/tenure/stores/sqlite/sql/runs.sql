-- Statements about runs.

-- name: insert_run
-- Insert a due time. Leaves a key that exists as it is.
INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, expires_at,
                        reason, count, until, owes)
VALUES (?1, ?2, (SELECT lane FROM tenure_job WHERE id = ?1), ?3, 'due', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
        (SELECT followed FROM tenure_job WHERE id = ?1))
ON CONFLICT (job, key) DO NOTHING

-- name: withdraw
-- Delete planned runs that are not due yet: until then they are only proposals.
DELETE FROM tenure_run INDEXED BY tenure_run_open
 WHERE job = :id AND kind = 'due' AND state = 'pending' AND attempt = 0 AND scheduled_for > :now

-- name: withdraw_behind
-- Delete what followed the runs that `withdraw_skipped` deletes: else the followers would not run when these due times
-- are planned anew.
DELETE FROM tenure_run
 WHERE id IN (SELECT x.id
                FROM tenure_run r INDEXED BY tenure_run_of_job CROSS JOIN json_each(:behind) b
                CROSS JOIN tenure_run x ON x.job = b.value AND x.key = r.key
               WHERE r.job = :id AND r.scheduled_for > :now AND r.kind = 'due' AND r.state = 'skipped'
                 AND x.state = 'skipped' AND x.attempt = 0 AND substr(x.reason, 1, 7) = 'after: ')

-- name: end_skipped_behind
-- Let the spans end that followed those that `end_skipped` ends.
UPDATE tenure_run SET until = :now
 WHERE id IN (SELECT x.id
                FROM tenure_run r INDEXED BY tenure_run_several CROSS JOIN json_each(:behind) b
                CROSS JOIN tenure_run x ON x.job = b.value AND x.key = r.key
               WHERE r.job = :id AND r.until > :now AND r.state = 'skipped' AND x.state = 'skipped' AND x.until > :now)

-- name: withdraw_skipped
-- Delete future runs that were skipped while the clock was ahead.
DELETE FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :id AND scheduled_for > :now AND kind = 'due' AND state = 'skipped'

-- name: end_skipped
-- Let a skipped span end now.
UPDATE tenure_run INDEXED BY tenure_run_several SET until = :now WHERE job = :id AND until > :now AND state = 'skipped'

-- name: restamp
-- Give the unstarted runs of a job its new generation and lane.
UPDATE tenure_run INDEXED BY tenure_run_open
   SET generation = :generation, lane = (SELECT j.lane FROM tenure_job j WHERE j.id = :id),
       -- The job may have another pool now.
       state = CASE WHEN state = 'waiting' AND pool IS NOT NULL THEN 'pending' ELSE state END, pool = NULL
 WHERE job = :id AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running'

-- name: skip_paused
-- Skip the unstarted due times of a job that is paused.
UPDATE tenure_run INDEXED BY tenure_run_open SET state = 'skipped', reason = 'paused', finished_at = :now
 WHERE job = :id AND kind = 'due' AND (state = 'pending' OR state = 'waiting' OR state = 'running')
   AND state <> 'running' AND attempt = 0

-- name: cancel_removed
-- Cancel the unstarted runs of a job that is removed.
UPDATE tenure_run INDEXED BY tenure_run_open SET state = 'cancelled', reason = 'removed', finished_at = :now
 WHERE job = :id AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running'

-- name: alive
-- The label of a live node.
SELECT label FROM tenure_node WHERE id = :node AND state = 'alive'

-- name: due_lanes
-- The lanes of a node that have due runs.
SELECT l.id
  FROM tenure_lane l
 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
   AND EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_due
                WHERE r.lane = l.id AND r.state = 'pending' AND r.due_at <= :now
                  AND (r.expires_at IS NULL OR r.expires_at > :now))

-- name: due_in_lane
-- The oldest due runs of a lane.
SELECT due_at, id FROM tenure_run INDEXED BY tenure_run_due
 WHERE lane = :lane AND state = 'pending' AND due_at <= :now AND (expires_at IS NULL OR expires_at > :now)
 ORDER BY due_at, id LIMIT :limit

-- name: next_at
-- When the next run of a node's lanes is due.
SELECT min((SELECT min(r.due_at) FROM tenure_run r INDEXED BY tenure_run_due
             WHERE r.lane = l.id AND r.state = 'pending' AND r.due_at > :now))
  FROM tenure_lane l
 WHERE l.application = :application AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))

-- name: expired
-- Whether a node's functions have missed runs.
SELECT EXISTS (SELECT 1
                 FROM tenure_lane l
                CROSS JOIN tenure_run r INDEXED BY tenure_run_expires ON r.lane = l.id
                WHERE l.application = :application
                  AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
                  AND r.state = 'pending' AND r.expires_at <= :now)

-- name: released
-- Jobs that have WAITING runs and a free place, and pools that have both, with how many places are free.
SELECT w.job, j.rules, w.began
  FROM (SELECT d.job, (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_began
                        WHERE b.job = d.job
                          AND (b.state = 'running' OR (b.state = 'pending' AND b.attempt > b.reopened)
            OR (b.state = 'waiting' AND b.pool IS NOT NULL))) AS began
          FROM (SELECT DISTINCT r.job
                  FROM tenure_lane l
                 CROSS JOIN tenure_run r INDEXED BY tenure_run_waits ON r.lane = l.id
                 WHERE l.application = :application
                   AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
                   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
                   AND r.state = 'waiting' AND r.pool IS NULL) d) w
 CROSS JOIN tenure_job j ON j.id = w.job
 WHERE j.state = 'active' AND (j.max_running IS NULL OR w.began < j.max_running)
UNION ALL
SELECT NULL, w.pool, w.free
  FROM (SELECT d.pool, coalesce((SELECT p.size FROM tenure_pool p
                                  WHERE p.application = :application AND p.name = d.pool), 1)
                       - (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_pool
                           WHERE b.application = :application AND b.pool = d.pool AND b.state = 'running') AS free
          FROM (SELECT DISTINCT r.pool
                  FROM tenure_run r INDEXED BY tenure_run_pool
                 WHERE r.application = :application AND r.pool IS NOT NULL AND r.state = 'waiting'
                   AND r.lane IN (SELECT l.id FROM tenure_lane l
                                   WHERE l.application = :application
                                     AND (:functions IS NULL
                                          OR l.function IN (SELECT value FROM json_each(:functions)))
                                     AND (:queues IS NULL
                                          OR l.queue IN (SELECT value FROM json_each(:queues))))) d) w
 WHERE w.free > 0

-- name: waiting
-- The WAITING runs of a job, oldest first.
SELECT id, kind, scheduled_for, due_at, attempt - reopened, pool IS NOT NULL
  FROM tenure_run INDEXED BY tenure_run_waiting
 WHERE application = :application AND job = :job AND state = 'waiting' AND (pool IS NULL OR :pooled)
 ORDER BY due_at, id LIMIT :limit

-- name: waiting_for_pool
-- The oldest runs of a node's lanes that wait for a place in a pool.
SELECT r.id FROM tenure_run r INDEXED BY tenure_run_pool
 WHERE r.application = :application AND r.pool = :pool AND r.state = 'waiting'
   AND r.lane IN (SELECT l.id FROM tenure_lane l
                   WHERE l.application = :application
                     AND (:functions IS NULL OR l.function IN (SELECT value FROM json_each(:functions)))
                     AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))))
 ORDER BY r.due_at, r.id LIMIT :limit

-- name: pool_running
-- The size of a pool, and how many runs have a place in it.
SELECT (SELECT p.size FROM tenure_pool p WHERE p.application = :application AND p.name = :pool),
       (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_pool
         WHERE b.application = :application AND b.pool = :pool AND b.state = 'running')

-- name: wait_for_pool
-- Let a run wait for a place in its pool.
UPDATE tenure_run SET state = 'waiting', pool = ?, expires_at = NULL WHERE id = ?

-- name: enter_pool
-- Note in which pool a run has a place.
UPDATE tenure_run SET pool = ? WHERE id = ?

-- name: set_pool
-- Set the size of a pool.
INSERT INTO tenure_pool (application, name, size) VALUES (:application, :name, :size)
ON CONFLICT (application, name) DO UPDATE SET size = excluded.size WHERE size IS NOT excluded.size

-- name: pools
-- The pools of an application, with how many runs have a place and how many wait.
SELECT n.name, (SELECT p.size FROM tenure_pool p WHERE p.application = :application AND p.name = n.name),
       (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_pool
         WHERE b.application = :application AND b.pool = n.name AND b.state = 'running'),
       (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_pool
         WHERE b.application = :application AND b.pool = n.name AND b.state = 'waiting')
  FROM (SELECT name FROM tenure_pool WHERE application = :application
        UNION
        SELECT pool FROM tenure_job INDEXED BY tenure_job_pool
         WHERE application = :application AND pool IS NOT NULL AND state <> 'removed') n
 ORDER BY n.name

-- name: promote
-- Make a WAITING run PENDING. A run that waited never counts as missed.
UPDATE tenure_run SET state = 'pending', expires_at = NULL, pool = NULL WHERE id = ?

-- name: due_in_one_lane
-- The same as a JSON array, in one step.
SELECT json_group_array(id)
  FROM (SELECT id FROM tenure_run INDEXED BY tenure_run_due
         WHERE lane = :lane AND state = 'pending' AND due_at <= :now AND (expires_at IS NULL OR expires_at > :now)
         ORDER BY due_at, id LIMIT :limit)

-- name: candidates
-- Due runs with what a claim needs to decide about them.
SELECT r.id, r.job, r.key, r.kind, r.scheduled_for, r.due_at, r.attempt, r.reopened, r.failures, r.kwargs,
       j.generation, j.name, j.function, j.kwargs, j.rules, j.trigger, j.max_running, r.owes,
       (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_began
         WHERE b.job = r.job AND (b.state = 'running' OR (b.state = 'pending' AND b.attempt > b.reopened)
            OR (b.state = 'waiting' AND b.pool IS NOT NULL)))
  FROM json_each(:ids) i
 CROSS JOIN tenure_run r ON r.id = i.value
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE j.state = 'active'
 ORDER BY i.key

-- name: begin
-- Give runs to a node.
UPDATE tenure_run
   SET state = 'running', token = :token, node = :node, label = :label, claimed_at = :now, attempt = attempt + 1,
       generation = (SELECT j.generation FROM tenure_job j WHERE j.id = tenure_run.job),
       started_at = NULL, finished_at = NULL, outcome = NULL, reason = '', asked_to_end = ''
 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: keep_attempts
-- Keep the last attempt of each of these runs, before the row of the run loses it. An attempt that was kept before
-- stays: a later one was given back unbegun.
INSERT OR IGNORE INTO tenure_attempt (run, number, label, claimed_at, started_at, finished_at, outcome, error)
SELECT r.id, r.attempt, r.label, r.claimed_at, r.started_at, r.finished_at, coalesce(r.outcome, r.state),
       r.reason
  FROM json_each(:ids) i
 CROSS JOIN tenure_run r ON r.id = i.value
 WHERE r.attempt > 0 AND r.state <> 'running'

-- name: keep_looks
-- Looks that follow each other are one row: add the last one to those before.
UPDATE tenure_attempt
   SET (number, count, label, finished_at, error)
     = (SELECT r.attempt, tenure_attempt.count + 1, r.label, r.finished_at, r.reason
          FROM tenure_run r WHERE r.id = tenure_attempt.run)
 WHERE outcome = 'not yet'
   AND (run, number) IN (SELECT r.id, r.attempt - 1
                           FROM json_each(:ids) i
                          CROSS JOIN tenure_run r ON r.id = i.value
                          WHERE r.outcome = 'not yet' AND r.state <> 'running' AND r.attempt > 0)

-- name: between_attempts
-- The runs of a job that are between two attempts.
SELECT id FROM tenure_run INDEXED BY tenure_run_open
 WHERE job = :id AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running'
   AND attempt > 0

-- name: hold_back
-- Let a run wait.
UPDATE tenure_run SET state = 'waiting', pool = NULL WHERE id = ?

-- name: skip
-- Skip a run.
UPDATE tenure_run SET state = 'skipped', reason = ?, finished_at = ? WHERE id = ?

-- name: fail
-- Fail a run that cannot begin.
UPDATE tenure_run SET state = 'failed', reason = :reason, finished_at = :now WHERE id = :id

-- name: ask_to_end
-- Request the end of all RUNNING runs of a job.
UPDATE tenure_run INDEXED BY tenure_run_began SET asked_to_end = :why
 WHERE job = :job AND state = 'running' AND asked_to_end = ''

-- name: missed_runs
-- The missed runs of a job, oldest first.
SELECT id, scheduled_for FROM tenure_run INDEXED BY tenure_run_open
 WHERE job = :job AND state = 'pending' AND expires_at <= :now ORDER BY scheduled_for LIMIT 1000

-- name: in_time
-- Whether a later due time of the job was in time: one that is open and not expired, or has ended after it began.
SELECT EXISTS (SELECT 1 FROM tenure_run INDEXED BY tenure_run_of_job
                WHERE job = :job AND scheduled_for > :after AND kind = 'due' AND due_at <= :now
                  AND state NOT IN ('skipped', 'cancelled')
                  AND NOT (state = 'pending' AND expires_at IS NOT NULL AND expires_at <= :now))

-- name: still_missed
-- How many of these runs are still missed. No row if the job has changed.
SELECT (SELECT count(*) FROM json_each(:ids) i CROSS JOIN tenure_run r ON r.id = i.value
         WHERE r.job = j.id AND r.state = 'pending' AND r.expires_at <= :now)
  FROM tenure_job j WHERE j.id = :job AND j.generation = :generation

-- name: make_up
-- Make a missed run a backfill.
UPDATE tenure_run SET kind = 'backfill', due_at = ?, expires_at = NULL WHERE id = ?

-- name: attempts
-- Runs with what is needed to end their attempts.
SELECT r.id, r.job, r.application, r.state, r.token, r.attempt, r.failures, r.losses, r.due_at, r.expires_at,
       r.asked_to_end, r.started_at, j.rules, j.state, r.kind, j.name, r.key, r.scheduled_for, r.node,
       r.interruptions, r.stopping, coalesce(r.looks, 0), r.looking_since, coalesce(r.last_look, 0), r.label, r.pool
  FROM json_each(:ids) i
 CROSS JOIN tenure_run r ON r.id = i.value
 CROSS JOIN tenure_job j ON j.id = r.job

-- name: succeed
-- End an attempt that succeeded.
UPDATE tenure_run
   SET state = 'succeeded', reason = ?, result = ?, started_at = ?, finished_at = ?, stopping = 0, token = NULL,
       asked_to_end = ''
 WHERE id = ?

-- name: end
-- End an attempt.
UPDATE tenure_run
   SET state = ?1,
       lane = CASE WHEN ?1 = 'pending' THEN (SELECT j.lane FROM tenure_job j WHERE j.id = tenure_run.job) ELSE lane END,
       attempt = ?2, failures = ?3, losses = ?4, due_at = ?5, expires_at = ?6, reason = ?7, started_at = ?8,
       finished_at = ?9, interruptions = ?11, looks = nullif(?12, 0), looking_since = ?13, last_look = nullif(?14, 0),
       outcome = ?15, stopping = 0, token = NULL, asked_to_end = '',
       pool = CASE WHEN ?1 = 'pending' THEN NULL ELSE pool END,
       label = CASE WHEN ?2 = 0 THEN '' ELSE label END, claimed_at = CASE WHEN ?2 = 0 THEN NULL ELSE claimed_at END,
       slot = CASE WHEN ?2 = 0 THEN NULL ELSE slot END
 WHERE id = ?10

-- name: wakes
-- Of these jobs, those that have a WAITING run and a free place.
SELECT j.id
  FROM json_each(:jobs) i
 CROSS JOIN tenure_job j ON j.id = i.value
 WHERE j.state = 'active'
   AND EXISTS (SELECT 1 FROM tenure_run w INDEXED BY tenure_run_waiting
                WHERE w.application = j.application AND w.job = j.id AND w.state = 'waiting' AND w.pool IS NULL)
   AND (j.max_running IS NULL
        OR j.max_running > (SELECT count(*) FROM tenure_run b INDEXED BY tenure_run_began
                             WHERE b.job = j.id
                               AND (b.state = 'running' OR (b.state = 'pending' AND b.attempt > b.reopened)
            OR (b.state = 'waiting' AND b.pool IS NOT NULL))))

-- name: pool_wakes
-- Of these pools, those in which a run waits.
SELECT i.value FROM json_each(:pools) i
 WHERE EXISTS (SELECT 1 FROM tenure_run w INDEXED BY tenure_run_pool
                WHERE w.application = :application AND w.pool = i.value AND w.state = 'waiting')

-- name: begin_owing
-- The runs of a job that have not begun owe its first follower a run.
UPDATE tenure_run INDEXED BY tenure_run_open SET owes = 1
 WHERE job = :id AND (state = 'pending' OR state = 'waiting' OR state = 'running') AND state <> 'running'

-- name: is_owed
-- Whether final runs owe followers their runs.
SELECT EXISTS (SELECT 1 FROM tenure_run INDEXED BY tenure_run_owed
                WHERE application = :application AND owes AND state <> 'pending' AND state <> 'waiting'
                  AND state <> 'running')

-- name: owed
-- Final runs that owe followers their runs, the oldest of each job first.
SELECT r.job, j.name, r.id, r.key, r.kind, r.state, r.scheduled_for, r.finished_at, r.attempt, r.reason, r.count,
       r.until, r.by
  FROM tenure_run r INDEXED BY tenure_run_owed CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.application = :application AND r.owes AND r.state <> 'pending' AND r.state <> 'waiting'
   AND r.state <> 'running' AND r.job > :beyond
 ORDER BY r.job, r.id

-- name: owed_after
-- Whether this run's job owes for later runs, and whether jobs beyond it owe something.
SELECT EXISTS (SELECT 1 FROM tenure_run INDEXED BY tenure_run_owed
                WHERE application = :application AND owes AND state <> 'pending' AND state <> 'waiting'
                  AND state <> 'running' AND job = :job AND id > :id),
       EXISTS (SELECT 1 FROM tenure_run INDEXED BY tenure_run_owed
                WHERE application = :application AND owes AND state <> 'pending' AND state <> 'waiting'
                  AND state <> 'running' AND job > :job)

-- name: paid
-- A run owes nothing any more.
UPDATE tenure_run SET owes = 0 WHERE id = ?

-- name: follow
-- Give a follower a run. Neither of a kept key nor of a due time that retention has removed: these may have run. Keys
-- that callers chose are kept, whatever their due time.
INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, expires_at,
                        finished_at, reason, count, until, by, owes)
SELECT id, application, lane, :key, :kind, :state, generation, :scheduled_for, :due_at, :expires_at, :finished_at,
       :reason, :count, :until, :by, followed
  FROM tenure_job WHERE id = :job AND (:chosen OR kept_since <= coalesce(:until, :scheduled_for))
   AND NOT EXISTS (SELECT 1 FROM tenure_kept_key k WHERE k.job = tenure_job.id AND k.key = :key)
ON CONFLICT DO NOTHING

-- name: follow_again
-- Give a follower another chance at a run that was skipped.
UPDATE tenure_run
   SET kind = :kind, state = :state, due_at = :due_at, expires_at = :expires_at, finished_at = :finished_at,
       reason = :reason, by = :by,
       (lane, generation, owes) = (SELECT j.lane, j.generation, j.followed FROM tenure_job j WHERE j.id = :job)
 WHERE id = :id

-- name: is_followed
-- Whether a run owes followers.
SELECT owes FROM tenure_run WHERE job = :job AND key = :key

-- name: parents
-- How runs of jobs ended, by job and key.
SELECT j.name, r.key, r.state, r.result
  FROM json_each(:wanted) w
 CROSS JOIN tenure_job j ON j.application = :application AND j.name = json_extract(w.value, '$[0]')
 CROSS JOIN tenure_run r ON r.job = j.id AND r.key = json_extract(w.value, '$[1]')

-- name: orphans
-- RUNNING runs whose node is not alive.
SELECT r.id
  FROM tenure_run r INDEXED BY tenure_run_running
 WHERE r.application = :application AND r.state = 'running'
   AND NOT EXISTS (SELECT 1 FROM tenure_node n WHERE n.id = r.node AND n.state = 'alive')

-- name: held
-- The runs that a node has, and whether it must report that their bodies have begun.
SELECT id, token, asked_to_end,
       started_at IS NULL AND EXISTS (SELECT 1 FROM tenure_job j WHERE j.id = tenure_run.job AND j.state <> 'active')
  FROM tenure_run INDEXED BY tenure_run_running
 WHERE application = :application AND state = 'running' AND node = :node ORDER BY id

-- name: unmarked
-- Whether a node has runs that are not marked as stopping.
SELECT 1 FROM tenure_run INDEXED BY tenure_run_running
 WHERE application = :application AND state = 'running' AND node = :node AND stopping = 0 LIMIT 1

-- name: mark_stopping
-- Mark the runs of a node that was told to stop.
UPDATE tenure_run INDEXED BY tenure_run_running SET stopping = 1
 WHERE application = :application AND state = 'running' AND node = :node AND stopping = 0

-- name: note_begun
-- Report that the body of a run has begun.
UPDATE tenure_run SET started_at = ? WHERE id = ? AND token = ?

-- name: unbegun
-- The live nodes that may still begin runs from before a change. A claim stamps its runs with the job's generation,
-- so runs with an older one were claimed before the change.
SELECT DISTINCT n.label, n.ttl
  FROM tenure_run r INDEXED BY tenure_run_began
 CROSS JOIN tenure_node n ON n.id = r.node
 WHERE r.job = :job AND r.state = 'running' AND r.started_at IS NULL AND r.generation < :generation
   AND n.state = 'alive'
   AND EXISTS (SELECT 1 FROM tenure_job j WHERE j.id = r.job AND j.state <> 'active')
 ORDER BY n.label

-- name: request_run
-- Request a run.
INSERT INTO tenure_run (job, application, lane, key, kind, state, generation, scheduled_for, due_at, kwargs, by,
                        slot, traceparent, owes)
SELECT id, application, lane, :key, :kind, 'pending', generation, :scheduled_for, max(:now, :scheduled_for), :kwargs,
       :by, :slot, :traceparent, followed
  FROM tenure_job WHERE application = :application AND name = :name AND state <> 'removed'
   AND (NOT :remembered OR kept_since <= :scheduled_for)
   AND NOT EXISTS (SELECT 1 FROM tenure_kept_key k WHERE k.job = tenure_job.id AND k.key = :key)
ON CONFLICT DO NOTHING

-- name: in_slot
-- The run of a job that has a slot.
SELECT {run}
  FROM tenure_job j CROSS JOIN tenure_run r INDEXED BY tenure_run_slot ON r.job = j.id
 WHERE j.application = :application AND j.name = :name AND j.state <> 'removed' AND r.application = :application
   AND r.slot = :slot AND r.slot IS NOT NULL AND r.attempt = 0 AND (r.state = 'pending' OR r.state = 'waiting')

-- name: replace_in_slot
-- Give a run that has a slot other arguments and another time.
UPDATE tenure_run
   SET state = 'pending', kwargs = :kwargs, by = :by, traceparent = :traceparent, scheduled_for = :scheduled_for,
       due_at = max(:now, :scheduled_for)
 WHERE id = :id

-- name: traceparents
-- The spans that requested runs.
SELECT id, traceparent FROM tenure_run WHERE id IN (SELECT value FROM json_each(:runs)) AND traceparent IS NOT NULL

-- name: run_by_key
-- One run by key.
SELECT {run}
  FROM tenure_job j JOIN tenure_run r ON r.job = j.id
 WHERE j.application = :application AND j.name = :name AND j.state <> 'removed' AND r.key = :key

-- name: kept_key
-- A kept key as a run, with NULLs and zeros for what is not kept.
SELECT k.run, k.job, j.name, k.key, 'manual', k.state, k.scheduled_for, k.scheduled_for, 0, 0, 0, '',
       NULL, k.started_at, k.finished_at, '', 1, NULL, '', NULL, 0, 0, 0, 0, NULL, 0, '', '', '', k.digest
  FROM tenure_job j JOIN tenure_kept_key k ON k.job = j.id
 WHERE j.application = :application AND j.name = :name AND j.state <> 'removed' AND k.key = :key

-- name: reopen
-- Reopen a final run of a job that is there. It keeps its attempts, and what the last one left.
UPDATE tenure_run
   SET state = 'pending', lane = (SELECT lane FROM tenure_job j WHERE j.id = tenure_run.job),
       kind = CASE kind WHEN 'manual' THEN kind ELSE 'backfill' END,
       generation = (SELECT generation FROM tenure_job j WHERE j.id = tenure_run.job),
       due_at = max(:now, scheduled_for), expires_at = NULL,
       failures = 0, losses = 0, interruptions = 0, stopping = 0, reopened = attempt,
       outcome = CASE WHEN attempt > 0 THEN coalesce(outcome, state) END,
       reason = CASE attempt WHEN 0 THEN '' ELSE reason END,
       finished_at = CASE attempt WHEN 0 THEN NULL ELSE finished_at END,
       looks = NULL, looking_since = NULL, last_look = NULL, pool = NULL,
       owes = (SELECT followed FROM tenure_job j WHERE j.id = tenure_run.job),
       by = :by, slot = NULL, kwargs = coalesce(:kwargs, kwargs), traceparent = :traceparent
 WHERE id = :id AND EXISTS (SELECT 1 FROM tenure_job j WHERE j.id = tenure_run.job AND j.state <> 'removed')

-- name: cancel
-- Cancel a run that has not begun.
UPDATE tenure_run SET state = 'cancelled', reason = :why, finished_at = :now
 WHERE id = :id AND (state = 'pending' OR state = 'waiting')

-- name: ask_one_to_end
-- Request the end of one RUNNING run.
UPDATE tenure_run SET asked_to_end = :why WHERE id = :id AND state = 'running' AND asked_to_end = ''

-- name: application
-- The application of a run.
SELECT application FROM tenure_run WHERE id = :id

-- name: run
-- One run by id.
SELECT {run}
  FROM tenure_run r JOIN tenure_job j ON j.id = r.job WHERE r.id = :id

-- name: final_states
-- The final states that runs of an application have. Steps from one state to the next: the file accepts any text as
-- a state.
WITH RECURSIVE states (state) AS (
    SELECT min(state) FROM tenure_run INDEXED BY tenure_run_of_application
     WHERE application = :application AND state <> 'pending' AND state <> 'waiting' AND state <> 'running'
    UNION ALL
    SELECT (SELECT min(r.state) FROM tenure_run r INDEXED BY tenure_run_of_application
             WHERE r.application = :application AND r.state <> 'pending' AND r.state <> 'waiting'
               AND r.state <> 'running'
               AND r.state > states.state)
      FROM states WHERE states.state IS NOT NULL
)
SELECT state FROM states WHERE state IS NOT NULL

-- name: runs_in_state
-- Runs of an application in one final state.
SELECT {run}
  FROM tenure_run r INDEXED BY tenure_run_of_application
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.application = :application AND r.state = :state AND r.state <> 'pending' AND r.state <> 'waiting'
   AND r.state <> 'running'
   AND (r.scheduled_for, r.id) > (:since, :above) AND (r.scheduled_for, r.id) < (:before, :below)
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: runs_of_job
-- Runs of one job.
SELECT {run}
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = j.id
 WHERE j.application = :application AND j.name = :job
   AND (r.scheduled_for, r.id) > (:since, :above) AND (r.scheduled_for, r.id) < (:before, :below)
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: strip
-- The last runs of a job, in short.
SELECT id, state, due_at, started_at, finished_at
  FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :job AND scheduled_for < :before ORDER BY scheduled_for DESC, id DESC LIMIT :limit

-- name: runs_reaching
-- Runs that stand for several due times, began before the span and reach into it.
SELECT {run}
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_several ON r.job = j.id
 WHERE j.application = :application AND r.until >= :since AND r.scheduled_for < :since
   AND (r.scheduled_for, r.id) < (:before, :below)
   AND (:id IS NULL OR r.id = :id) AND (:job IS NULL OR j.name = :job)
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: runs_by_key
-- The runs of one key that are in the span: of one job, or of all.
SELECT {run}
  FROM tenure_job j
 CROSS JOIN tenure_run r ON r.job = j.id AND r.key = :key
 WHERE j.application = :application AND (:job IS NULL OR j.name = :job)
   AND (r.scheduled_for, r.id) > (:since, :above) AND (r.scheduled_for, r.id) < (:before, :below)
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: runs_by_id
-- One run by id, if it is in the span.
SELECT {run}
  FROM tenure_run r CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.id = :id AND r.application = :application AND (:job IS NULL OR j.name = :job)
   AND (r.scheduled_for, r.id) > (:since, :above) AND (r.scheduled_for, r.id) < (:before, :below)
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))

-- name: runs_in_slot
-- The runs that have a slot.
SELECT {run}
  FROM tenure_run r INDEXED BY tenure_run_slot CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.application = :application AND r.slot = :slot AND r.slot IS NOT NULL AND r.attempt = 0
   AND (r.state = 'pending' OR r.state = 'waiting') AND (:job IS NULL OR j.name = :job)
   AND (r.scheduled_for, r.id) > (:since, :above) AND (r.scheduled_for, r.id) < (:before, :below)
   AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))

-- name: coming
-- The runs that were requested for a time to come, the nearest first.
SELECT {run}
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_open ON r.job = j.id
 WHERE j.application = :application AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running')
   AND r.state = 'pending' AND r.kind <> 'due' AND r.due_at > :now AND r.attempt <= r.reopened
 ORDER BY r.due_at, r.id LIMIT :limit

-- name: runs_open
-- Open runs, found by way of the jobs: they are few among many.
SELECT {run}
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_open ON r.job = j.id
 WHERE j.application = :application AND (:job IS NULL OR j.name = :job)
   AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running')
   AND r.state IN (SELECT value FROM json_each(:states))
   AND (r.scheduled_for, r.id) > (:since, :above) AND (r.scheduled_for, r.id) < (:before, :below)
 ORDER BY r.scheduled_for {order}, r.id {order} LIMIT :limit

-- name: last_runs
-- The last runs of one job that began.
SELECT {run}
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = j.id
 WHERE j.application = :application AND j.name = :name AND r.attempt > 0
 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT :last

-- name: past
-- For an audit: the plain due times, in microseconds, by job and by how they ended.
SELECT r.job, r.state, group_concat(r.scheduled_for)
  FROM json_each(:jobs) x
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = x.value
 WHERE r.scheduled_for >= :since AND r.scheduled_for < :before
   AND typeof(r.scheduled_for) = 'integer'
   AND r.kind = 'due' AND r.count = 1 AND r.until IS NULL AND r.state IN ('succeeded', 'failed', 'lost')
 GROUP BY r.job, r.state

-- name: past_others
-- For an audit: the other runs of the span.
SELECT {run}
  FROM json_each(:jobs) x
 CROSS JOIN tenure_run r INDEXED BY tenure_run_of_job ON r.job = x.value
 CROSS JOIN tenure_job j ON j.id = r.job
 WHERE r.scheduled_for >= :since AND r.scheduled_for < :before
   AND NOT (typeof(r.scheduled_for) = 'integer'
            AND r.kind = 'due' AND r.count = 1 AND r.until IS NULL AND r.state IN ('succeeded', 'failed', 'lost'))

-- name: past_reaching
-- For an audit: runs that stand for several due times, began before the span and reach into it.
SELECT {run}
  FROM json_each(:jobs) x
 CROSS JOIN tenure_job j ON j.id = x.value
 CROSS JOIN tenure_run r INDEXED BY tenure_run_several ON r.job = j.id
 WHERE r.until >= :since AND r.until IS NOT NULL AND r.scheduled_for < :since AND r.scheduled_for < :before

-- name: figures
-- A job's last runs that began, for its figures.
SELECT r.state, r.due_at, r.started_at, r.finished_at
  FROM tenure_run r INDEXED BY tenure_run_of_job
 WHERE r.job = ? AND r.attempt > 0 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT ?

-- name: job_names
-- The jobs of an application that are not removed, or one of them.
SELECT id, name FROM tenure_job
 WHERE application = :application AND state <> 'removed' AND (:name IS NULL OR name = :name) ORDER BY name

-- name: jobs_with_failures
-- The jobs that have failures among the newest of an application.
SELECT j.id, j.name
  FROM (SELECT job FROM (SELECT job FROM tenure_run INDEXED BY tenure_run_of_application
                          WHERE application = :application AND state = 'failed' AND state <> 'pending'
                            AND state <> 'waiting' AND state <> 'running'
                          ORDER BY scheduled_for DESC
                          LIMIT :limit)
        UNION
        SELECT job FROM (SELECT job FROM tenure_run INDEXED BY tenure_run_of_application
                          WHERE application = :application AND state = 'lost' AND state <> 'pending'
                            AND state <> 'waiting' AND state <> 'running'
                          ORDER BY scheduled_for DESC
                          LIMIT :limit)) bad
 CROSS JOIN tenure_job j ON j.id = bad.job
 WHERE j.state <> 'removed' ORDER BY j.name

-- name: recent_failures
-- How many runs of each job failed or were lost since an instant.
SELECT job, count(*) FROM tenure_run INDEXED BY tenure_run_of_application
 WHERE application = :application AND state IN ('failed', 'lost') AND state <> 'pending' AND state <> 'waiting'
   AND state <> 'running' AND scheduled_for >= :since
 GROUP BY job

-- name: ended
-- The runs of a job that succeeded, failed or were lost, newest first. Read only as far as needed.
SELECT id, state, scheduled_for, finished_at, reason
  FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :job AND state IN ('succeeded', 'failed', 'lost') ORDER BY scheduled_for DESC, id DESC

-- name: tally_open
-- Count open runs that are due, by state and node.
SELECT 'pending', '', count(*)
  FROM tenure_job j
 CROSS JOIN tenure_run r INDEXED BY tenure_run_open ON r.job = j.id
 WHERE j.application = :application AND (r.state = 'pending' OR r.state = 'waiting' OR r.state = 'running')
   AND r.state = 'pending'
   AND r.scheduled_for < :now
UNION ALL
SELECT 'waiting', '', count(*) FROM tenure_run INDEXED BY tenure_run_waiting
 WHERE application = :application AND state = 'waiting'
UNION ALL
SELECT 'running', label, count(*) FROM tenure_run INDEXED BY tenure_run_running
 WHERE application = :application AND state = 'running' GROUP BY label

-- name: tally_final
-- Count runs of one final state since an instant, up to a limit.
SELECT count(*)
  FROM (SELECT 1 FROM tenure_run INDEXED BY tenure_run_of_application
         WHERE application = :application AND state = :state AND state <> 'pending' AND state <> 'waiting'
           AND state <> 'running'
           AND scheduled_for >= :since LIMIT :limit)

-- name: open_in_lanes
-- Count runs that are due and that no node has claimed, by queue, up to a limit in each lane.
SELECT 'pending', l.queue,
       sum((SELECT count(*) FROM (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_due
                                   WHERE r.lane = l.id AND r.state = 'pending' AND r.due_at <= :now LIMIT :limit)))
  FROM tenure_lane l WHERE l.application = :application GROUP BY l.queue

-- name: open_waiting
-- Count waiting runs by queue, up to a limit.
SELECT 'waiting', j.queue, count(*)
  FROM (SELECT job FROM tenure_run INDEXED BY tenure_run_waiting
         WHERE application = :application AND state = 'waiting' LIMIT :limit) r
 CROSS JOIN tenure_job j ON j.id = r.job GROUP BY j.queue

-- name: open_running
-- Count running runs by queue, up to a limit.
SELECT 'running', j.queue, count(*)
  FROM (SELECT job FROM tenure_run INDEXED BY tenure_run_running
         WHERE application = :application AND state = 'running' LIMIT :limit) r
 CROSS JOIN tenure_job j ON j.id = r.job GROUP BY j.queue

-- name: last_failures
-- When the jobs last failed or were lost that are among the newest of an application in one of these states.
SELECT job, max(at)
  FROM (SELECT job, coalesce(finished_at, scheduled_for) AS at FROM tenure_run INDEXED BY tenure_run_of_application
         WHERE application = :application AND state = :state AND state <> 'pending' AND state <> 'waiting'
           AND state <> 'running'
         ORDER BY scheduled_for DESC LIMIT :limit) GROUP BY job

-- name: newest_final
-- The newest final runs of a job. Read only as far as needed.
SELECT state, scheduled_for, started_at, finished_at,
       CASE WHEN state = 'skipped' AND reason = 'missed' THEN coalesce(until, scheduled_for) END
  FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :job AND state IN ('succeeded', 'failed', 'lost', 'cancelled', 'skipped')
 ORDER BY scheduled_for DESC, id DESC LIMIT :limit

-- name: keep_log
-- Store log lines. A line that is sent again, because the first answer was lost, is stored once.
INSERT OR IGNORE INTO tenure_log (run, attempt, place, at, line)
SELECT r.id, ?2, ?3, ?4, ?5 FROM tenure_run r WHERE r.id = ?1

-- name: trim_log
-- Drop log lines that later ones take the room of.
DELETE FROM tenure_log WHERE run = ?1 AND attempt = ?2 AND place >= ?3 AND place < ?4

-- name: keep_progress
-- Store how far a run is.
INSERT INTO tenure_progress (run, attempt, done, total, text, at)
SELECT r.id, ?2, ?3, ?4, ?5, ?6 FROM tenure_run r WHERE r.id = ?1
ON CONFLICT (run) DO UPDATE SET (attempt, done, total, text, at)
                              = (excluded.attempt, excluded.done, excluded.total, excluded.text, excluded.at)
 WHERE tenure_progress.attempt <= excluded.attempt

-- name: keep_result
-- Store what a body returned whose own transaction completed its run.
UPDATE tenure_run SET result = ?3
 WHERE id = ?1 AND state = 'succeeded' AND result IS NULL AND attempt = ?2

-- name: result
-- What the body of one run returned.
SELECT result FROM tenure_run WHERE id = :id

-- name: progress
-- How far runs are.
SELECT p.run, p.attempt, p.done, p.total, p.text, p.at
  FROM json_each(:runs) i CROSS JOIN tenure_progress p ON p.run = i.value

-- name: log
-- The log of one run.
SELECT run, attempt, place, at, line FROM tenure_log WHERE run = :id ORDER BY attempt, place

-- name: log_ends
-- The last log line of each of these runs.
SELECT l.run, l.attempt, l.place
  FROM json_each(:runs) i
 CROSS JOIN tenure_log l ON l.run = i.value
   AND (l.attempt, l.place) = (SELECT f.attempt, f.place FROM tenure_log f WHERE f.run = i.value
                                ORDER BY f.attempt DESC, f.place DESC LIMIT 1)

-- name: kept_attempts
-- The kept attempts of a run.
SELECT number, label, claimed_at, started_at, finished_at, outcome, error, count
  FROM tenure_attempt WHERE run = :id ORDER BY number

-- name: last_attempt
-- The attempt in a run's own row. It may be kept already.
SELECT attempt, label, claimed_at, started_at, finished_at, coalesce(outcome, state), reason, 1
  FROM tenure_run WHERE id = :id AND attempt > 0

-- name: prunable
-- Jobs with runs old enough, and up to which instant they may be deleted: not the newest, and nothing at or after an
-- open run, or a due time that a backfill has not settled, or after one of the parent, or of its parent, that owes a
-- run or will. Of a job that is over, no run is kept.
SELECT j.id,
       min(:before,
           CASE WHEN j.over THEN :before ELSE
           coalesce((SELECT scheduled_for FROM tenure_run INDEXED BY tenure_run_of_job
                      WHERE job = j.id AND state NOT IN ('pending', 'waiting', 'running') AND :keep > 0
                      ORDER BY scheduled_for DESC LIMIT 1 OFFSET :keep - 1),
                    CASE WHEN :keep > 0 THEN :nothing ELSE :before END) END,
           coalesce((SELECT min(scheduled_for) FROM tenure_run INDEXED BY tenure_run_open
                      WHERE job = j.id AND (state = 'pending' OR state = 'waiting' OR state = 'running')), :before),
           coalesce((SELECT min(d.scheduled_for) FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_unsettled
                      WHERE d.job = j.id AND d.outcome IS NULL), :before),
           coalesce((WITH RECURSIVE above (id, after) AS (
                         SELECT p.id, CASE WHEN p.state <> 'removed' THEN p.after END
                           FROM tenure_job p WHERE p.application = :application AND p.name = j.after
                         UNION
                         SELECT p.id, CASE WHEN p.state <> 'removed' THEN p.after END
                           FROM above CROSS JOIN tenure_job p ON p.application = :application AND p.name = above.after
                     )
                     SELECT min(min(
                         coalesce((SELECT min(scheduled_for) FROM tenure_run INDEXED BY tenure_run_open
                                    WHERE job = above.id AND owes
                                      AND (state = 'pending' OR state = 'waiting' OR state = 'running')), :before),
                         coalesce((SELECT min(scheduled_for) FROM tenure_run INDEXED BY tenure_run_owed
                                    WHERE application = :application AND job = above.id AND owes
                                      AND state <> 'pending' AND state <> 'waiting' AND state <> 'running'), :before),
                         coalesce((SELECT min(d.scheduled_for)
                                     FROM tenure_backfill_due d INDEXED BY tenure_backfill_due_unsettled
                                    WHERE d.job = above.id AND d.outcome IS NULL), :before)))
                       FROM above), :before)),
       j.over
  FROM (SELECT id, (state = 'removed' OR (state = 'active' AND next_due IS NULL AND trigger IS NOT NULL))
                   AND defined_at < :before AND since < :before AND coalesce(removed_at, 0) < :before AS over,
               CASE WHEN state <> 'removed' THEN after END AS after
          FROM tenure_job WHERE id BETWEEN :low AND :high AND application = :application) j
 WHERE EXISTS (SELECT 1 FROM tenure_run r INDEXED BY tenure_run_of_job WHERE r.job = j.id AND r.scheduled_for < :before)

-- name: oldest
-- The oldest runs of a job that may be deleted.
SELECT id, coalesce(until, scheduled_for) FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :job AND scheduled_for < :before AND coalesce(until, scheduled_for) < :before
   AND coalesce(finished_at, 0) < :finished_before AND NOT owes
 ORDER BY scheduled_for, id LIMIT :limit

-- name: forget_log
-- Delete the log of a run.
DELETE FROM tenure_log WHERE run = ?

-- name: forget_progress
-- Delete the progress of a run.
DELETE FROM tenure_progress WHERE run = ?

-- name: forget_attempts
-- Delete the attempts of a run.
DELETE FROM tenure_attempt WHERE run = ?

-- name: forget_run
-- Delete a run.
DELETE FROM tenure_run WHERE id = ?

-- name: keep_since
-- Note until when deleted runs of a job reached.
UPDATE tenure_job SET kept_since = max(kept_since, ?) WHERE id = ?

-- name: asked_runs
-- Of runs to be deleted, those that were requested recently: users may have chosen their keys.
SELECT r.job, r.key, r.application, r.id, r.state, r.scheduled_for, r.started_at, r.finished_at, r.kwargs
  FROM json_each(:ids) i CROSS JOIN tenure_run r ON r.id = i.value
 WHERE r.kind = 'manual' AND r.scheduled_for >= :keys_before

-- name: keep_key
-- Keep the key of a run that is deleted.
INSERT INTO tenure_kept_key (job, key, application, run, state, scheduled_for, started_at, finished_at, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job, key) DO NOTHING

-- name: old_keys
-- Count kept keys that are too old, up to a limit.
SELECT count(*)
  FROM (SELECT 1 FROM tenure_kept_key WHERE application = :application AND scheduled_for < :keys_before LIMIT :limit)

-- name: forget_keys
-- Delete kept keys that are too old.
DELETE FROM tenure_kept_key
 WHERE (job, key) IN (SELECT job, key FROM tenure_kept_key
                       WHERE application = :application AND scheduled_for < :keys_before ORDER BY scheduled_for
                       LIMIT :limit)
